//! The method table: one row for each MCP method.
//!
//! Differences between methods are data in this table, not code paths. A method that the table does
//! not list for a sender and a protocol version is rejected as unknown.

use std::fmt;

/// A published protocol version. Versions compare by date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
}

/// The two families of protocol versions.
///
/// Legacy versions start with an `initialize` handshake. In modern ones every request is
/// self-contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    Legacy,
    Modern,
}

impl Revision {
    pub const ALL: [Revision; 5] = [
        Self::R2024_11_05,
        Self::R2025_03_26,
        Self::R2025_06_18,
        Self::R2025_11_25,
        Self::R2026_07_28,
    ];

    /// The newest legacy or modern version.
    pub const fn newest(era: Era) -> Revision {
        match era {
            Era::Legacy => Revision::R2025_11_25,
            Era::Modern => Revision::R2026_07_28,
        }
    }

    pub fn parse(text: &str) -> Option<Revision> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::R2024_11_05 => "2024-11-05",
            Self::R2025_03_26 => "2025-03-26",
            Self::R2025_06_18 => "2025-06-18",
            Self::R2025_11_25 => "2025-11-25",
            Self::R2026_07_28 => "2026-07-28",
        }
    }

    pub const fn era(self) -> Era {
        match self {
            Self::R2026_07_28 => Era::Modern,
            _ => Era::Legacy,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    Client,
    Server,
}

/// The senders that may use a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    FromClient,
    FromServer,
    Both,
}

impl Direction {
    pub fn admits(self, sender: Sender) -> bool {
        match self {
            Self::FromClient => sender == Sender::Client,
            Self::FromServer => sender == Sender::Server,
            Self::Both => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    Request,
    Notification,
}

/// The position of the name of a method's subject, such as the tool of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameAt {
    Nowhere,
    /// A required string member of `params`.
    Param(&'static str),
    /// `params.ref`: the `name` of a prompt or the `uri` of a template.
    Ref,
}

/// The subject that policy decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySubject {
    /// None: the method is about the protocol itself.
    Nothing,
    ToolList,
    Tool,
    PromptList,
    Prompt,
    ResourceList,
    TemplateList,
    Resource,
    Completion,
    Task,
    /// A request from a server to the client: sampling, elicitation, roots.
    ClientRequest,
}

/// A row of the method table.
#[derive(Debug, PartialEq, Eq)]
pub struct MethodRow {
    pub name: &'static str,
    pub direction: Direction,
    pub kind: MethodKind,
    /// The first and the last revision that have the method.
    pub revisions: (Revision, Revision),
    pub name_at: NameAt,
    /// Whether a modern result has `ttlMs` and `cacheScope`.
    pub cacheable: bool,
    /// Whether the server may request input from the client before it responds.
    pub may_request_input: bool,
    pub subject: PolicySubject,
}

impl MethodRow {
    pub fn is_in(&self, era: Era) -> bool {
        match era {
            Era::Legacy => self.revisions.0.era() == Era::Legacy,
            Era::Modern => self.revisions.1.era() == Era::Modern,
        }
    }

    pub fn is_request(&self) -> bool {
        self.kind == MethodKind::Request
    }
}

/// Looks up a method that `sender` may use in `era`.
///
/// ```
/// use toolward_wire::method::{Era, Sender, lookup};
///
/// assert!(lookup("tools/call", Sender::Client, Era::Modern).is_some());
/// assert!(lookup("tools/call", Sender::Server, Era::Modern).is_none());
/// assert!(lookup("initialize", Sender::Client, Era::Modern).is_none());
/// ```
pub fn lookup(name: &str, sender: Sender, era: Era) -> Option<&'static MethodRow> {
    lookup_bytes(name.as_bytes(), sender, era)
}

pub(crate) fn lookup_bytes(name: &[u8], sender: Sender, era: Era) -> Option<&'static MethodRow> {
    METHODS
        .iter()
        .find(|row| row.name.as_bytes() == name && row.direction.admits(sender) && row.is_in(era))
}

/// Looks up a request that a server may send to a client: a legacy request, or an entry of a modern
/// `inputRequests`.
pub fn server_request(name: &str) -> Option<&'static MethodRow> {
    METHODS.iter().find(|row| row.name == name && row.subject == PolicySubject::ClientRequest)
}

/// All rows of the table.
pub fn rows() -> &'static [MethodRow] {
    METHODS
}

use Direction::{Both, FromClient, FromServer};
use PolicySubject as On;
use Revision::{
    R2024_11_05 as FIRST, R2025_06_18, R2025_11_25 as LAST_LEGACY, R2026_07_28 as MODERN,
};

const ALL: (Revision, Revision) = (FIRST, MODERN);
const LEGACY: (Revision, Revision) = (FIRST, LAST_LEGACY);
const ONLY_MODERN: (Revision, Revision) = (MODERN, MODERN);
const TASKS_LEGACY: (Revision, Revision) = (LAST_LEGACY, LAST_LEGACY);

const fn request(
    name: &'static str,
    direction: Direction,
    revisions: (Revision, Revision),
    subject: PolicySubject,
) -> MethodRow {
    MethodRow {
        name,
        direction,
        kind: MethodKind::Request,
        revisions,
        name_at: NameAt::Nowhere,
        cacheable: false,
        may_request_input: false,
        subject,
    }
}

const fn notification(
    name: &'static str,
    direction: Direction,
    revisions: (Revision, Revision),
) -> MethodRow {
    let row = request(name, direction, revisions, PolicySubject::Nothing);
    MethodRow { kind: MethodKind::Notification, ..row }
}

impl MethodRow {
    const fn at(self, param: &'static str) -> MethodRow {
        MethodRow { name_at: NameAt::Param(param), ..self }
    }

    const fn at_ref(self) -> MethodRow {
        MethodRow { name_at: NameAt::Ref, ..self }
    }

    const fn cacheable(self) -> MethodRow {
        MethodRow { cacheable: true, ..self }
    }

    const fn may_request_input(self) -> MethodRow {
        MethodRow { may_request_input: true, ..self }
    }
}

/// Sorted by frequency, most frequent first.
static METHODS: &[MethodRow] = &[
    request("tools/call", FromClient, ALL, On::Tool).at("name").may_request_input(),
    request("tools/list", FromClient, ALL, On::ToolList).cacheable(),
    notification("notifications/progress", FromServer, ALL),
    notification("notifications/progress", FromClient, LEGACY),
    notification("notifications/cancelled", Both, ALL),
    request("resources/read", FromClient, ALL, On::Resource)
        .at("uri")
        .cacheable()
        .may_request_input(),
    request("prompts/get", FromClient, ALL, On::Prompt).at("name").may_request_input(),
    request("prompts/list", FromClient, ALL, On::PromptList).cacheable(),
    request("resources/list", FromClient, ALL, On::ResourceList).cacheable(),
    request("resources/templates/list", FromClient, ALL, On::TemplateList).cacheable(),
    request("completion/complete", FromClient, ALL, On::Completion).at_ref(),
    request("initialize", FromClient, LEGACY, On::Nothing),
    notification("notifications/initialized", FromClient, LEGACY),
    request("ping", Both, LEGACY, On::Nothing),
    request("server/discover", FromClient, ONLY_MODERN, On::Nothing).cacheable(),
    request("subscriptions/listen", FromClient, ONLY_MODERN, On::Nothing),
    request("resources/subscribe", FromClient, LEGACY, On::Resource).at("uri"),
    request("resources/unsubscribe", FromClient, LEGACY, On::Resource).at("uri"),
    request("logging/setLevel", FromClient, LEGACY, On::Nothing),
    request("tasks/get", FromClient, (LAST_LEGACY, MODERN), On::Task).at("taskId"),
    request("tasks/cancel", FromClient, (LAST_LEGACY, MODERN), On::Task).at("taskId"),
    request("tasks/update", FromClient, ONLY_MODERN, On::Task).at("taskId"),
    request("tasks/result", FromClient, TASKS_LEGACY, On::Task).at("taskId").may_request_input(),
    request("tasks/list", FromClient, TASKS_LEGACY, On::Task),
    request("tasks/get", FromServer, TASKS_LEGACY, On::Task).at("taskId"),
    request("tasks/cancel", FromServer, TASKS_LEGACY, On::Task).at("taskId"),
    request("tasks/result", FromServer, TASKS_LEGACY, On::Task).at("taskId"),
    request("tasks/list", FromServer, TASKS_LEGACY, On::Task),
    request("sampling/createMessage", FromServer, LEGACY, On::ClientRequest),
    request("elicitation/create", FromServer, (R2025_06_18, LAST_LEGACY), On::ClientRequest),
    request("roots/list", FromServer, LEGACY, On::ClientRequest),
    notification("notifications/message", FromServer, ALL),
    notification("notifications/tools/list_changed", FromServer, ALL),
    notification("notifications/prompts/list_changed", FromServer, ALL),
    notification("notifications/resources/list_changed", FromServer, ALL),
    notification("notifications/resources/updated", FromServer, ALL).at("uri"),
    notification("notifications/subscriptions/acknowledged", FromServer, ONLY_MODERN),
    notification("notifications/tasks", FromServer, ONLY_MODERN).at("taskId"),
    notification("notifications/tasks/status", Both, TASKS_LEGACY).at("taskId"),
    notification("notifications/elicitation/complete", FromServer, TASKS_LEGACY)
        .at("elicitationId"),
    notification("notifications/roots/list_changed", FromClient, LEGACY),
];
