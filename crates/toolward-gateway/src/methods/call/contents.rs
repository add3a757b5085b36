//! Filters what a server returns: the contents of a resource, and the values of a completion.
//!
//! A server may return other resources than the one requested, such as the entries of a directory, and a completion may
//! suggest any value. Each of them is decided like a request for it, and removed if that would be denied.

use toolward_wire::jsonrpc_error::code;
use toolward_wire::method::PolicySubject;
use toolward_wire::{Kind, MAX_RESPONSE_BYTES, Message, Raw, RawMember, Sender, Shape};

use crate::methods::request::Envelope;

/// A server's response, as far as the agent may see it.
pub(super) enum Filtered {
    Unchanged(Message),
    Changed(Message),
    /// Nothing is left, or the server does not have the resource. The text is always the gateway's own, so
    /// that a hidden resource is indistinguishable from one that does not exist.
    NotFound(Message),
    /// It is not what the protocol allows, so nothing of it can be decided.
    Malformed,
}

/// The variable that a completion is for, and the values of the others.
pub(super) struct Completes {
    template: String,
    variable: String,
    known: Vec<(String, String)>,
}

impl Completes {
    /// `None` if the request is not for the completion of a resource's URI.
    pub(super) fn of(request: &Message) -> Option<Completes> {
        let text = |raw: Raw<'_>| raw.as_str().map(Into::into);
        let template = request.param("ref")?.member("uri").and_then(text)?;
        let variable = request.param("argument")?.member("name").and_then(text)?;
        let context = request.param("context").and_then(|raw| raw.member("arguments"));
        let known = context.into_iter().flat_map(|raw| raw.members());
        let known = known.filter_map(|one| Some((one.name().into(), text(one.value)?))).collect();
        Some(Completes { template, variable, known })
    }

    /// The URI with this value, or a template with the variables that are still missing. `None` if the template cannot
    /// be read.
    fn with(&self, value: &str) -> Option<Expanded> {
        let (mut uri, mut rest) = (String::new(), self.template.as_str());
        let mut is_whole = true;
        while let Some((literal, expression)) = rest.split_once('{') {
            let (body, after) = expression.split_once('}')?;
            uri.push_str(literal);
            let name = body.trim_start_matches(['+', '#']).trim_end_matches('*');
            let known = self.known.iter().find(|(known, _)| known == name);
            let value = match known {
                _ if name == self.variable => value,
                Some((_, value)) => value,
                None => {
                    is_whole = false;
                    uri.push_str(&format!("{{{body}}}"));
                    rest = after;
                    continue;
                }
            };
            match body.starts_with(['+', '#']) {
                true => uri.push_str(value),
                false => encode(value, &mut uri),
            }
            rest = after;
        }
        uri.push_str(rest);
        Some(if is_whole { Expanded::Uri(uri) } else { Expanded::Template(uri) })
    }
}

/// The known part of the URI that a value completes.
enum Expanded {
    Uri(String),
    Template(String),
}

impl Expanded {
    /// Whether the agent may read it, or some expansion of it.
    fn is_readable(&self, envelope: &Envelope, server: &str) -> bool {
        match self {
            Expanded::Uri(uri) => may_read(envelope, server, uri),
            Expanded::Template(template) => {
                let (active, caller) = (&envelope.active, envelope.client.caller.policy());
                !active.enforced || active.policy.shows_template(caller, server, template)
            }
        }
    }
}

/// Removes what the agent may not see from a response of `server`.
///
/// `requested` is the URI of a resource that was requested, which is decided already.
pub(super) fn filter(
    envelope: &Envelope,
    (server, requested): (&str, &str),
    completes: Option<&Completes>,
    message: Message,
) -> Filtered {
    match (envelope.row.subject, completes) {
        (PolicySubject::Resource, _) => contents(envelope, (server, requested), message),
        (PolicySubject::Completion, Some(completes)) => {
            values(envelope, server, completes, message)
        }
        _ => Filtered::Unchanged(message),
    }
}

/// Whether the agent may read a resource of a server.
fn may_read(envelope: &Envelope, server: &str, uri: &str) -> bool {
    envelope.active.may_read(&envelope.client.caller, server, uri)
}

fn contents(envelope: &Envelope, (server, requested): (&str, &str), message: Message) -> Filtered {
    if message.kind() == Kind::Error {
        // Modern servers use the code of invalid parameters.
        let not_found = [code::RESOURCE_NOT_FOUND, code::INVALID_PARAMS].map(i64::from);
        let is_not_found = message.error_code().is_some_and(|code| not_found.contains(&code));
        return match is_not_found {
            true => Filtered::NotFound(message),
            false => Filtered::Unchanged(message),
        };
    }
    let contents = message.result_member("contents").filter(|raw| raw.shape() == Shape::Array);
    let Some(all) = contents.filter(|_| !has_variant(message.result_members(), "contents")) else {
        return Filtered::Malformed;
    };
    let readable = |part: &Raw<'_>| {
        let one = part.is_object() && !has_variant(part.members(), "uri");
        let uri = part.member("uri").filter(|_| one).and_then(|raw| raw.as_str());
        uri.is_some_and(|uri| uri == requested || may_read(envelope, server, &uri))
    };
    let parts: Vec<Raw<'_>> = all.elements().map(|(part, _)| part).collect();
    let kept: Vec<Raw<'_>> = parts.iter().copied().filter(readable).collect();
    if kept.len() == parts.len() {
        return Filtered::Unchanged(message);
    }
    if kept.is_empty() {
        return Filtered::NotFound(message);
    }
    let array = joined(kept.iter().map(|part| part.bytes()));
    changed(message.edit().set_result("contents", array).finish(), message)
}

/// Drops suggestions that would complete the URI of a resource that the agent may not read.
fn values(envelope: &Envelope, server: &str, completes: &Completes, message: Message) -> Filtered {
    let Some(completion) = message.result_member("completion") else {
        return Filtered::Unchanged(message);
    };
    let all: Vec<Raw<'_>> = completion
        .member("values")
        .map(|raw| raw.elements().map(|(value, _)| value).collect())
        .unwrap_or_default();
    let readable = |value: &Raw<'_>| match value.as_str() {
        Some(value) => completes.with(&value).is_some_and(|uri| uri.is_readable(envelope, server)),
        None => false,
    };
    let kept: Vec<Raw<'_>> = all.iter().copied().filter(readable).collect();
    if kept.len() == all.len() {
        return Filtered::Unchanged(message);
    }
    let values = joined(kept.iter().map(|value| value.bytes()));
    // The server's totals would count what was removed.
    let mut body = b"{\"values\":".to_vec();
    body.extend_from_slice(&values);
    body.extend_from_slice(format!(",\"total\":{},\"hasMore\":false}}", kept.len()).as_bytes());
    changed(message.edit().set_result("completion", body).finish(), message)
}

/// Whether a member occurs twice, or in another case: readers would disagree about it.
fn has_variant<'m>(members: impl Iterator<Item = RawMember<'m>>, name: &str) -> bool {
    let same = members.filter(|member| member.name().eq_ignore_ascii_case(name));
    let mut exact = 0;
    for member in same {
        match member.is(name) {
            true => exact += 1,
            false => return true,
        }
    }
    exact > 1
}

/// Percent-encodes everything but unreserved characters.
fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

fn joined<'b>(parts: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
    toolward_wire::list::array(parts).to_vec()
}

fn changed(body: bytes::Bytes, before: Message) -> Filtered {
    let longest = MAX_RESPONSE_BYTES.max(before.body().len());
    match Message::parse(body, longest, Sender::Server) {
        Ok(message) => Filtered::Changed(message),
        // Cannot happen: parts of a valid message were removed. Nothing is shown.
        Err(_) => Filtered::NotFound(before),
    }
}
