//! Requests of a server to the client: legacy requests, and the entries of a modern
//! `inputRequests`.
//!
//! Both have a method and parameters, and both are decided alike. Parameters are passed on byte for
//! byte, except for the text that a person reads.

use std::borrow::Cow;

use bytes::Bytes;

use crate::client_capabilities::ClientCapabilities;
use crate::edit::Splice;
use crate::message::Message;
use crate::raw::Raw;
use crate::string;

/// A request of a server to the client.
///
/// ```
/// use toolward_wire::{ClientCapabilities, Raw};
/// use toolward_wire::input_requests::InputRequest;
///
/// let entry = br#"{"method": "elicitation/create", "params": {"message": "Sure?", "n": 1.0}}"#;
/// let request = InputRequest::read(Raw::scan(entry, entry.len()).unwrap()).unwrap();
/// assert_eq!(request.name(), Some("elicitation.form"));
/// assert_eq!(request.needs(), ClientCapabilities::FORM);
/// let params = request.with_message(|text| format!("[db] {text}")).unwrap();
/// assert_eq!(&params[..], br#"{"message": "[db] Sure?", "n": 1.0}"#);
/// ```
#[derive(Debug, Clone)]
pub struct InputRequest<'m> {
    pub method: Cow<'m, str>,
    pub params: Option<Raw<'m>>,
}

impl<'m> InputRequest<'m> {
    /// Reads an entry of `inputRequests`. `None` if it has no method, or parameters that are not an
    /// object.
    pub fn read(entry: Raw<'m>) -> Option<InputRequest<'m>> {
        // A member that occurs twice, or in another case, would be read differently by the client.
        let is_ambiguous = |known: &str| {
            let mut same = entry.members().filter(|one| one.name().eq_ignore_ascii_case(known));
            same.next().is_some_and(|one| !one.is(known)) || same.next().is_some()
        };
        if is_ambiguous("method") || is_ambiguous("params") {
            return None;
        }
        let method = entry.member("method")?.as_str()?;
        InputRequest::new(method, entry.member("params"))
    }

    /// Reads a legacy request.
    pub fn of(message: &'m Message) -> Option<InputRequest<'m>> {
        InputRequest::new(message.method()?, message.params())
    }

    /// An entry of the error with which a server requires the user to visit URLs first. `None` if it is not a request to
    /// visit one.
    pub fn of_visit(entry: Raw<'m>) -> Option<InputRequest<'m>> {
        let request = InputRequest::new("elicitation/create".into(), Some(entry))?;
        (request.name() == Some("elicitation.url")).then_some(request)
    }

    fn new(method: Cow<'m, str>, params: Option<Raw<'m>>) -> Option<InputRequest<'m>> {
        let is_readable = params.is_none_or(|params| params.is_object() && !is_ambiguous(params));
        is_readable.then_some(InputRequest { method, params })
    }

    fn param(&self, name: &str) -> Option<Raw<'m>> {
        self.params?.member(name)
    }

    fn is_url(&self) -> bool {
        self.param("mode").is_some_and(|mode| !mode.is_str("form"))
    }

    /// Whether its URL is one that a browser opens as a page.
    pub fn has_web_url(&self) -> bool {
        let url = self.param("url").and_then(Raw::as_str).unwrap_or_default();
        let url = url.to_ascii_lowercase();
        url.starts_with("https://") || url.starts_with("http://")
    }

    /// The server's id of a request to visit a URL, by which it announces the end of the visit.
    pub fn elicitation_id(&self) -> Option<Cow<'m, str>> {
        self.param("elicitationId").filter(|_| self.name() == Some("elicitation.url"))?.as_str()
    }

    /// The name under which policy knows the request. `None` for a method that a client does not
    /// have.
    pub fn name(&self) -> Option<&'static str> {
        match &*self.method {
            "sampling/createMessage" => Some("sampling"),
            "roots/list" => Some("roots"),
            "elicitation/create" if self.is_url() => Some("elicitation.url"),
            "elicitation/create" => Some("elicitation.form"),
            _ => None,
        }
    }

    /// The capability that the client must have declared.
    pub fn needs(&self) -> ClientCapabilities {
        match self.name() {
            Some("roots") => ClientCapabilities::ROOTS,
            Some("elicitation.url") => ClientCapabilities::URL,
            Some("elicitation.form") => ClientCapabilities::FORM,
            Some(_) if self.param("tools").is_some() => {
                ClientCapabilities::SAMPLING | ClientCapabilities::SAMPLING_TOOLS
            }
            _ => ClientCapabilities::SAMPLING,
        }
    }

    /// The servers whose context a sampling request asks for: `thisServer` or `allServers`.
    pub fn context(&self) -> Option<Cow<'m, str>> {
        let context = self.param("includeContext").filter(|_| self.name() == Some("sampling"))?;
        context.as_str().filter(|servers| servers != "none")
    }

    /// The parameters with another `message`. `None` if there is no message to change.
    pub fn with_message(&self, change: impl FnOnce(&str) -> String) -> Option<Bytes> {
        let params = self.params.filter(|_| &*self.method == "elicitation/create")?;
        let member = params.members().find(|member| member.is("message"))?;
        let text = member.value.as_str()?;
        let changed = change(&text);
        if changed == text {
            return None;
        }
        let mut splice = Splice::new();
        splice.replace(member.value_span, string::quote(&changed));
        Some(splice.apply(params.bytes()).into())
    }
}

/// Parameters that are read here.
const READ: &[&str] =
    &["mode", "url", "message", "requestedSchema", "includeContext", "tools", "elicitationId"];

/// Whether a parameter occurs twice, in another case, or with a type that clients would interpret in their own way.
fn is_ambiguous(params: Raw<'_>) -> bool {
    let mut seen = Vec::new();
    params.members().any(|member| {
        let name = member.name();
        let Some(read) = READ.iter().find(|read| read.eq_ignore_ascii_case(&name)) else {
            return false;
        };
        let is_text =
            matches!(*read, "requestedSchema" | "tools") || member.value.as_str().is_some();
        let is_new = !seen.contains(read);
        seen.push(*read);
        *read != name || !is_text || !is_new
    })
}

/// The entries of `inputRequests` in a modern result, or in a notification about a task. `None` if one
/// of them is malformed: then the message cannot be decided on. Without `inputRequests`, it has none.
pub fn entries(message: &Message) -> Option<Vec<(Cow<'_, str>, InputRequest<'_>)>> {
    let requests =
        message.result_member("inputRequests").or_else(|| message.param("inputRequests"));
    let Some(requests) = requests else { return Some(Vec::new()) };
    if !requests.is_object() {
        return None;
    }
    let mut entries = Vec::new();
    for member in requests.members() {
        let entry = Some(member.value).filter(|value| value.is_object())?;
        entries.push((member.name(), InputRequest::read(entry)?));
    }
    Some(entries)
}
