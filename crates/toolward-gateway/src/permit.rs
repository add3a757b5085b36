//! Permits: proof that a call was authorized, without which no request reaches a server.
//!
//! A [`Permit`] owns the request that was decided on, so that nothing can change it between the decision
//! and the server. Only [`Permit::issue`] creates one, and only from a decision that allows the call.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use toolward_policy::reason::About;
use toolward_policy::why::Why;
use toolward_policy::{Arguments, AskingRule, Decision, LimitedRule, Policy, Verdict};
use toolward_wire::{ClientCapabilities, LogLevel, Message, MethodRow, Sender, meta};

use crate::budget::Reservation;
use crate::client::ServerId;
use crate::metrics::rule_hits::{CounterIndex, Hits};

/// The decision about one call.
#[derive(Debug)]
pub struct CallDecision {
    pub server: Box<str>,
    /// The server's own name for the tool.
    pub original: Box<str>,
    pub decision: Decision,
    pub explanation: Arc<Explanation>,
    /// The decision that shadow rules would have made, if it differs.
    pub would: Option<Box<Would>>,
}

/// The decision that shadow rules would have made. It is recorded, and never affects a call.
#[derive(Debug, Clone)]
pub struct Would {
    pub decision: Decision,
    /// The rule that would have decided, by its path in its file.
    pub rule: Option<String>,
    /// The layer of that rule, by name.
    pub layer: Option<String>,
}

impl Would {
    /// The decision that the shadow rules would have made instead of `actual`; `None` if the verdict is the same.
    pub(crate) fn instead_of(
        actual: &Decision,
        shadow: &Policy,
        would: Decision,
    ) -> Option<Box<Would>> {
        if actual.verdict == would.verdict {
            return None;
        }
        let layer = would.layer.and_then(|at| shadow.layer_names().nth(usize::from(at)));
        let rule = shadow.rule(&would).map(|rule| rule.path);
        Some(Box::new(Would { decision: would, rule, layer: layer.map(String::from) }))
    }
}

/// The explanation of a decision, for audit records.
#[derive(Debug)]
pub struct Explanation {
    /// The counter of the rule.
    pub(crate) hit: CounterIndex,
    /// The rule that decided, by its path in its file.
    pub rule: Option<String>,
    /// The text of the rule, and its position.
    pub text: Option<(String, String)>,
    pub reason: String,
    /// The members of an audit record, serialized at first use.
    recorded: OnceLock<Box<[u8]>>,
}

impl Explanation {
    pub(crate) fn new(
        policy: &Policy,
        hits: &Hits,
        decision: &Decision,
        about: About<'_>,
    ) -> Arc<Explanation> {
        let rule = policy.rule(decision);
        let text = rule.as_ref().map(|rule| (rule.written(), rule.location()));
        Arc::new(Explanation {
            hit: hits.place(decision),
            rule: rule.map(|rule| rule.path),
            text,
            reason: policy.reason(decision, about),
            recorded: OnceLock::new(),
        })
    }

    /// The same decision with another reason.
    pub(crate) fn because(&self, reason: &str) -> Arc<Explanation> {
        Arc::new(Explanation {
            hit: self.hit,
            rule: self.rule.clone(),
            text: self.text.clone(),
            reason: reason.into(),
            recorded: OnceLock::new(),
        })
    }

    /// The members of an audit record. `serialize` runs once: most explanations are shared by many calls.
    pub(crate) fn recorded(&self, serialize: impl FnOnce(&Explanation) -> Box<[u8]>) -> &[u8] {
        self.recorded.get_or_init(|| serialize(self))
    }
}

/// A call as it was decided on, for [`Permit::issue`].
pub(crate) struct DecidedCall {
    pub(crate) decision: CallDecision,
    /// The engine's reason, if it does not allow the call.
    pub(crate) why: Option<Why>,
    pub(crate) server: ServerId,
    /// The name that the client used.
    pub(crate) exposed: Box<str>,
    pub(crate) action: Option<String>,
    pub(crate) message: Message,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) limited: Vec<LimitedRule>,
    pub(crate) asks: Asks,
    /// The tool can only be called as a task.
    pub(crate) needs_task: bool,
    /// The server's own name of the tool that made a task, if the request is about one.
    pub(crate) made_by: Option<Box<str>>,
}

/// The rules that ask about a call, and the definition that an approval is bound to.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    pub(crate) rules: Vec<AskingRule>,
    /// A digest of the definition of the tool or prompt.
    pub(crate) definition: Option<Arc<str>>,
}

/// An authorized call.
#[derive(Debug)]
pub struct Permit {
    server: ServerId,
    /// `Mcp-Param-*` headers, which repeat arguments over HTTP.
    headers: Vec<(String, String)>,
    message: Message,
    exposed: Box<str>,
    action: Option<String>,
    decision: CallDecision,
    /// Rate-limited rules that allow the call.
    limited: Vec<LimitedRule>,
    asks: Asks,
    /// The tool can only be called as a task.
    needs_task: bool,
    /// The server's own name of the tool that made a task, if the request is about one.
    made_by: Option<Box<str>>,
}

impl Permit {
    /// Issues a permit if the decision allows the call, or if decisions are not enforced.
    pub(crate) fn issue(call: DecidedCall, enforced: bool) -> Result<Permit, Box<DeniedCall>> {
        let DecidedCall { decision, why, server, exposed, action, message, .. } = call;
        let (headers, limited) = (call.headers, call.limited);
        let (needs_task, made_by) = (call.needs_task, call.made_by);
        // If a rule asks, the guards wait for a person.
        let is_permitted = match decision.decision.verdict {
            Verdict::Allow => true,
            Verdict::Ask => !call.asks.rules.is_empty(),
            Verdict::Depends | Verdict::Deny => false,
        };
        if enforced && !is_permitted {
            let decision = Some(decision);
            return Err(Box::new(DeniedCall { why, action, decision, message }));
        }
        Ok(Permit {
            server,
            headers,
            message,
            exposed,
            action,
            decision,
            limited,
            // Decisions that are not enforced do not ask for approval.
            asks: if enforced { call.asks } else { Asks::default() },
            needs_task,
            made_by,
        })
    }

    /// Withdraws the permit: no person is asked about this request, although a rule asks.
    pub(crate) fn withdraw(self) -> Box<DeniedCall> {
        let Permit { decision, action, message, .. } = self;
        Box::new(DeniedCall { why: None, action, decision: Some(decision), message })
    }

    /// The server that the call was decided for.
    pub(crate) fn server(&self) -> ServerId {
        self.server
    }

    /// The rules that ask about the call; empty if no person has to approve it.
    pub(crate) fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Rate-limited rules that allow the call.
    pub(crate) fn limited(&self) -> &[LimitedRule] {
        &self.limited
    }

    /// Whether the tool can only be called as a task.
    pub(crate) fn needs_task(&self) -> bool {
        self.needs_task
    }

    pub fn decision(&self) -> &CallDecision {
        &self.decision
    }

    /// The server's own name of the tool, prompt or resource; for a request about a task, of the tool that made it.
    pub(crate) fn tool(&self) -> &str {
        self.made_by.as_deref().unwrap_or(&self.decision.original)
    }

    /// The same permit for a request with fewer responses of the client: those under these keys. `None` if there is no
    /// such request.
    pub(crate) fn with_responses_to(self, keys: &[String]) -> Option<Permit> {
        let all = self.message.param("inputResponses")?;
        let kept = all.kept(|member| keys.iter().any(|key| member.is(key)));
        let body = self.message.edit().set_param("inputResponses", kept).finish();
        let message = Message::parse(body, usize::MAX, Sender::Client).ok()?;
        Some(Permit { message, ..self })
    }

    /// The same permit for a request in another trace context: that of the gateway's own span.
    pub(crate) fn with_trace_parent(self, parent: &str) -> Permit {
        let value = format!("\"{parent}\"").into_bytes();
        let body = self.message.edit().set_meta(meta::TRACE_PARENT, value).finish();
        match Message::parse(body, usize::MAX, Sender::Client) {
            Ok(message) => Permit { message, ..self },
            Err(_) => self,
        }
    }

    /// The name that the client used.
    pub fn exposed(&self) -> &str {
        &self.exposed
    }

    pub fn action(&self) -> Option<&str> {
        self.action.as_deref()
    }

    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Consumes the permit and returns the request for the server, with the server's own name for the
    /// tool.
    pub(crate) fn spend(self, row: &'static MethodRow) -> Outgoing {
        let original = self.decision.original;
        let name = (*self.exposed != *original).then_some(original);
        let (longest, room) = (None, None);
        let (message, headers) = (self.message, self.headers);
        let declared = ClientCapabilities::NONE;
        let (log_level, may_be_task) = (None, false);
        Outgoing { message, row, name, headers, longest, room, declared, log_level, may_be_task }
    }
}

/// A call that is not authorized.
#[derive(Debug)]
pub struct DeniedCall {
    /// The engine's reason; `None` if the agent's listing does not contain the tool.
    pub why: Option<Why>,
    pub action: Option<String>,
    /// `None` if the agent's listing does not contain the tool.
    pub decision: Option<CallDecision>,
    pub message: Message,
}

impl DeniedCall {
    /// Whether it is denied only because a person would have to be asked.
    pub(crate) fn asks(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.decision.verdict == Verdict::Ask)
    }
}

/// A request to a server, before it has an id there.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) row: &'static MethodRow,
    /// The server's own name for the tool, if the client used another one.
    pub(crate) name: Option<Box<str>>,
    /// `Mcp-Param-*` headers, for servers over HTTP.
    pub(crate) headers: Vec<(String, String)>,
    /// The size limit of the response, if it differs from the connection's.
    pub(crate) longest: Option<usize>,
    /// The memory of the response, which grows as it arrives. `None` for the gateway's own requests.
    pub(crate) room: Option<Arc<Reservation>>,
    /// The client capabilities that are declared to a modern server.
    pub(crate) declared: ClientCapabilities,
    /// The log level of the client's session, if it set one.
    pub(crate) log_level: Option<LogLevel>,
    /// The server may answer with a task, if the client asks for one.
    pub(crate) may_be_task: bool,
}

impl Outgoing {
    /// The same request, for a task.
    pub(crate) fn into_task(self) -> Outgoing {
        let body = self.message.edit().set_param("task", &b"{}"[..]).finish();
        match Message::parse(body, usize::MAX, Sender::Client) {
            Ok(message) => Outgoing { message, ..self },
            Err(_) => self,
        }
    }
}

/// Arguments as raw JSON: the policy reads the same bytes that are forwarded.
pub(crate) struct RawArguments<'b>(pub(crate) toolward_wire::Arguments<'b>);

impl Arguments for RawArguments<'_> {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        for (name, value) in self.0.members() {
            show(&name, value.as_str().as_deref());
        }
    }

    fn to_json(&self) -> Value {
        self.0.to_json()
    }

    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str)) {
        if let Some(value) = self.0.at(path.iter().map(|key| &**key)) {
            value.numbers(show);
        }
    }
}
