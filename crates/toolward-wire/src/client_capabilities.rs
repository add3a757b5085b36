//! The capabilities of a client that let a server send it requests.
//!
//! A small set instead of JSON: connections to servers are keyed by it, and policy removes members
//! from it. Anything else that a client declares (the `tasks` of 2025-11-25, `experimental`,
//! `roots.listChanged`, unknown extensions) is not in the set, so it is never declared to a server.

use crate::method::{Era, Revision};
use crate::names::TASKS_EXTENSION;
use crate::raw::Raw;

/// The requests that a client can handle.
///
/// ```
/// use toolward_wire::{ClientCapabilities, Raw, Revision};
///
/// let json = br#"{"elicitation": {"url": {}}, "roots": {"listChanged": true}, "experimental": {}}"#;
/// let declared = ClientCapabilities::read(Raw::scan(json, json.len()).unwrap());
/// assert!(declared.contains(ClientCapabilities::URL | ClientCapabilities::ROOTS));
/// assert_eq!(declared.to_json(Revision::R2025_11_25), r#"{"elicitation":{"url":{}},"roots":{}}"#);
/// assert_eq!(declared.to_json(Revision::R2025_03_26), r#"{"roots":{}}"#);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClientCapabilities(u8);

impl ClientCapabilities {
    pub const NONE: ClientCapabilities = ClientCapabilities(0);
    /// `elicitation/create` with a form.
    pub const FORM: ClientCapabilities = ClientCapabilities(1);
    /// `elicitation/create` with a URL.
    pub const URL: ClientCapabilities = ClientCapabilities(1 << 1);
    pub const ROOTS: ClientCapabilities = ClientCapabilities(1 << 2);
    pub const SAMPLING: ClientCapabilities = ClientCapabilities(1 << 3);
    /// `sampling/createMessage` with tools.
    pub const SAMPLING_TOOLS: ClientCapabilities = ClientCapabilities(1 << 4);
    /// The tasks extension of modern protocol versions: a call may be answered with a task.
    pub const TASKS: ClientCapabilities = ClientCapabilities(1 << 5);
    /// The members that legacy protocol versions have, which a session id has room for.
    const LEGACY: u8 = (1 << 5) - 1;

    /// Reads the `capabilities` of a client. Members of another type than the protocol's are
    /// ignored.
    pub fn read(capabilities: Raw<'_>) -> ClientCapabilities {
        let object = |raw: Raw<'_>, name: &str| raw.member(name).is_some_and(|raw| raw.is_object());
        let mut set = ClientCapabilities::NONE;
        if let Some(elicitation) = capabilities.member("elicitation").filter(|raw| raw.is_object())
        {
            let (form, url) = (object(elicitation, "form"), object(elicitation, "url"));
            // Without a mode, as before modes existed, only forms are meant.
            if form || !url {
                set = set | ClientCapabilities::FORM;
            }
            if url {
                set = set | ClientCapabilities::URL;
            }
        }
        if object(capabilities, "roots") {
            set = set | ClientCapabilities::ROOTS;
        }
        if let Some(sampling) = capabilities.member("sampling").filter(|raw| raw.is_object()) {
            set = set | ClientCapabilities::SAMPLING;
            if object(sampling, "tools") {
                set = set | ClientCapabilities::SAMPLING_TOOLS;
            }
        }
        if capabilities.member("extensions").is_some_and(|raw| object(raw, TASKS_EXTENSION)) {
            set = set | ClientCapabilities::TASKS;
        }
        set
    }

    pub fn contains(self, other: ClientCapabilities) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn intersects(self, other: ClientCapabilities) -> bool {
        self.0 & other.0 != 0
    }

    pub fn without(self, other: ClientCapabilities) -> ClientCapabilities {
        ClientCapabilities(self.0 & !other.0)
    }

    /// The set as it is stored in the session id of a legacy client.
    pub fn bits(self) -> u8 {
        self.in_era(Era::Legacy).0
    }

    pub fn from_bits(bits: u8) -> ClientCapabilities {
        ClientCapabilities(bits).in_era(Era::Legacy)
    }

    /// The members that can be declared in legacy or modern protocol versions.
    pub fn in_era(self, era: Era) -> ClientCapabilities {
        match era {
            Era::Legacy => ClientCapabilities(self.0 & ClientCapabilities::LEGACY),
            Era::Modern => self,
        }
    }

    /// The members that a protocol version knows, as the JSON of `capabilities`.
    pub fn to_json(self, revision: Revision) -> String {
        let mut members: Vec<&str> = Vec::new();
        let has_modes = revision >= Revision::R2025_11_25;
        let form = self.contains(Self::FORM) && revision >= Revision::R2025_06_18;
        match (form, self.contains(Self::URL) && has_modes) {
            (true, true) => members.push(r#""elicitation":{"form":{},"url":{}}"#),
            (true, false) => members.push(r#""elicitation":{}"#),
            (false, true) => members.push(r#""elicitation":{"url":{}}"#),
            (false, false) => {}
        }
        if self.contains(Self::ROOTS) {
            members.push(r#""roots":{}"#);
        }
        match (self.contains(Self::SAMPLING), self.contains(Self::SAMPLING_TOOLS) && has_modes) {
            (true, true) => members.push(r#""sampling":{"tools":{}}"#),
            (true, false) => members.push(r#""sampling":{}"#),
            (false, _) => {}
        }
        let tasks = format!(r#""extensions":{{"{TASKS_EXTENSION}":{{}}}}"#);
        if self.contains(Self::TASKS) && revision.era() == Era::Modern {
            members.push(&tasks);
        }
        format!("{{{}}}", members.join(","))
    }
}

impl std::ops::BitOr for ClientCapabilities {
    type Output = ClientCapabilities;

    fn bitor(self, other: ClientCapabilities) -> ClientCapabilities {
        ClientCapabilities(self.0 | other.0)
    }
}
