//! Why a call to a listed tool is refused: the outcome of the entries that could have allowed it.

use std::sync::Arc;

use serde_json::Value;

use crate::action_argument::ActionArgument;
use crate::call::{Ambiguity, Call, Caller};
use crate::cell::{Cell, Tried};
use crate::condition::Condition;
use crate::decision::{Decision, RuleRef, Step, Verdict};
use crate::policy::Policy;
use crate::reason::About;

/// At most this many conditions are quoted.
pub(crate) const MAX_QUOTED: usize = 3;

/// The engine's reason for refusing a call to a listed tool.
#[derive(Debug, Clone)]
pub struct Why {
    pub decision: Decision,
    pub cause: Cause,
    /// How the call selects its action, if that matters.
    pub(crate) action: Option<ActionArgument>,
    /// The `message` of the entry that decided.
    pub message: Option<String>,
}

/// The part of the call that was not allowed.
#[derive(Debug, Clone)]
pub enum Cause {
    /// The tool as a whole.
    Tool,
    /// No allow entry covers the call's action, or a call without one.
    Action,
    /// A deny entry matched the action.
    DeniedAction,
    /// A deny entry matched the arguments.
    DeniedArguments,
    /// The conditions of all allow entries that cover the call were false or failed to evaluate.
    Conditions(Vec<Unmet>),
    /// The caller's token lacks scopes. These are all scopes that the call needs.
    Scopes(Vec<String>),
    /// The arguments do not select a single action.
    Ambiguous(Ambiguity),
    /// A person must approve the call.
    Approval,
}

/// A condition that did not hold.
#[derive(Debug, Clone)]
pub struct Unmet {
    pub(crate) rule: RuleRef,
    pub(crate) condition: Arc<Condition>,
    /// It failed to evaluate.
    pub(crate) failed: bool,
    /// Arguments that it needs but the call does not have, by path.
    pub(crate) missing: Vec<String>,
}

impl Unmet {
    /// The entry that has the condition.
    pub fn rule(&self) -> RuleRef {
        self.rule
    }
}

impl Policy {
    /// Why `cell` did not allow a call. `decision` must be the cell's decision about this call.
    pub fn why(&self, cell: &Cell, caller: Caller<'_>, call: &Call<'_>, decision: Decision) -> Why {
        let tried = decision.layer.map(|layer| (layer, cell.tried(caller, call, layer)));
        let (layer, tried) = tried.unwrap_or_default();
        let denied = tried.iter().find(|one| {
            one.answer.verdict == Verdict::Deny && one.answer.rule == decision.rule && one.matched
        });
        let mut rules: Vec<RuleRef> = decision.rule.into_iter().collect();
        let cause = match (decision.verdict, decision.step) {
            (Verdict::Deny, Step::AmbiguousAction) => match cell.ambiguity(call) {
                Some(ambiguity) => Cause::Ambiguous(ambiguity),
                None => Cause::Action,
            },
            (Verdict::Deny, Step::ExactDeny | Step::WildcardDeny) => denied_by(denied),
            (Verdict::Deny, _) if !cell.missing_scopes(caller, call).is_empty() => {
                Cause::Scopes(cell.missing_scopes(caller, call))
            }
            (Verdict::Deny, _) => {
                let allows = tried.iter().filter(|one| one.answer.verdict != Verdict::Deny);
                let unmet = unmet(allows.clone().filter(|one| one.covers), call);
                match (unmet.is_empty(), allows.count()) {
                    (false, _) => {
                        rules = unmet.iter().map(|one| one.rule).collect();
                        Cause::Conditions(unmet)
                    }
                    (true, 0) => Cause::Tool,
                    (true, _) => Cause::Action,
                }
            }
            _ => Cause::Approval,
        };
        let message = rules.iter().find_map(|rule| self.entry_message(layer, *rule));
        let about_action =
            matches!(cause, Cause::Action | Cause::DeniedAction | Cause::Ambiguous(_));
        let action = about_action.then(|| ActionArgument::of(cell, caller, call)).flatten();
        Why { decision, cause, action, message: message.map(String::from) }
    }

    /// The message of the entry that allowed a call which a guard then refused.
    pub fn message_of(&self, decision: &Decision) -> Option<&str> {
        self.entry_message(decision.layer?, decision.rule?)
    }

    /// The reason in one sentence for people, who, unlike the agent, may see every condition and
    /// its location.
    pub fn reason_why(&self, why: &Why, about: About<'_>) -> String {
        let plain = self.reason(&why.decision, about);
        match &why.cause {
            Cause::Conditions(unmet) => {
                let entry = |one: &Unmet| self.unmet(why.decision.layer, one);
                let quoted: Vec<String> = unmet.iter().take(MAX_QUOTED).filter_map(entry).collect();
                let what = format!("{}/{}", about.server, about.subject);
                let more = match unmet.len().saturating_sub(MAX_QUOTED) {
                    0 => String::new(),
                    more => format!(", or under {more} more conditions"),
                };
                match quoted.is_empty() {
                    true => plain,
                    false => format!("`{what}` is allowed only {}{more}", quoted.join(", or ")),
                }
            }
            Cause::Scopes(scopes) => {
                let what = format!("{}/{}", about.server, about.subject);
                format!("`{what}` needs {}, which the caller's token lacks", in_words(scopes))
            }
            Cause::Ambiguous(ambiguity) => format!("{plain}: {ambiguity}"),
            _ => plain,
        }
    }

    fn unmet(&self, layer: Option<u16>, unmet: &Unmet) -> Option<String> {
        let rule = self.rule_at(layer?, unmet.rule)?;
        let state = match unmet.missing.as_slice() {
            [] if unmet.failed => "could not be evaluated".into(),
            [] => "is false".into(),
            [one] => format!("needs the argument `{one}`, which is missing"),
            several => format!("needs the arguments `{}`, which are missing", several.join("`, `")),
        };
        let when = one_line(unmet.condition.source());
        Some(format!("when `{when}`, which {state} ({})", rule.location()))
    }
}

/// "the scope `a`", or "the scopes `a` and `b`".
pub(crate) fn in_words(scopes: &[String]) -> String {
    match scopes {
        [one] => format!("the scope `{one}`"),
        several => format!("the scopes `{}`", several.join("`, `")),
    }
}

fn denied_by(denied: Option<&Tried>) -> Cause {
    let Some(denied) = denied else { return Cause::Tool };
    let reads = denied.when.as_ref().map(|when| when.reads()).unwrap_or_default();
    match (reads.args, !denied.by_name || reads.action) {
        (true, _) => Cause::DeniedArguments,
        (false, true) => Cause::DeniedAction,
        (false, false) => Cause::Tool,
    }
}

fn unmet<'t>(tried: impl Iterator<Item = &'t Tried>, call: &Call<'_>) -> Vec<Unmet> {
    let mut arguments = None;
    let unmet = tried.filter_map(|one| {
        let (condition, rule) = (one.when.clone()?, one.answer.rule?);
        let given = arguments.get_or_insert_with(|| {
            call.arguments.map_or_else(|| Value::Object(Default::default()), |a| a.to_json())
        });
        let missing = condition.mentions().iter().filter(|one| one.is_missing(given));
        let missing = missing.filter(|_| one.failed).map(|one| one.name()).collect();
        Some(Unmet { rule, condition, failed: one.failed, missing })
    });
    unmet.collect()
}

/// A condition on one line.
pub(crate) fn one_line(condition: &str) -> String {
    condition.split_whitespace().collect::<Vec<_>>().join(" ")
}
