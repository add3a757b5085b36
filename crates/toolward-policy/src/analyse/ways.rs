//! The ways in which a subject can be described and called: hints, action keys, actions, arguments, and
//! outcomes of conditions.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::conditions::{self, Reading};
use super::search::{Asked, PointRef, Search, Visit, WhyUndecided, definition};
use crate::call::{Action, Call, Caller};
use crate::cell::Cell;
use crate::condition::Condition;
use crate::decision::{Decision, Kind};
use crate::hints::{Annotations, Hints};
use crate::policy::{Policy, Subject};
use crate::testing::TestArguments;
use crate::tool::Tool;

/// With more conditions that may have any outcome, a subject is not decided.
const MAX_FREE: usize = 5;

/// The ways in which a subject of a name can be described and called.
pub(super) struct Ways<'s, 'a> {
    pub(super) search: &'s Search<'s>,
    pub(super) kind: Kind,
    pub(super) asked: &'a Asked<'a>,
    /// Actions, one of each class.
    pub(super) texts: &'a [String],
    pub(super) claims: &'a [Annotations],
    /// As in [`PointRef`].
    pub(super) wider: Option<bool>,
}

/// A subject as its server describes it, and the policies reduced to it.
struct Described<'a> {
    name: &'a str,
    claims: Annotations,
    declared: &'a [&'a str],
    /// The action keys of each policy.
    keys: &'a [&'a [Box<str>]],
    cells: Vec<Cell>,
}

impl Ways<'_, '_> {
    /// Visits the points of a name.
    pub(super) fn visit(
        &self,
        name: &str,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        if self.kind != Kind::Tools {
            return self.plain(name, visit);
        }
        let policies = self.search.policies;
        let server = self.asked.server;
        let keys = policies.iter().map(|policy| policy.action_keys(server, name));
        let keys: Vec<&[Box<str>]> = keys.collect();
        let mut all: Vec<&str> = Vec::new();
        for key in keys.iter().flat_map(|keys| keys.iter()) {
            if !all.contains(&&**key) {
                all.push(key);
            }
        }
        let mut declared: Vec<Vec<&str>> = vec![Vec::new()];
        if !self.texts.is_empty() {
            declared.extend(all.iter().map(|key| vec![*key]));
            declared.push(all.clone());
            declared.dedup();
        }
        for claims in self.claims {
            for declared in &declared {
                if self.described(name, *claims, declared, &keys, visit)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A prompt or a resource: it has no hints and no actions.
    fn plain(&self, name: &str, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, WhyUndecided> {
        let subject = match self.kind {
            Kind::Prompts => Subject::Prompt(name),
            _ => Subject::Template(name),
        };
        let cell = |policy: &&Policy| policy.cell(self.asked.agent, self.asked.server, subject);
        let described = Described {
            name,
            claims: Annotations::default(),
            declared: &[],
            keys: &[],
            cells: self.search.policies.iter().map(cell).collect(),
        };
        self.called(&described, visit)
    }

    /// A tool with these claims, whose schema has these action keys.
    fn described(
        &self,
        name: &str,
        claims: Annotations,
        declared: &[&str],
        keys: &[&[Box<str>]],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let Asked { agent, server, .. } = *self.asked;
        let tool = Tool::new(name, &definition(claims, declared));
        let mut cells: Vec<Cell> = Vec::with_capacity(keys.len());
        for policy in self.search.policies {
            let hints = policy.hints(server, &tool);
            if cells.is_empty() && !self.asks_about_hints(&hints) {
                return Ok(ControlFlow::Continue(()));
            }
            cells.push(policy.cell(agent, server, Subject::Tool(&tool, &hints)));
        }
        self.called(&Described { name, claims, declared, keys, cells }, visit)
    }

    /// Visits every call of a subject that conditions and actions distinguish.
    fn called(
        &self,
        described: &Described<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let Described { name, claims, declared, keys, cells } = described;
        let (name, claims, declared, keys) = (*name, *claims, *declared, *keys);
        let Asked { agent, server, .. } = *self.asked;
        let mut conditions: Vec<Arc<Condition>> = Vec::new();
        for condition in cells.iter().flat_map(Cell::conditions) {
            if !conditions.iter().any(|known| known.source() == condition.source()) {
                conditions.push(condition);
            }
        }
        let looks = cells.iter().any(|cell| cell.action_keys().is_some());
        let only = self.asked.only.filter(|_| self.kind == Kind::Tools);
        let asks_action = only.is_some_and(|only| !only.names_tool(name));
        let calls = match looks || asks_action {
            true => actions(keys, self.texts),
            false => vec![Map::new()],
        };
        let readings: Vec<Arc<Reading>> =
            conditions.iter().map(|condition| self.search.reading(condition)).collect();
        let all_keys: Vec<Box<str>> = keys.iter().flat_map(|keys| keys.iter().cloned()).collect();
        let tried = conditions::arguments(
            readings.iter().map(|reading| &**reading),
            &all_keys,
            self.texts,
        )?;
        let is_free = |reading: &Arc<Reading>| reading.free || !tried.complete;
        let free: Vec<&Arc<Condition>> = conditions
            .iter()
            .zip(&readings)
            .filter(|(_, reading)| is_free(reading))
            .map(|(condition, _)| condition)
            .collect();
        let caller = Caller { agent, claims: None };
        for action in &calls {
            for arguments in &tried.arguments {
                let mut given = arguments.clone();
                for (key, value) in action {
                    given.members.entry(key.clone()).or_insert_with(|| value.clone());
                }
                if !self.asks_about_call(name, &given, keys) {
                    continue;
                }
                self.search.spend(64)?;
                let point = PointRef {
                    agent,
                    server,
                    kind: self.kind,
                    name,
                    claims,
                    declared,
                    arguments: Some(&given),
                    wider: self.wider,
                };
                let call = Call::with(&given);
                let decisions: Vec<Decision> =
                    cells.iter().map(|cell| cell.decide(caller, &call)).collect();
                if visit(&point, &decisions, &[]).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                if free.is_empty() {
                    continue;
                }
                if free.len() > MAX_FREE {
                    return Err(WhyUndecided::Conditions(
                        free.iter().map(|condition| condition.source().to_owned()).collect(),
                    ));
                }
                if self.assume(&free, cells, &point, &given, visit)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits every combination of outcomes of conditions that may have any.
    fn assume(
        &self,
        free: &[&Arc<Condition>],
        cells: &[Cell],
        point: &PointRef<'_>,
        given: &TestArguments,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let assumed: Vec<&str> = free.iter().map(|condition| condition.source()).collect();
        let caller = Caller { agent: point.agent, claims: None };
        for combination in 0..3_usize.pow(free.len() as u32) {
            self.search.spend(64)?;
            let outcome = |condition: &Condition| {
                let at = assumed.iter().position(|source| *source == condition.source())?;
                Some(match combination / 3_usize.pow(at as u32) % 3 {
                    0 => Ok(true),
                    1 => Ok(false),
                    _ => Err(()),
                })
            };
            let decide = |cell: &Cell| cell.decide_assuming(caller, &Call::with(given), &outcome);
            let decisions: Vec<Decision> = cells.iter().map(decide).collect();
            if visit(point, &decisions, &assumed).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn asks_about_hints(&self, hints: &Hints) -> bool {
        match self.asked.only {
            Some(only) if only.tags().is_some() => only.carried_by(hints),
            _ => true,
        }
    }

    /// Whether the question is about a call with these arguments: by the tool's name, or by its action.
    fn asks_about_call(&self, name: &str, given: &TestArguments, keys: &[&[Box<str>]]) -> bool {
        let Some(only) = self.asked.only.filter(|only| only.tags().is_none()) else { return true };
        if only.names_tool(name) {
            return true;
        }
        let mut actions = keys.iter().map(|keys| Action::of(&Call::with(given), keys));
        actions.any(|action| match action {
            Action::Is(action) => only.actions_of(name, true).any(|glob| glob.matches(&action)),
            Action::Missing | Action::Ambiguous(_) => false,
        })
    }
}

/// Arguments for every way in which policies with these action keys can find an action: none, each action,
/// an ambiguous one, and different ones where the keys differ.
fn actions(keys: &[&[Box<str>]], texts: &[String]) -> Vec<Map<String, Value>> {
    let mut all: Vec<&str> = Vec::new();
    for key in keys.iter().flat_map(|keys| keys.iter()) {
        if !all.contains(&&**key) {
            all.push(key);
        }
    }
    let with = |keys: &[&str], value: &Value| -> Map<String, Value> {
        keys.iter().map(|key| ((*key).to_owned(), value.clone())).collect()
    };
    let mut calls = vec![Map::new()];
    let same = keys.windows(2).all(|pair| pair[0] == pair[1]);
    let (ambiguous, mut values) = (json!(1), Vec::new());
    values.extend(texts.iter().map(|text| json!(text)));
    values.push(ambiguous.clone());
    let sets: Vec<Vec<&str>> = match same {
        true => all.first().map(|key| vec![*key]).into_iter().collect(),
        false => all.iter().map(|key| vec![*key]).chain([all.clone()]).collect(),
    };
    for set in &sets {
        calls.extend(values.iter().map(|value| with(set, value)));
    }
    if !same {
        // A key that only one of them reads has one value, all keys of the other have another one.
        for own in keys {
            let others = keys.iter().filter(|other| other != &own).flat_map(|keys| keys.iter());
            let others: Vec<&str> = others.map(|key| &**key).collect();
            for key in own.iter().filter(|key| !others.contains(&&***key)) {
                for one in &values {
                    for other in &values {
                        let mut call = with(&others, other);
                        call.insert(key.to_string(), one.clone());
                        calls.push(call);
                    }
                }
            }
        }
    }
    calls
}
