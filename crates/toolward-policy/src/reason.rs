//! Decisions in words: the rule behind a decision, and one sentence.

use crate::decision::{Decision, Kind, RuleRef, Side, Step, Verdict};
use crate::layer::Rules;
use crate::policy::Policy;
use crate::rate::Rate;
use crate::source::{Place, Wording};
use crate::text::brief;

/// The rule behind a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleText {
    /// The rule's path in its file: `agents.dev.deny.tools.db[0]`.
    pub path: String,
    /// The selector as written.
    pub selector: String,
    /// The condition as written.
    pub when: Option<String>,
    /// Its rate limit.
    pub limit: Option<Rate>,
    /// The role that the rule belongs to; `None` for an agent's own rule.
    pub role: Option<String>,
    /// The name of its layer.
    pub layer: String,
    /// `line: 0` if the rule does not come from a file.
    pub place: Place,
}

impl RuleText {
    /// The rule as a person would write it again: `get_* when args.x > 1`.
    pub fn written(&self) -> String {
        match &self.when {
            Some(when) => format!("{} when {when}", self.selector),
            None => self.selector.clone(),
        }
    }

    /// `file:line:column`, or the path of a rule that does not come from a file.
    pub fn location(&self) -> String {
        match self.place {
            Place { line: 0, .. } => self.path.clone(),
            Place { line, column } => format!("{}:{line}:{column}", self.layer),
        }
    }
}

/// The subject of a decision, for its sentence.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub agent: Option<&'a str>,
    pub server: &'a str,
    /// The name of a tool, prompt or resource.
    pub subject: &'a str,
    pub action: Option<&'a str>,
}

impl Policy {
    /// The rule that a decision names.
    pub fn rule(&self, decision: &Decision) -> Option<RuleText> {
        self.rule_at(decision.layer?, decision.rule?)
    }

    /// The rule at an address, as in an [`Explanation`](crate::explain::Explanation).
    pub fn rule_at(&self, layer: u16, at: RuleRef) -> Option<RuleText> {
        let layer = self.layers.get(usize::from(layer))?;
        let rule = layer.rule(at)?;
        Some(RuleText {
            path: layer.path(at),
            selector: rule.selector.written().into(),
            when: rule.when.as_ref().map(|when| when.source().into()),
            limit: rule.limit,
            role: layer.role(at).map(String::from),
            layer: layer.name.to_string(),
            place: rule.place,
        })
    }

    /// The reason, in one sentence.
    pub fn reason(&self, decision: &Decision, about: About<'_>) -> String {
        let rule = self.rule(decision);
        let About { agent, server, subject, .. } = about;
        let what = match about.action {
            Some(action) => format!("{server}/{subject}.{}", brief(action)),
            None => format!("{server}/{subject}"),
        };
        let caller = match agent {
            Some(agent) => format!("agent `{agent}`"),
            None => "an unnamed caller".into(),
        };
        let whose = self.whose(decision, agent);
        let selector = rule.as_ref().map_or("?", |rule| rule.selector.as_str());
        let place = rule.as_ref().map(RuleText::location).unwrap_or_default();
        let depends = decision.verdict == Verdict::Depends;
        match decision.step {
            Step::UnknownAgent => {
                format!("there are no rules for {caller}, and callers without rules are denied")
            }
            Step::ServerDeny => format!(
                "`{selector}` in deny.servers of {whose} covers the server `{server}` ({place})"
            ),
            Step::ServerNotAllowed => {
                format!("no entry of allow.servers of {whose} covers the server `{server}`")
            }
            Step::ServerAllow if rule.is_none() => {
                format!("no layer restricts which servers {caller} may use")
            }
            Step::ServerAllow => format!(
                "`{selector}` in allow.servers of {whose} covers the server `{server}` ({place})"
            ),
            Step::ExactDeny | Step::WildcardDeny if depends => {
                format!("`{selector}` in the deny list of {whose} applies to some calls ({place})")
            }
            Step::ExactDeny | Step::WildcardDeny => {
                format!("`{selector}` in the deny list of {whose} covers `{what}` ({place})")
            }
            Step::ExactAllow | Step::WildcardAllow | Step::AllowlistMatch if depends => {
                format!("`{selector}` allows some calls of `{server}/{subject}`, not all ({place})")
            }
            Step::ExactAllow | Step::WildcardAllow if decision.verdict == Verdict::Ask => {
                format!("`{selector}` allows `{what}` to {whose} once a person approves ({place})")
            }
            Step::AllowlistMatch if decision.verdict == Verdict::Ask => format!(
                "`{selector}` in the allowlist allows `{what}` once a person approves ({place})"
            ),
            Step::ExactAllow | Step::WildcardAllow | Step::AllowlistMatch
                if decision.verdict == Verdict::Deny =>
            {
                format!(
                    "`{selector}` asks for approval, and no one could approve `{what}` ({place})"
                )
            }
            Step::ExactAllow | Step::WildcardAllow => {
                format!("`{selector}` in the allow list of {whose} covers `{what}` ({place})")
            }
            Step::ImplicitGrant => format!(
                "{whose} may use the server `{server}`, and no allow list narrows what it offers"
            ),
            Step::DefaultDeny => {
                format!("no entry of the allow lists of {whose} for `{server}` covers `{what}`")
            }
            Step::AllowlistMatch => {
                format!("`{selector}` in the allowlist covers `{what}` ({place})")
            }
            Step::AllowlistNone => format!("no entry of the allowlist covers `{what}`"),
            Step::NotExposed => {
                format!("the server `{server}` does not expose `{subject}`")
            }
            Step::AmbiguousAction => format!(
                "a rule names an action of `{server}/{subject}`, and the action of this call is \
                 ambiguous"
            ),
            Step::UnsafeUri => {
                "the URI has dot segments, encoded separators or characters that servers interpret \
                 differently"
                    .into()
            }
            Step::ReadOnlyMode if decision.verdict == Verdict::Allow => {
                format!("read-only mode: `{server}/{subject}` only reads")
            }
            Step::ReadOnlyMode => {
                format!("read-only mode: `{server}/{subject}` is not marked read-only")
            }
            Step::NoPolicy => "there is no policy: everything that is exposed is allowed".into(),
            Step::NoSuchTool => format!("the server `{server}` has no tool `{subject}`"),
            Step::Pin => format!(
                "`{subject}` of the server `{server}` is quarantined: its definition is not the approved one"
            ),
        }
    }

    /// The agent whose rules decided: the caller's own, or `default`.
    fn whose(&self, decision: &Decision, agent: Option<&str>) -> String {
        let layer = decision.layer.and_then(|layer| self.layers.get(usize::from(layer)));
        let Some(Rules::Agents(agents)) = layer.map(|layer| &layer.rules) else {
            return "everyone".into();
        };
        match agents.agent(agent).and_then(|at| agents.agents.get(at as usize)) {
            Some(own) if Some(&*own.name) == agent => format!("agent `{}`", own.name),
            Some(other) if agent.is_some_and(|agent| agents.has(agent)) => {
                format!("agent `{}`, which matches the caller's name,", other.name)
            }
            Some(other) => format!("agent `{}`, the fallback for unknown callers,", other.name),
            None => "nobody".into(),
        }
    }
}

impl Policy {
    /// Whether refusals give this agent reasons, and the message that is appended to all of its
    /// refusals. Both depend on agent and policy alone.
    pub fn wording(&self, agent: Option<&str>) -> (bool, Option<&str>) {
        let mut found = Wording::default();
        // The agent itself, and the fallback agent in layers that have no rules for it.
        let mut names: Vec<&str> = agent.into_iter().collect();
        for layer in &self.layers {
            if let Rules::Agents(agents) = &layer.rules
                && let Some(used) =
                    agents.agent(agent).and_then(|at| agents.agents.get(at as usize))
                && !names.contains(&&*used.name)
            {
                names.push(&used.name);
            }
        }
        if let Some(pattern) = agent.and_then(|agent| self.wordings.pattern_of(agent))
            && !names.contains(&pattern)
        {
            names.push(pattern);
        }
        let mut message = None;
        for wording in names.iter().filter_map(|name| self.wordings.agents.get(*name)) {
            message = message.or(wording.message.as_deref());
            found.add(Wording { message: None, ..wording.clone() });
        }
        let everyone = &self.wordings.everyone;
        let explain = found.explain_to_agent.or(everyone.explain_to_agent).unwrap_or(true);
        (explain, message.or(everyone.message.as_deref()))
    }

    /// The `message` of an entry.
    pub(crate) fn entry_message(&self, layer: u16, rule: RuleRef) -> Option<&str> {
        self.layers.get(usize::from(layer))?.rule(rule)?.message.as_deref()
    }
}

/// Why a call is denied although a rule allows its action: the tool is hidden, because the listing knows its
/// actions and none of them is allowed.
pub fn hidden_tool(server: &str, tool: &str) -> String {
    format!(
        "`{server}/{tool}` is not in the agent's list, because no action of its schema is allowed; what is \
         hidden cannot be called"
    )
}

/// The name of a rule's list, for lints: `deny.tools`.
pub(crate) fn list_name(side: Side, kind: Kind) -> String {
    match side {
        Side::Deny => format!("deny.{}", kind.as_str()),
        Side::Allow => format!("allow.{}", kind.as_str()),
        Side::Allowlist => format!("allowed_{}", kind.as_str()),
    }
}
