//! What an agent may see and call. Listing and calling come from the same cells.

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::Value;
use toolward_policy::call::stated_action;
use toolward_policy::reason::About;
use toolward_policy::refusal::Offer;
use toolward_policy::{Arguments, Call, Caller, Cell, Decision, Policy, Verdict};
use toolward_wire::{Message, list};

use crate::catalogue::Catalogue;

/// Who calls, as the gateway established it.
#[derive(Debug, Clone)]
pub struct Client {
    pub agent: Option<String>,
    /// How the name was established.
    pub identity: &'static str,
}

impl Client {
    pub fn caller(&self) -> Caller<'_> {
        Caller { agent: self.agent.as_deref(), claims: None }
    }
}

/// What one agent may see of one server. What is hidden from it is not in here.
#[derive(Debug)]
pub struct View {
    server: Box<str>,
    shown: HashMap<Box<str>, Seen>,
    array: Bytes,
    allowed: Vec<String>,
    /// Names that the server offers and the agent does not see; for the record only.
    removed: Vec<String>,
    names: Vec<String>,
}

/// A tool under the name that clients use.
#[derive(Debug)]
struct Seen {
    original: Box<str>,
    cell: Cell,
}

impl View {
    pub fn new(policy: &Policy, client: &Client, server: &str, catalogue: &Catalogue) -> View {
        let caller = client.caller();
        let row = policy.row(caller.agent, server, catalogue.tools());
        let exposure = policy.exposure(server);
        let mut view = View {
            server: server.into(),
            shown: HashMap::new(),
            array: Bytes::new(),
            allowed: policy.allowed_tools(caller, &[Offer { server, row: &row }]),
            removed: Vec::new(),
            names: Vec::new(),
        };
        let mut entries = Vec::new();
        for ((tool, cell), entry) in row.iter().zip(catalogue.entries()) {
            let listing = cell.list(caller);
            let exposed = match exposure {
                None => Some((tool.name().into(), None)),
                Some(exposure) => exposure.show(tool.name()).map(|s| (s.name, s.description)),
            };
            let Some((name, description)) =
                exposed.filter(|_| listing.decision.verdict != Verdict::Deny)
            else {
                view.removed.push(tool.name().into());
                continue;
            };
            let mut edit = entry.edit();
            if *name != *tool.name() {
                edit = edit.name(&name);
            }
            if let Some(description) = &description {
                edit = edit.description(description);
            }
            if let Some(actions) = &listing.actions {
                let keep: Vec<&str> = actions.iter().map(String::as_str).collect();
                for key in policy.action_keys(server, tool.name()) {
                    edit = edit.keep_enum(key, &keep);
                }
            }
            entries.push(edit.finish());
            view.names.push(name.to_string());
            let seen = Seen { original: tool.name().into(), cell: cell.clone() };
            view.shown.insert(name, seen);
        }
        view.array = list::array(entries.iter().map(|entry| &entry[..]));
        view
    }

    /// The tools as a JSON array: the server's own bytes, but for what the gateway owns.
    pub fn array(&self) -> &Bytes {
        &self.array
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Names that are shown, and names that are not.
    pub fn names(&self) -> (&[String], &[String]) {
        (&self.names, &self.removed)
    }

    /// What the agent may use, in the policy's words.
    pub fn allowed(&self) -> &[String] {
        &self.allowed
    }

    /// Decides about a call. A name that is not shown reads like one that does not exist.
    pub fn decide(
        &self,
        policy: &Policy,
        client: &Client,
        name: &str,
        message: Message,
    ) -> Result<Permit, Box<Refused>> {
        let arguments = message.arguments().map(RawArguments);
        let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
        let action = stated_action(&call);
        let Some(seen) = self.shown.get(name) else {
            let refused = Refused { listed: false, action, decided: None, message };
            return Err(Box::new(refused));
        };
        let decision = seen.cell.decide(client.caller(), &call);
        let about = About {
            agent: client.agent.as_deref(),
            server: &self.server,
            subject: &seen.original,
            action: action.as_deref(),
        };
        let reason = policy.reason(&decision, about);
        let decided = Decided { original: seen.original.clone(), decision, reason };
        match decision.verdict {
            Verdict::Allow => {
                let exposed = name.into();
                Ok(Permit { message, exposed, action, decided })
            }
            // Nobody can be asked yet, so that asking refuses.
            _ => {
                let decided = Some(decided);
                Err(Box::new(Refused { listed: true, action, decided, message }))
            }
        }
    }
}

/// What was decided about a tool that the agent sees.
#[derive(Debug)]
pub struct Decided {
    pub original: Box<str>,
    pub decision: Decision,
    pub reason: String,
}

/// A call that may be forwarded. Only [`View::decide`] makes one, and it owns the request that was
/// decided on.
#[derive(Debug)]
pub struct Permit {
    message: Message,
    exposed: Box<str>,
    action: Option<String>,
    decided: Decided,
}

impl Permit {
    pub fn decided(&self) -> &Decided {
        &self.decided
    }

    pub fn exposed(&self) -> &str {
        &self.exposed
    }

    pub fn action(&self) -> Option<&str> {
        self.action.as_deref()
    }

    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Gives up the permit for the frozen request, and the name under which the server knows the
    /// tool where that is another one.
    pub(crate) fn spend(self) -> (Message, Option<Box<str>>) {
        let renamed = (*self.exposed != *self.decided.original).then_some(self.decided.original);
        (self.message, renamed)
    }
}

/// A call that is not forwarded.
#[derive(Debug)]
pub struct Refused {
    /// The tool is in the agent's listing.
    pub listed: bool,
    pub action: Option<String>,
    pub decided: Option<Decided>,
    pub message: Message,
}

/// Arguments as the scanner left them: policy reads the bytes that are forwarded.
struct RawArguments<'b>(toolward_wire::Arguments<'b>);

impl Arguments for RawArguments<'_> {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        for (name, value) in self.0.members() {
            show(&name, value.as_str().as_deref());
        }
    }

    fn to_json(&self) -> Value {
        self.0.to_json()
    }
}
