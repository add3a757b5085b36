//! Decisions about requests of servers to clients: sampling, elicitation, roots.

use bytes::Bytes;
use toolward_policy::text::is_invisible;
use toolward_policy::{Call, Subject};
use toolward_wire::ClientCapabilities;
use toolward_wire::input_requests::InputRequest;

use super::Active;
use crate::client::{Caller, Client, Scope};
use crate::upstream::Server;

impl Active {
    /// The client capabilities that are declared to a server. Sampling and roots are left out if the
    /// policy denies them. Elicitation is not: a server that assumes that no one can be asked skips its
    /// own confirmations. Configured roots are declared in addition, whatever the client supports.
    pub(crate) fn declared(&self, client: &Client, server: &Server) -> ClientCapabilities {
        let mut declared = client.declared;
        for (name, capability) in [
            ("roots", ClientCapabilities::ROOTS),
            ("sampling", ClientCapabilities::SAMPLING | ClientCapabilities::SAMPLING_TOOLS),
        ] {
            if declared.intersects(capability)
                && (!self.allows_request(&client.caller, server.name(), name)
                    || (name == "roots" && server.definition.roots.is_some()))
            {
                declared = declared.without(capability);
            }
        }
        // A call inside `execute_tool` has another name than its tool, so a task of it could not be found again.
        match client.scope {
            Scope::Discovery => declared.without(ClientCapabilities::TASKS),
            _ => declared,
        }
    }

    /// Decides whether a request of a server may reach a client: its parameters, if they have to change. The error is
    /// the reason for the audit log.
    pub(crate) fn client_request(
        &self,
        client: &Client,
        server: &str,
        asked: &InputRequest<'_>,
    ) -> Result<Option<Bytes>, &'static str> {
        let name = asked.name().ok_or("no such request exists in the protocol")?;
        if !client.declared.contains(asked.needs()) {
            return Err("the client did not declare that it supports the request");
        }
        if !self.allows_request(&client.caller, server, name) {
            return Err("denied by policy");
        }
        if name == "elicitation.url" && !asked.has_web_url() {
            return Err("its URL is not a web address");
        }
        let is_aggregate = !matches!(client.scope, Scope::One(_));
        if let Some(context) = asked.context() {
            let is_own = context == "thisServer" && !is_aggregate;
            let named = match &*context {
                "thisServer" => "sampling.thisServer",
                _ => "sampling.allServers",
            };
            if !is_own && !self.allows_request(&client.caller, server, named) {
                return Err("the context of other servers is denied by policy");
            }
        }
        let prefix = if is_aggregate { format!("[{server}] ") } else { String::new() };
        Ok(asked.with_message(|text| visible(&prefix, text)))
    }

    /// Whether no request of any server that a client may use is denied.
    pub(crate) fn relays_everything(&self, client: &Client) -> bool {
        let all = ["elicitation.form", "elicitation.url", "roots", "sampling"];
        let allows =
            |server: &str| all.iter().all(|name| self.allows_request(&client.caller, server, name));
        self.usable(client).iter().all(|server| server.is_own() || allows(server.name()))
    }

    fn allows_request(&self, caller: &Caller, server: &str, name: &str) -> bool {
        let cell = self.policy.cell(caller.agent.as_deref(), server, Subject::ClientRequest(name));
        !self.enforced || cell.decide(caller.policy(), &Call::default()).is_allowed()
    }
}

/// A text that a person will read in the client, with the server's name in front and without characters that could
/// hide or reorder parts of it.
fn visible(prefix: &str, text: &str) -> String {
    let mut out = String::from(prefix);
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || is_invisible(c) => {
                out.push_str(&format!("<U+{:04X}>", c as u32))
            }
            c => out.push(c),
        }
    }
    out
}
