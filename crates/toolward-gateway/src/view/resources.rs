//! The server that owns a resource URI.
//!
//! URIs are never rewritten, so the owner of a URI has to be found. The rules are tried one after the other, each over
//! all servers that the agent may use, in configuration order:
//!
//! 1. a server lists the URI
//! 2. a template of a server matches it
//! 3. a result that the agent received from a server links to it ([`Links`](super::super::links::Links))
//! 4. `servers.S.schemes` has its scheme and authority, or its scheme
//! 5. only one server lists anything with its scheme and authority
//!
//! Entries that the policy hides own nothing. Then the policy decides about the URI itself.

mod template;

use std::sync::Arc;

use toolward_policy::{Call, Subject, Verdict, uri};
use toolward_wire::{Message, Raw};

use self::template::Template;
use super::{Authorization, ListedEntry, Rules, View, unlisted};
use crate::client::{Caller, ServerId};
use crate::permit::DeniedCall;
use crate::upstream::{Server, Unavailable};

/// The key of a resource in a view: its normalized URI. A URI that cannot be normalized is denied by every policy.
pub(super) fn key(uri: &str) -> Box<str> {
    uri::normalise(uri).map_or_else(|_| uri.into(), String::into_boxed_str)
}

/// An agent's views of resources and templates.
pub(crate) struct ResourceViews {
    pub(crate) resources: Arc<View>,
    pub(crate) templates: Arc<View>,
    /// The client uses the address of a single server, which owns everything.
    pub(crate) is_alone: bool,
}

/// The user interface of a tool (MCP Apps): a resource that a listed tool names. It follows the tool, so that narrowing
/// an agent's tools does not break those it keeps.
pub(crate) struct ToolInterface {
    pub(crate) tools: Arc<View>,
    /// The listed tool.
    tool: String,
}

/// The scheme of resources that follow a tool.
pub(crate) const INTERFACE_SCHEME: &str = "ui://";

impl ToolInterface {
    /// `None` if no listed tool names the resource.
    pub(crate) fn find(tools: Arc<View>, uri: &str) -> Option<ToolInterface> {
        let array = Raw::scan(tools.array(), tools.array().len()).ok()?;
        let names_it = |tool: &Raw<'_>| {
            let meta = tool.member("_meta");
            let nested = meta.and_then(|meta| meta.member("ui")?.member("resourceUri"));
            let named = nested.or_else(|| meta?.member("ui/resourceUri"));
            named.is_some_and(|named| named.as_str().as_deref() == Some(uri))
        };
        let mut listed = array.elements().map(|(tool, _)| tool);
        let tool = listed.find(names_it)?.member("name")?.as_str()?.into_owned();
        Some(ToolInterface { tools, tool })
    }

    /// Decides about the resource. A rule that denies it wins over the tool.
    pub(crate) fn decide(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        uri: &str,
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        let of = self.tools.shown.get(self.tool.as_str());
        let of = of.and_then(|tool| self.tools.servers.get(tool.at));
        let Some(of) = of else { return Err(unlisted(message)) };
        let cell = rules.policy.cell(caller.agent.as_deref(), &of.name, Subject::Resource(uri));
        let decision = cell.decide(caller.policy(), &Call::default());
        if rules.enforced && decision.verdict == Verdict::Deny && decision.rule.is_some() {
            return Err(unlisted(message));
        }
        self.tools.decide_following(rules, caller, (&self.tool, Some((uri, uri))), message)
    }
}

/// The owner of a URI.
pub(crate) enum Owner<'v> {
    /// The index of the server in the views.
    Server(usize),
    None,
    /// A server that might own it has not sent its list.
    Unknown(&'v str, &'v Unavailable),
}

impl ResourceViews {
    /// Finds the owner of a URI. `linked` is the server whose result linked to it.
    pub(crate) fn owner(&self, uri: &str, linked: Option<ServerId>) -> Owner<'_> {
        let key = key(uri);
        let listed = self.resources.shown.get(&key).map(|entry| entry.at);
        match first_of(&self.resources, listed) {
            Owner::None => {}
            found => return found,
        }
        let is_single = self.is_alone;
        let matching = self.templates.shown.iter().filter(|(text, _)| {
            let template = Template::parse(text);
            template.is_some_and(|one| (is_single || one.has_scheme()) && one.matches(&key))
        });
        let matched = matching.map(|(_, entry)| entry.at).min();
        match first_of(&self.templates, matched) {
            Owner::None => {}
            found => return found,
        }
        let is_linked = |of: &super::ServerView| Some(of.server.id) == linked;
        let at = self.resources.servers.iter().position(is_linked);
        match at.or_else(|| self.owner_by_authority(&key)) {
            Some(at) => Owner::Server(at),
            None => Owner::None,
        }
    }

    /// The only server that lists anything with the scheme and authority of a URI, or the server of the client's address.
    fn owner_by_authority(&self, key: &str) -> Option<usize> {
        // The built-in server has no resources.
        if self.is_alone {
            return self
                .resources
                .servers
                .first()
                .is_some_and(|of| !of.server.is_own())
                .then_some(0);
        }
        let wanted = authority(key)?;
        if let Some(at) = self.owner_by_scheme(wanted) {
            return Some(at);
        }
        let listed = self.resources.shown.iter().chain(&self.templates.shown);
        let same = listed.filter(|(text, _)| authority(text) == Some(wanted));
        let mut owner = None;
        for (_, entry) in same {
            match owner {
                None => owner = Some(entry.at),
                Some(at) if at == entry.at => {}
                Some(_) => return None,
            }
        }
        owner
    }

    /// The server whose `schemes` have this scheme and authority, or else the scheme alone.
    fn owner_by_scheme(&self, authority: &str) -> Option<usize> {
        let scheme = authority.split(':').next().unwrap_or_default();
        let owner = |wanted: &str| {
            let mut servers = self.resources.servers.iter();
            servers.position(|of| of.server.definition.schemes.iter().any(|one| **one == *wanted))
        };
        owner(authority).or_else(|| owner(scheme))
    }

    /// Whether the resource itself is listed.
    pub(crate) fn lists(&self, uri: &str) -> bool {
        self.resources.shown.contains_key(&key(uri))
    }

    /// The server of a resource, if the agent may read it.
    pub(crate) fn readable(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        (uri, at): (&str, usize),
    ) -> Option<Arc<Server>> {
        let of = self.resources.servers.get(at)?;
        let cell = rules.policy.cell(caller.agent.as_deref(), &of.name, Subject::Resource(uri));
        let allowed = cell.decide(caller.policy(), &Call::default()).verdict == Verdict::Allow;
        (allowed || !rules.enforced).then(|| of.server.clone())
    }

    /// Decides about a request for a resource of the server with this index.
    pub(crate) fn decide(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        (uri, owner): (&str, Option<usize>),
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        let view = &self.resources;
        let of = owner.and_then(|at| Some((at, view.servers.get(at)?)));
        let Some((at, of)) = of else { return Err(unlisted(message)) };
        // The decision of the listing applies to the URI as listed; other spellings are decided as they are.
        let listed = view.shown.get(&key(uri));
        if let Some(listed) = listed.filter(|listed| listed.at == at && *listed.original == *uri) {
            return view.decide_entry(rules, caller, (uri, listed), message);
        }
        let (agent, server) = (caller.agent.as_deref(), &*of.name);
        let cell = rules.policy.cell(agent, server, Subject::Resource(uri));
        // A resource that a listing would hide is treated like one that does not exist.
        if rules.enforced && cell.list(caller.policy()).decision.verdict == Verdict::Deny {
            return Err(unlisted(message));
        }
        let plan = rules.guards.before_other(agent, server);
        let (settled, headers) = (None, None);
        let (original, needs_task) = (uri.into(), false);
        let shadow = rules.shadow;
        let entry = ListedEntry {
            at,
            original,
            cell,
            other_cell: None,
            shadow_cell: shadow.map(|shadow| shadow.cell(agent, server, Subject::Resource(uri))),
            headers,
            needs_task,
            settled,
            plan,
            definition: None,
        };
        view.decide_entry(rules, caller, (uri, &entry), message)
    }
}

/// The owner by one rule, unless an earlier server, which comes first, has not sent its list.
fn first_of(view: &View, found: Option<usize>) -> Owner<'_> {
    let mut before = view.servers.iter().take(found.unwrap_or(usize::MAX));
    match before.find_map(|of| Some((&*of.name, of.unavailable.as_ref()?))) {
        Some((server, why)) => Owner::Unknown(server, why),
        None => found.map_or(Owner::None, Owner::Server),
    }
}

/// The scheme and authority of a URI or of the literal start of a template: `https://host`, or `memo:`.
fn authority(text: &str) -> Option<&str> {
    let text = text.split('{').next().unwrap_or_default();
    let (scheme, rest) = text.split_once(':')?;
    match rest.strip_prefix("//") {
        None => text.get(..=scheme.len()),
        Some(rest) => {
            let host = rest.find(['/', '?']).unwrap_or(rest.len());
            text.get(..scheme.len() + 3 + host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_authority() {
        for (uri, expected) in [
            ("https://host/a?b", Some("https://host")),
            ("https://host", Some("https://host")),
            ("memo:x", Some("memo:")),
            ("file:///a/b", Some("file://")),
            ("repo://{owner}/x", Some("repo://")),
            ("{+any}", None),
        ] {
            assert_eq!(authority(uri), expected, "{uri}");
        }
    }
}
