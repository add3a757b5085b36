//! The policy reduced to one subject for one agent.
//!
//! Most cells are a fixed decision: one copy. If actions or conditions matter, a cell contains the
//! few entries that can still decide.

mod actions;
mod recorded;

use std::borrow::Cow;
use std::cell::RefCell;

use crate::call::{Action, Ambiguity, Call, Caller, first_string, stated_action};
use crate::condition::{Condition, Facts};
use crate::decision::{Answer, AskingRule, Decision, LimitedRule, Step, Verdict, strictest};
use crate::hints::Hints;
use crate::selector::fold;
use crate::tool::Tool;
use crate::view::{Asked, Candidate, LayerCell, Program};

pub use self::recorded::{RecordedAction, RecordedCall};

/// The policy for one subject of one agent on one server.
#[derive(Debug, Clone)]
pub struct Cell(Inner);

#[derive(Debug, Clone)]
enum Inner {
    /// A decision, and the rules with options that lead to it; nearly always none.
    Fixed(Decision, Option<std::sync::Arc<Behind>>),
    Open(Box<Open>),
}

/// The rules behind a decision that have a limit, or that ask.
#[derive(Debug)]
struct Behind {
    limits: Box<[LimitedRule]>,
    asks: Box<[AskingRule]>,
}

/// A cell whose decision depends on the call.
#[derive(Debug, Clone)]
struct Open {
    layers: Box<[LayerCell]>,
    server: Box<str>,
    subject: Box<str>,
    definition: std::sync::Arc<str>,
    hints: Hints,
    action_keys: Box<[Box<str>]>,
    /// The values of the action, if the schema has an `enum` for it.
    actions: Option<Box<[Option<Box<str>>]>>,
    /// Some rule that can decide has a `limit`.
    limited: bool,
}

/// A subject's entry in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub decision: Decision,
    /// The remaining values of the action's `enum`, if the policy removes some.
    pub actions: Option<Vec<String>>,
}

/// The outcome of one entry that could decide a call.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) answer: Answer,
    /// It matches regardless of the action.
    pub(crate) by_name: bool,
    /// It covers the call's action.
    pub(crate) covers: bool,
    /// Its condition failed to evaluate.
    pub(crate) failed: bool,
    /// It matched, and would have decided.
    pub(crate) matched: bool,
    pub(crate) when: Option<std::sync::Arc<Condition>>,
}

impl Cell {
    pub(crate) fn fixed(decision: Decision) -> Cell {
        Cell(Inner::Fixed(decision, None))
    }

    /// `tool` is `None` for prompts and resources, which have no actions.
    pub(crate) fn new(
        layers: Vec<LayerCell>,
        server: &str,
        asked: &Asked<'_>,
        tool: Option<&Tool>,
        action_keys: &[Box<str>],
    ) -> Cell {
        if let Some(decision) = all_fixed(&layers) {
            let answers = || {
                layers.iter().map(|layer| match layer {
                    LayerCell::Fixed(answer) => Some(*answer),
                    LayerCell::Program(_) => None,
                })
            };
            let (limits, asks) = (limits(answers()), asks(answers()));
            let behind = Behind { limits: limits.into(), asks: asks.into() };
            let is_empty = behind.limits.is_empty() && behind.asks.is_empty();
            return Cell(Inner::Fixed(decision, (!is_empty).then(|| behind.into())));
        }
        let limited = layers.iter().any(|layer| match layer {
            LayerCell::Fixed(answer) => answer.limited,
            LayerCell::Program(program) => program.candidates.iter().any(|c| c.answer.limited),
        });
        Cell(Inner::Open(Box::new(Open {
            limited,
            layers: layers.into(),
            server: server.into(),
            subject: asked.name.into(),
            definition: tool.map_or_else(|| "{}".into(), Tool::shared_definition),
            hints: asked.hints.clone(),
            action_keys: action_keys.into(),
            actions: tool.and_then(|tool| declared_actions(tool, action_keys)),
        })))
    }

    /// Decides a call.
    #[inline]
    pub fn decide(&self, caller: Caller<'_>, call: &Call<'_>) -> Decision {
        match &self.0 {
            Inner::Fixed(decision, _) => *decision,
            Inner::Open(open) => open.decide(caller, call),
        }
    }

    /// Decides a call to a tool that a listing may hide: a hidden tool is not callable.
    #[inline]
    pub(crate) fn decide_listed(&self, caller: Caller<'_>, call: &Call<'_>) -> Decision {
        match &self.0 {
            Inner::Fixed(decision, _) => *decision,
            Inner::Open(open) => {
                let decision = open.decide(caller, call);
                if decision.verdict == Verdict::Deny {
                    return decision;
                }
                let listed = open.list(caller).decision;
                if listed.verdict == Verdict::Deny { listed } else { decision }
            }
        }
    }

    /// The listing verdict. Arguments are not known yet.
    pub fn list(&self, caller: Caller<'_>) -> Listing {
        match &self.0 {
            Inner::Fixed(decision, _) => Listing { decision: *decision, actions: None },
            Inner::Open(open) => open.list(caller),
        }
    }

    /// The limited rules that allow a call, at most one per layer. Only for allowed calls.
    #[inline]
    pub fn limits(&self, caller: Caller<'_>, call: &Call<'_>) -> Cow<'_, [LimitedRule]> {
        match &self.0 {
            Inner::Fixed(_, behind) => {
                Cow::Borrowed(behind.as_ref().map(|behind| &*behind.limits).unwrap_or_default())
            }
            Inner::Open(open) if !open.limited => Cow::Borrowed(&[]),
            Inner::Open(open) => Cow::Owned(limits(open.answers(caller, call).map(Some))),
        }
    }

    /// The rules that ask about a call, at most one per layer. Only for calls whose verdict is `ask`.
    pub fn asks(&self, caller: Caller<'_>, call: &Call<'_>) -> Vec<AskingRule> {
        match &self.0 {
            Inner::Fixed(_, behind) => {
                behind.as_ref().map(|behind| behind.asks.to_vec()).unwrap_or_default()
            }
            Inner::Open(open) => asks(open.answers(caller, call).map(Some)),
        }
    }

    /// Whether some rule could ask about a call.
    pub fn may_ask(&self) -> bool {
        let asks = |answer: &Answer| answer.verdict == Verdict::Ask;
        match &self.0 {
            Inner::Fixed(decision, _) => decision.verdict == Verdict::Ask,
            Inner::Open(open) => open.layers.iter().any(|layer| match layer {
                LayerCell::Fixed(answer) => asks(answer),
                LayerCell::Program(program) => {
                    asks(&program.end) || program.candidates.iter().any(|one| asks(&one.answer))
                }
            }),
        }
    }

    /// All limited rules that could allow a call.
    pub fn all_limits(&self) -> Vec<LimitedRule> {
        let open = match &self.0 {
            Inner::Fixed(_, behind) => {
                return behind.as_ref().map(|behind| behind.limits.to_vec()).unwrap_or_default();
            }
            Inner::Open(open) => open,
        };
        let of_layer = |(layer, cell): (usize, &LayerCell)| -> Vec<LimitedRule> {
            let limit = |answer: Answer| answer.limit_in(layer as u16);
            match cell {
                LayerCell::Fixed(answer) => limit(*answer).into_iter().collect(),
                LayerCell::Program(program) => {
                    let ends = [program.end].into_iter();
                    let answers = program.candidates.iter().map(|one| one.answer).chain(ends);
                    answers.filter_map(limit).collect()
                }
            }
        };
        open.layers.iter().enumerate().flat_map(of_layer).collect()
    }

    /// The listing verdict, if it does not depend on the caller's claims.
    #[inline]
    pub fn settled(&self) -> Option<Decision> {
        match &self.0 {
            Inner::Fixed(decision, _) => Some(*decision),
            Inner::Open(_) => None,
        }
    }

    /// Whether the decision can depend on more of the tool's definition than its hints: the values
    /// of its action, or the parts that a condition reads.
    pub(crate) fn reads_definition(&self) -> bool {
        let Inner::Open(open) = &self.0 else { return false };
        open.layers.iter().any(|layer| match layer {
            LayerCell::Fixed(_) => false,
            LayerCell::Program(program) => {
                let reads = |one: &Candidate| one.when.as_ref().map(|when| when.reads());
                let read = program.candidates.iter().filter_map(reads);
                program.names_action || read.into_iter().any(|reads| reads.definition)
            }
        })
    }

    /// The outcome of each entry of one layer that could decide a call, in order.
    pub(crate) fn tried(&self, caller: Caller<'_>, call: &Call<'_>, layer: u16) -> Vec<Tried> {
        let Inner::Open(open) = &self.0 else { return Vec::new() };
        let Some(LayerCell::Program(program)) = open.layers.get(usize::from(layer)) else {
            return Vec::new();
        };
        let action = match program.looks_for_action {
            true => Action::of(call, &open.action_keys),
            false => Action::Missing,
        };
        let action = match &action {
            Action::Is(action) => Some(&**action),
            Action::Missing | Action::Ambiguous(_) => None,
        };
        let facts = Facts { action, ..open.facts(caller, call) };
        let folded = action.map(|action| fold(action, program.case));
        let tried = |candidate: &Candidate| {
            let covers = candidate.covers(folded.as_deref());
            let holds = candidate.when.as_ref().map(|when| when.holds(&facts));
            let denies = candidate.answer.verdict == Verdict::Deny;
            Tried {
                answer: candidate.answer,
                by_name: candidate.by_name,
                covers,
                failed: matches!(holds, Some(Err(_))),
                matched: covers && holds.is_none_or(|holds| holds.unwrap_or(denies)),
                when: candidate.when.clone(),
            }
        };
        program.candidates.iter().map(tried).collect()
    }

    /// The action that a refusal of this tool names: the first string under the tool's own action keys
    /// if rules depend on the action, otherwise as [`stated_action`] finds it.
    pub fn stated_action(&self, call: &Call<'_>) -> Option<String> {
        match self.action_keys() {
            Some((keys, _)) => first_string(call, keys),
            None => stated_action(call),
        }
    }

    /// The conditions that can matter, each once.
    pub(crate) fn conditions(&self) -> Vec<std::sync::Arc<Condition>> {
        let Inner::Open(open) = &self.0 else { return Vec::new() };
        let mut found: Vec<std::sync::Arc<Condition>> = Vec::new();
        for layer in &open.layers {
            let LayerCell::Program(program) = layer else { continue };
            for when in program.candidates.iter().filter_map(|candidate| candidate.when.as_ref()) {
                if !found.iter().any(|known| known.source() == when.source()) {
                    found.push(when.clone());
                }
            }
        }
        found
    }

    /// Decides a call with assumed outcomes of some conditions: true, false, or an error.
    pub(crate) fn decide_assuming(
        &self,
        caller: Caller<'_>,
        call: &Call<'_>,
        assumed: &dyn Fn(&Condition) -> Option<Result<bool, ()>>,
    ) -> Decision {
        let open = match &self.0 {
            Inner::Fixed(decision, _) => return *decision,
            Inner::Open(open) => open,
        };
        let action = Action::of(call, &open.action_keys);
        let missing = Action::Missing;
        let answers = open.layers.iter().map(|layer| match layer {
            LayerCell::Fixed(answer) => *answer,
            LayerCell::Program(program) => {
                let action = if program.looks_for_action { &action } else { &missing };
                program.decide_by(action, open.facts(caller, call), |candidate, facts| {
                    let outcome = candidate.when.as_deref().and_then(assumed);
                    match outcome {
                        Some(holds) => holds.unwrap_or(candidate.answer.verdict == Verdict::Deny),
                        None => candidate.condition_holds(facts),
                    }
                })
            }
        });
        let answers = answers.enumerate().map(|(at, answer)| answer.in_layer(at as u16));
        strictest(answers).unwrap_or(Decision::outside(Verdict::Deny, Step::DefaultDeny))
    }

    /// The tool's action keys and its definition, if some rule depends on the call's action.
    pub(crate) fn action_keys(&self) -> Option<(&[Box<str>], &str)> {
        let Inner::Open(open) = &self.0 else { return None };
        let looks = |layer: &LayerCell| match layer {
            LayerCell::Fixed(_) => false,
            LayerCell::Program(program) => program.looks_for_action,
        };
        open.layers.iter().any(looks).then_some((&*open.action_keys, &*open.definition))
    }

    /// The scopes that a denied call needs, if it would not be denied with them: those of the entries that
    /// would then decide.
    pub(crate) fn missing_scopes(&self, caller: Caller<'_>, call: &Call<'_>) -> Vec<String> {
        let Inner::Open(open) = &self.0 else { return Vec::new() };
        let action = Action::of(call, &open.action_keys);
        let mut needed: Vec<String> = Vec::new();
        let mut decisions = Vec::with_capacity(open.layers.len());
        for (at, layer) in open.layers.iter().enumerate() {
            let answer = match layer {
                LayerCell::Fixed(answer) => *answer,
                LayerCell::Program(program) => {
                    let action = if program.looks_for_action { &action } else { &Action::Missing };
                    let deciding = RefCell::new(None);
                    let facts = open.facts(caller, call);
                    let answer = program.decide_by(action, facts, |candidate, facts| {
                        let Some(when) = candidate.when.as_deref() else { return true };
                        let denies = candidate.answer.verdict == Verdict::Deny;
                        let holds = when.holds_with_scopes(facts).unwrap_or(denies);
                        if holds {
                            *deciding.borrow_mut() = candidate.when.clone();
                        }
                        holds
                    });
                    let deciding = deciding.into_inner();
                    let scopes = deciding.iter().filter_map(|when| when.scopes());
                    for scope in scopes.flat_map(|scopes| scopes.iter()) {
                        if !needed.iter().any(|known| known == scope) {
                            needed.push(scope.into());
                        }
                    }
                    answer
                }
            };
            decisions.push(answer.in_layer(at as u16));
        }
        match strictest(decisions) {
            Some(decision) if decision.verdict != Verdict::Deny => needed,
            _ => Vec::new(),
        }
    }

    /// Why the call's action is ambiguous, if that is the reason for the denial.
    pub fn ambiguity(&self, call: &Call<'_>) -> Option<Ambiguity> {
        match &self.0 {
            Inner::Fixed(..) => None,
            Inner::Open(open) => match Action::of(call, &open.action_keys) {
                Action::Ambiguous(ambiguity) => Some(ambiguity),
                Action::Missing => Some(Ambiguity::Missing),
                Action::Is(_) => None,
            },
        }
    }
}

fn limits(answers: impl Iterator<Item = Option<Answer>>) -> Vec<LimitedRule> {
    let limits = answers.enumerate().filter_map(|(layer, answer)| answer?.limit_in(layer as u16));
    limits.collect()
}

fn asks(answers: impl Iterator<Item = Option<Answer>>) -> Vec<AskingRule> {
    let asks = answers.enumerate().filter_map(|(layer, answer)| answer?.ask_in(layer as u16));
    asks.collect()
}

fn all_fixed(layers: &[LayerCell]) -> Option<Decision> {
    let mut decisions = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        match layer {
            LayerCell::Fixed(answer) => decisions.push(answer.in_layer(index as u16)),
            LayerCell::Program(_) => return None,
        }
    }
    strictest(decisions)
}

/// The values of the action, if every action key in the schema has an `enum`.
pub(crate) fn declared_actions(
    tool: &Tool,
    action_keys: &[Box<str>],
) -> Option<Box<[Option<Box<str>>]>> {
    let mut actions: Vec<Option<Box<str>>> = Vec::new();
    for property in action_keys.iter().filter_map(|key| tool.property(key)) {
        for value in property.values.as_ref()? {
            if !actions.contains(value) {
                actions.push(value.clone());
            }
        }
    }
    (!actions.is_empty()).then(|| actions.into())
}

impl Open {
    fn facts<'a>(&'a self, caller: Caller<'a>, call: &Call<'a>) -> Facts<'a> {
        Facts {
            caller,
            server: &self.server,
            tool: &self.subject,
            action: None,
            arguments: call.arguments,
            hints: &self.hints,
            definition: &self.definition,
        }
    }

    /// The answer of each layer for a call.
    fn answers<'a>(&'a self, caller: Caller<'a>, call: &Call<'a>) -> impl Iterator<Item = Answer> {
        let mut looked_up = None;
        self.layers.iter().map(move |layer| match layer {
            LayerCell::Fixed(answer) => *answer,
            LayerCell::Program(program) => {
                let action = if program.looks_for_action {
                    looked_up.get_or_insert_with(|| Action::of(call, &self.action_keys))
                } else {
                    &Action::Missing
                };
                program.decide(action, self.facts(caller, call))
            }
        })
    }

    fn decide(&self, caller: Caller<'_>, call: &Call<'_>) -> Decision {
        let answers = self.answers(caller, call).enumerate();
        let combined = strictest(answers.map(|(index, answer)| answer.in_layer(index as u16)));
        // A cell always has a layer; denying is the safe fallback.
        combined.unwrap_or(Decision::outside(Verdict::Deny, Step::DefaultDeny))
    }

    fn list(&self, caller: Caller<'_>) -> Listing {
        let facts = self.facts(caller, &Call::default());
        let mut kept: Option<Vec<bool>> = None;
        let mut answers = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let answer = match layer {
                LayerCell::Fixed(answer) => *answer,
                LayerCell::Program(program) => match &self.actions {
                    Some(actions) if program.names_action => {
                        let each: Vec<Answer> = actions
                            .iter()
                            .map(|action| program.list_action(action.as_deref(), facts))
                            .collect();
                        let kept = kept.get_or_insert_with(|| vec![true; actions.len()]);
                        for (kept, answer) in kept.iter_mut().zip(&each) {
                            *kept &= answer.verdict != Verdict::Deny;
                        }
                        of_all_actions(&each)
                    }
                    _ => program.walk(None, facts),
                },
            };
            answers.push(answer.in_layer(index as u16));
        }
        let decision =
            strictest(answers).unwrap_or(Decision::outside(Verdict::Deny, Step::DefaultDeny));
        let actions = match (&self.actions, kept) {
            (Some(actions), Some(kept)) if kept.contains(&false) => Some(
                actions
                    .iter()
                    .zip(kept)
                    .filter(|(_, kept)| *kept)
                    .filter_map(|(action, _)| action.as_deref().map(String::from))
                    .collect(),
            ),
            _ => None,
        };
        Listing { decision, actions }
    }
}

/// Combines the listing verdicts of the action's values.
pub(crate) fn of_all_actions(each: &[Answer]) -> Answer {
    let denied = each.iter().filter(|answer| answer.verdict == Verdict::Deny).count();
    let first_open = each.iter().find(|answer| answer.verdict != Verdict::Deny);
    match first_open {
        None => each.first().copied().unwrap_or(Answer::new(Verdict::Deny, Step::DefaultDeny)),
        Some(first) if denied > 0 => Answer { verdict: Verdict::Depends, ..*first },
        Some(first) => {
            let strictest = each.iter().map(|answer| answer.verdict).max();
            each.iter().find(|answer| Some(answer.verdict) == strictest).copied().unwrap_or(*first)
        }
    }
}

impl Program {
    fn decide<'a>(&'a self, action: &'a Action, facts: Facts<'a>) -> Answer {
        self.decide_by(action, facts, Candidate::condition_holds)
    }

    /// Decides with another way to evaluate conditions.
    fn decide_by<'a>(
        &'a self,
        action: &'a Action,
        mut facts: Facts<'a>,
        holds: impl Fn(&Candidate, &Facts<'_>) -> bool,
    ) -> Answer {
        let action = match action {
            Action::Ambiguous(_) => return Answer::new(Verdict::Deny, Step::AmbiguousAction),
            Action::Missing if self.missing_action_denies => {
                return Answer::new(Verdict::Deny, Step::AmbiguousAction);
            }
            Action::Missing => None,
            Action::Is(action) => Some(&**action),
        };
        facts.action = action;
        let folded = action.map(|action| fold(action, self.case));
        for candidate in &self.candidates {
            if candidate.covers(folded.as_deref()) && holds(candidate, &facts) {
                return candidate.answer;
            }
        }
        self.end
    }

    /// The listing verdict of one value of the action's `enum`.
    fn list_action<'a>(&'a self, action: Option<&'a str>, facts: Facts<'a>) -> Answer {
        match action {
            // A call with this value would not have a string as its action.
            None => Answer::new(Verdict::Deny, Step::AmbiguousAction),
            Some(action) => self.walk(Some(action), facts),
        }
    }

    /// Walks the candidates without arguments, and without an action unless one is given. For
    /// entries that may or may not match, both outcomes stay possible.
    fn walk<'a>(&'a self, action: Option<&'a str>, mut facts: Facts<'a>) -> Answer {
        facts.action = action;
        let folded = action.map(|action| fold(action, self.case));
        let mut maybes: Vec<Answer> = Vec::new();
        let mut end = self.end;
        for candidate in &self.candidates {
            let unknown_action = !candidate.by_name && action.is_none();
            if !unknown_action && !candidate.covers(folded.as_deref()) {
                continue;
            }
            let open = |when: &Condition| when.is_open_in_listing(facts.caller, action.is_some());
            if candidate.when.as_deref().is_some_and(open) {
                maybes.push(candidate.answer);
            } else if !candidate.condition_holds(&facts) {
                continue;
            } else if unknown_action {
                maybes.push(candidate.answer);
            } else {
                end = candidate.answer;
                break;
            }
        }
        let Some(&first) = maybes.first() else {
            return end;
        };
        let outcomes = || maybes.iter().chain([&end]);
        let denies = outcomes().filter(|answer| answer.verdict == Verdict::Deny).count();
        if denies == maybes.len() + 1 {
            return end;
        }
        if denies > 0 {
            return Answer { verdict: Verdict::Depends, ..first };
        }
        match outcomes().find(|answer| answer.verdict == Verdict::Ask) {
            Some(ask) => *ask,
            None => end,
        }
    }
}

impl Candidate {
    /// Whether the entry covers a call with this action, case-folded like the entry.
    fn covers(&self, action: Option<&str>) -> bool {
        self.by_name
            || action.is_some_and(|action| self.actions.iter().any(|glob| glob.matches(action)))
    }

    /// An expression that fails to evaluate never allows: a deny entry then matches, an allow entry
    /// does not.
    fn condition_holds(&self, facts: &Facts<'_>) -> bool {
        match &self.when {
            None => true,
            Some(when) => when.holds(facts).unwrap_or(self.answer.verdict == Verdict::Deny),
        }
    }
}
