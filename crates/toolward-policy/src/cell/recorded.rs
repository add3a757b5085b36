//! Decisions on past calls, of which the audit log does not contain everything.

use super::{Cell, Inner, Open};
use crate::call::{Action, Arguments, Call, Caller};
use crate::condition::Facts;
use crate::decision::{Answer, Decision, Step, Verdict};
use crate::selector::fold;
use crate::view::{LayerCell, Program};

/// A past call as it was recorded.
#[derive(Clone, Copy, Default)]
pub struct RecordedCall<'a> {
    pub agent: Option<&'a str>,
    pub action: RecordedAction<'a>,
    /// `None`: the arguments were not recorded.
    pub arguments: Option<&'a dyn Arguments>,
}

/// The action of a past call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordedAction<'a> {
    #[default]
    Unknown,
    /// The call had none.
    None,
    Is(&'a str),
}

impl Cell {
    /// Decides a past call. The verdict is `depends` if it depends on arguments, an action or claims that were not
    /// recorded.
    pub fn decide_recorded(&self, call: &RecordedCall<'_>) -> Decision {
        match &self.0 {
            Inner::Fixed(decision, _) => *decision,
            Inner::Open(open) => open.decide_recorded(call),
        }
    }

    /// Whether the decision can depend on the call's action.
    pub(crate) fn reads_action(&self) -> bool {
        self.action_keys().is_some()
    }

    /// Whether a condition reads the caller's claims.
    pub(crate) fn reads_claims(&self) -> bool {
        matches!(&self.0, Inner::Open(open) if open.reads_claims())
    }
}

impl Open {
    fn reads_claims(&self) -> bool {
        self.layers.iter().any(|layer| match layer {
            LayerCell::Fixed(_) => false,
            LayerCell::Program(program) => program.reads_claims(),
        })
    }

    fn decide_recorded(&self, call: &RecordedCall<'_>) -> Decision {
        let caller = Caller { agent: call.agent, claims: None };
        let sent = Call { action: None, arguments: call.arguments };
        let action = match (call.arguments, call.action) {
            (Some(_), _) => Some(Action::of(&sent, &self.action_keys)),
            (None, RecordedAction::Is(action)) => Some(Action::Is(action.into())),
            (None, RecordedAction::None) => Some(Action::Missing),
            (None, RecordedAction::Unknown) => None,
        };
        let missing = Some(Action::Missing);
        let mut combined: Option<Decision> = None;
        for (index, layer) in self.layers.iter().enumerate() {
            let answer = match layer {
                LayerCell::Fixed(answer) => *answer,
                LayerCell::Program(program) => {
                    let action = if program.looks_for_action { &action } else { &missing };
                    program.decide_recorded(action.as_ref(), self.facts(caller, &sent))
                }
            };
            let decision = answer.in_layer(index as u16);
            // Unlike in a listing, `depends` outranks `ask`: the call could also be denied.
            let outranks = |before: Decision| rank(decision.verdict) >= rank(before.verdict);
            let stricter = |before: Decision| rank(decision.verdict) > rank(before.verdict);
            if combined.is_none_or(|before| match decision.verdict {
                Verdict::Allow => outranks(before),
                _ => stricter(before),
            }) {
                combined = Some(decision);
            }
        }
        let decision = combined.unwrap_or(Decision::outside(Verdict::Deny, Step::DefaultDeny));
        if decision.verdict == Verdict::Deny {
            return decision;
        }
        // A hidden tool is not callable. Without the caller's claims, a listing hides too much.
        if self.reads_claims() {
            return decision;
        }
        let listed = self.list(caller).decision;
        if listed.verdict == Verdict::Deny { listed } else { decision }
    }
}

fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Ask => 1,
        Verdict::Depends => 2,
        Verdict::Deny => 3,
    }
}

impl Program {
    fn reads_claims(&self) -> bool {
        let conditions = self.candidates.iter().filter_map(|one| one.when.as_ref());
        conditions.into_iter().any(|when| when.reads().claims)
    }

    /// Walks the candidates. For entries that may or may not match, both outcomes stay possible. `action` is `None`
    /// if it is unknown.
    fn decide_recorded<'a>(&'a self, action: Option<&'a Action>, mut facts: Facts<'a>) -> Answer {
        let ambiguous = Answer::new(Verdict::Deny, Step::AmbiguousAction);
        let mut outcomes: Vec<Answer> = Vec::new();
        let known = match action {
            Some(Action::Ambiguous(_)) => return ambiguous,
            Some(Action::Missing) if self.missing_action_denies => return ambiguous,
            Some(Action::Missing) => Some(None),
            Some(Action::Is(action)) => Some(Some(&**action)),
            None => {
                outcomes.push(ambiguous);
                None
            }
        };
        facts.action = known.flatten();
        let folded = facts.action.map(|action| fold(action, self.case));
        let mut end = self.end;
        for candidate in &self.candidates {
            let maybe_covers = known.is_none() && !candidate.by_name;
            if !maybe_covers && !candidate.covers(folded.as_deref()) {
                continue;
            }
            let reads = candidate.when.as_ref().map(|when| when.reads()).unwrap_or_default();
            let open = reads.claims
                || (reads.args && facts.arguments.is_none())
                || (reads.action && known.is_none());
            if !open && !candidate.condition_holds(&facts) {
                continue;
            }
            if open || maybe_covers {
                outcomes.push(candidate.answer);
            } else {
                end = candidate.answer;
                break;
            }
        }
        match outcomes.iter().find(|answer| answer.verdict != end.verdict) {
            None => end,
            Some(other) => Answer { verdict: Verdict::Depends, ..*other },
        }
    }
}
