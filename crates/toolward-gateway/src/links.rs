//! Resource links that agents received in results.
//!
//! A server may link to resources that it does not list. The agent that received such a link may read it from that
//! server, if the policy allows it: the link only finds the server.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use hashbrown::HashMap;
use memchr::memmem;
use tokio::time::Instant;
use toolward_policy::uri;
use toolward_wire::{Message, Raw};

use crate::client::{Caller, Holder, ServerId};
use crate::lock::LockUnpoisoned;

/// Links that are remembered for one agent; the oldest are forgotten first.
const MAX_LINKS: usize = 4096;
/// Agents whose links are remembered.
const MAX_HOLDERS: usize = 10_000;
/// The longest URI that is remembered.
const MAX_URI_BYTES: usize = 2048;
const TTL: Duration = Duration::from_secs(3600);

/// The links of all agents. They belong to the holder of a credential, not to the agent alone.
#[derive(Debug, Default)]
pub struct Links(Mutex<HashMap<Holder, AgentLinks>>);

#[derive(Debug, Default)]
struct AgentLinks {
    /// `None`: several servers linked to it, so it has no owner.
    by_uri: HashMap<Box<str>, (Option<ServerId>, Instant)>,
    oldest: VecDeque<Box<str>>,
}

impl Links {
    /// Remembers the links in a server's result.
    pub(crate) fn remember(&self, caller: &Caller, server: ServerId, result: &Message) {
        // Most results have none, and a search is much cheaper than parsing.
        if memmem::find(result.body(), b"\"resource").is_none() {
            return;
        }
        let mut found = Vec::new();
        for member in result.result_members() {
            match &*member.name() {
                "content" | "contents" => member.value.elements().for_each(|(block, _)| {
                    found.extend(link(block));
                }),
                // Of a task that has ended.
                "result" => {
                    let content = member.value.member("content").into_iter();
                    let blocks = content.flat_map(|content| content.elements());
                    found.extend(blocks.filter_map(|(block, _)| link(block)));
                }
                "messages" => {
                    let contents = member
                        .value
                        .elements()
                        .filter_map(|(message, _)| message.member("content"));
                    contents.for_each(|content| match content.is_object() {
                        true => found.extend(link(content)),
                        false => found.extend(content.elements().filter_map(|(one, _)| link(one))),
                    });
                }
                _ => {}
            }
        }
        if found.is_empty() {
            return;
        }
        let mut all = self.0.locked();
        if all.len() >= MAX_HOLDERS {
            let now = Instant::now();
            all.retain(|_, links| links.by_uri.values().any(|(_, until)| now < *until));
        }
        if all.len() < MAX_HOLDERS || all.contains_key(&caller.holder()) {
            let links = all.entry(caller.holder()).or_default();
            found.into_iter().for_each(|uri| links.add(uri, server));
        }
    }

    /// The server whose result linked to a URI.
    pub(crate) fn server(&self, caller: &Caller, uri: &str) -> Option<ServerId> {
        let key = uri::normalise(uri).ok()?;
        let all = self.0.locked();
        let (server, until) = all.get(&caller.holder())?.by_uri.get(key.as_str())?;
        server.filter(|_| Instant::now() < *until)
    }
}

impl AgentLinks {
    fn add(&mut self, uri: Box<str>, server: ServerId) {
        let until = Instant::now() + TTL;
        if let Some((owner, known_until)) = self.by_uri.get_mut(&uri) {
            let expired = Instant::now() >= *known_until;
            *owner = owner.filter(|owner| *owner == server || expired).and(Some(server));
            *known_until = until;
            return;
        }
        if self.oldest.len() >= MAX_LINKS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.by_uri.remove(&oldest);
        }
        self.oldest.push_back(uri.clone());
        self.by_uri.insert(uri, (Some(server), until));
    }
}

/// The normalized URI of a `resource_link` or an embedded `resource`.
fn link(block: Raw<'_>) -> Option<Box<str>> {
    let uri = match block.member("type")?.as_str()?.as_ref() {
        "resource_link" => block.member("uri")?,
        "resource" => block.member("resource")?.member("uri")?,
        _ => return None,
    };
    let uri = uri.as_str().filter(|uri| uri.len() <= MAX_URI_BYTES)?;
    uri::normalise(&uri).ok().map(String::into_boxed_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_wire::{MAX_RESPONSE_BYTES, Sender};

    fn result(blocks: &str) -> Message {
        let body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"content\":[{blocks}]}}}}");
        Message::parse(body.into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap()
    }

    fn linked(uri: &str) -> String {
        format!("{{\"type\":\"resource_link\",\"uri\":\"{uri}\",\"name\":\"x\"}}")
    }

    #[test]
    fn a_link_belongs_to_the_agent_that_received_it() {
        let links = Links::default();
        let [one, other] = ["one", "other"].map(|name| Caller::new(Some(name.into()), "token"));
        let server = ServerId::FIRST;
        links.remember(&one, server, &result(&linked("note:1")));
        let embedded = r#"{"type":"resource","resource":{"uri":"note:2","text":"x"}}"#;
        links.remember(&one, server, &result(embedded));
        assert_eq!(links.server(&one, "note:1"), Some(server));
        assert_eq!(links.server(&one, "NOTE:2"), Some(server));
        assert_eq!(links.server(&other, "note:1"), None);
    }

    #[test]
    fn a_link_of_two_servers_belongs_to_neither() {
        let links = Links::default();
        let caller = Caller::new(None, "none");
        links.remember(&caller, ServerId::new(1), &result(&linked("note:1")));
        links.remember(&caller, ServerId::new(2), &result(&linked("note:1")));
        assert_eq!(links.server(&caller, "note:1"), None);
    }

    #[test]
    fn the_oldest_links_are_forgotten() {
        let links = Links::default();
        let caller = Caller::new(None, "none");
        for number in 0..=MAX_LINKS {
            let uri = format!("note:{number}");
            links.remember(&caller, ServerId::FIRST, &result(&linked(&uri)));
        }
        assert_eq!(links.server(&caller, "note:0"), None);
        assert!(links.server(&caller, "note:1").is_some());
    }
}
