//! Decisions: verdict, layer, step, rule.

/// The answer to "may this agent do this?". The order is from lenient to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Allow,
    /// During listing: the arguments decide.
    Depends,
    /// A person must approve.
    Ask,
    Deny,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Depends => "depends",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The step of the evaluation order that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    UnknownAgent,
    ServerDeny,
    ServerNotAllowed,
    ServerAllow,
    ExactDeny,
    WildcardDeny,
    ExactAllow,
    WildcardAllow,
    ImplicitGrant,
    DefaultDeny,
    AllowlistMatch,
    AllowlistNone,
    NotExposed,
    AmbiguousAction,
    /// A resource URI that a server could interpret as another one.
    UnsafeUri,
    ReadOnlyMode,
    NoPolicy,
    NoSuchTool,
    /// The definition changed since it was approved.
    Pin,
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Step::UnknownAgent => "unknown-agent",
            Step::ServerDeny => "server-deny",
            Step::ServerNotAllowed => "server-not-allowed",
            Step::ServerAllow => "server-allow",
            Step::ExactDeny => "1-exact-deny",
            Step::WildcardDeny => "2-wildcard-deny",
            Step::ExactAllow => "3-exact-allow",
            Step::WildcardAllow => "4-wildcard-allow",
            Step::ImplicitGrant => "5-implicit-grant",
            Step::DefaultDeny => "6-default-deny",
            Step::AllowlistMatch => "allowlist-match",
            Step::AllowlistNone => "allowlist-none",
            Step::NotExposed => "not-exposed",
            Step::AmbiguousAction => "ambiguous-action",
            Step::UnsafeUri => "unsafe-uri",
            Step::ReadOnlyMode => "read-only-mode",
            Step::NoPolicy => "no-policy",
            Step::NoSuchTool => "no-such-tool",
            Step::Pin => "pin",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decision. It is small and `Copy`; [`Policy::describe`](crate::Policy::describe) gives the
/// details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The index of the layer that decided; `None` for exposure and if there is no policy.
    pub layer: Option<u16>,
    pub step: Step,
    /// `None` if no rule matched.
    pub rule: Option<RuleRef>,
}

impl Decision {
    pub(crate) fn outside(verdict: Verdict, step: Step) -> Decision {
        Decision { verdict, layer: None, step, rule: None }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }
}

/// The address of a rule in a layer, without its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleRef {
    pub(crate) side: Side,
    pub(crate) kind: Kind,
    /// Index of the agent; zero in an allowlist.
    pub(crate) agent: u32,
    /// Index of the key below `tools`; zero if there are no keys.
    pub(crate) key: u32,
    pub(crate) entry: u32,
}

impl RuleRef {
    pub(crate) fn in_allowlist(entry: u32) -> RuleRef {
        RuleRef { side: Side::Allowlist, kind: Kind::Tools, agent: 0, key: 0, entry }
    }

    pub(crate) fn allowed_tool(agent: u32, key: u32, entry: u32) -> RuleRef {
        RuleRef { side: Side::Allow, kind: Kind::Tools, agent, key, entry }
    }
}

/// Which half of an agent's rules, or an allowlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Deny,
    Allow,
    Allowlist,
}

/// The kind of subject that a list covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Servers,
    Tools,
    Prompts,
    Resources,
    ClientRequests,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Servers => "servers",
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::ClientRequests => "client_requests",
        }
    }
}

/// One layer's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) step: Step,
    pub(crate) rule: Option<RuleRef>,
    /// The rule has a `limit`.
    pub(crate) limited: bool,
}

impl Answer {
    pub(crate) fn new(verdict: Verdict, step: Step) -> Answer {
        Answer { verdict, step, rule: None, limited: false }
    }

    pub(crate) fn by(verdict: Verdict, step: Step, rule: RuleRef) -> Answer {
        Answer { verdict, step, rule: Some(rule), limited: false }
    }

    /// The limited rule behind this answer in a layer, if there is one.
    pub(crate) fn limit_in(self, layer: u16) -> Option<LimitedRule> {
        let rule = self.rule.filter(|_| self.limited && self.verdict != Verdict::Deny)?;
        Some(LimitedRule { layer, rule })
    }

    /// The rule behind this answer in a layer, if it asks.
    pub(crate) fn ask_in(self, layer: u16) -> Option<AskingRule> {
        let rule = self.rule.filter(|_| self.verdict == Verdict::Ask)?;
        Some(AskingRule { layer, rule })
    }

    pub(crate) fn in_layer(self, layer: u16) -> Decision {
        Decision { verdict: self.verdict, layer: Some(layer), step: self.step, rule: self.rule }
    }
}

/// Combines the answers of all layers: the strictest, from the first layer that gave it; if all
/// allow, the last layer's.
pub(crate) fn strictest(answers: impl IntoIterator<Item = Decision>) -> Option<Decision> {
    answers.into_iter().reduce(|held, next| {
        if next.verdict > held.verdict || (next.verdict == Verdict::Allow && held.is_allowed()) {
            next
        } else {
            held
        }
    })
}

/// The address of an entry with `ask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AskingRule {
    pub layer: u16,
    pub rule: RuleRef,
}

/// The address of an entry with a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LimitedRule {
    pub layer: u16,
    pub rule: RuleRef,
}
