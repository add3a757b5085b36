//! The reference matcher: walks every layer and step as the contract is written, and traces what it
//! tried.
//!
//! It shares no index and no compiled cell with the fast path, only the matching of a single
//! selector. A property test checks that both make the same decisions, so an explanation always
//! describes the policy that is enforced.

use crate::call::{Action, Ambiguity, Call, Caller};
use crate::cell::{declared_actions, of_all_actions};
use crate::condition::Facts;
use crate::decision::{Answer, Decision, Kind, RuleRef, Side, Step, Verdict, strictest};
use crate::layer::{Agent, Allowlist, Layer, List, Rule, Rules};
use crate::policy::{Policy, Subject};
use crate::selector::fold;
use crate::source::Case;
use crate::view::{
    Asked, allowlist_client_request, allowlist_others, client_request, narrows_tools, read_only,
    server_step, step_of,
};

/// A decision and its trace.
#[derive(Debug, Clone)]
pub struct Explanation {
    pub decision: Decision,
    /// One entry per layer; empty if exposure or a missing policy already decided.
    pub layers: Vec<LayerTrace>,
}

/// The trace of one layer.
#[derive(Debug, Clone)]
pub struct LayerTrace {
    pub layer: u16,
    pub decision: Decision,
    /// The agent whose rules were used, in a layer with agents.
    pub agent: Option<String>,
    pub steps: Vec<StepTrace>,
}

/// One step that was tried.
#[derive(Debug, Clone)]
pub struct StepTrace {
    pub step: Step,
    /// The number of entries of this step for this server.
    pub entries: usize,
    /// The entries that cover the subject, in order.
    pub tried: Vec<Tried>,
    pub note: Option<String>,
    /// When listing a tool whose schema lists its actions: the action that this step is about.
    pub action: Option<String>,
}

impl StepTrace {
    fn new(step: Step) -> StepTrace {
        StepTrace { step, entries: 0, tried: Vec::new(), note: None, action: None }
    }
}

/// An entry that covers the subject, and its outcome.
#[derive(Debug, Clone)]
pub struct Tried {
    pub rule: RuleRef,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It matched and decided.
    Matched,
    /// During listing: the arguments decide whether it matches.
    Maybe,
    /// It names a different action.
    OtherAction,
    /// Its condition is false.
    ConditionFalse,
    /// Its condition failed to evaluate: it then matches in a deny list, and never allows.
    ConditionFailed(String),
}

/// The kind of question to explain.
#[derive(Clone, Copy)]
pub enum Query<'a> {
    Call(Call<'a>),
    List,
}

impl Policy {
    /// Explains a decision by walking all layers. The decision equals that of [`Policy::cell`].
    pub fn explain(
        &self,
        caller: Caller<'_>,
        server: &str,
        subject: Subject<'_>,
        query: Query<'_>,
    ) -> Explanation {
        let named = match self.name(server, &subject) {
            Ok(named) => named,
            Err(decision) => {
                return Explanation { decision, layers: Vec::new() };
            }
        };
        let (name, tool) = (&*named.name, named.tool);
        let action_keys = self.action_keys(server, name);
        let walk = Walk {
            asked: named.asked(self, (caller.agent, server), action_keys),
            caller,
            server,
            definition: tool.map_or("{}", |tool| tool.definition()),
            action_keys,
            actions: tool.and_then(|tool| declared_actions(tool, action_keys)),
            query,
        };
        let layers: Vec<LayerTrace> = self
            .layers
            .iter()
            .enumerate()
            .map(|(index, layer)| walk.layer(index as u16, layer))
            .collect();
        let decision = strictest(layers.iter().map(|layer| layer.decision));
        // There is at least one layer, so there is an answer.
        let decision = decision.unwrap_or(Decision::outside(Verdict::Deny, Step::DefaultDeny));
        Explanation { decision, layers }
    }
}

/// One walk through all layers.
struct Walk<'a> {
    asked: Asked<'a>,
    caller: Caller<'a>,
    server: &'a str,
    definition: &'a str,
    action_keys: &'a [Box<str>],
    actions: Option<Box<[Option<Box<str>>]>>,
    query: Query<'a>,
}

/// A list that applies, with the address of its entries.
struct Applied<'p> {
    list: &'p List,
    side: Side,
    agent: u32,
    key: u32,
}

/// Whether an entry covers the subject.
#[derive(PartialEq)]
enum Speaks {
    No,
    OfTheTool,
    /// Covers only some of its actions.
    OfAnAction,
}

impl Walk<'_> {
    fn layer(&self, index: u16, layer: &Layer) -> LayerTrace {
        let mut trace =
            LayerTrace { layer: index, agent: None, steps: Vec::new(), decision: NOTHING };
        let answer = match &layer.rules {
            Rules::ReadOnly => self.note(&mut trace, read_only(&self.asked)),
            Rules::Allowlist(allowlist) => self.allowlist(allowlist, &mut trace),
            Rules::Agents(agents) => match agents.agent(self.caller.agent) {
                None => {
                    let answer = Answer::new(Verdict::Deny, Step::UnknownAgent);
                    self.note(&mut trace, answer)
                }
                Some(at) => {
                    let agent = &agents.agents[at as usize];
                    trace.agent = Some(agent.name.to_string());
                    self.agent(agent, at, &mut trace)
                }
            },
        };
        trace.decision = answer.in_layer(index);
        trace
    }

    /// Traces a step that has no entries of its own.
    fn note(&self, trace: &mut LayerTrace, answer: Answer) -> Answer {
        let tried = answer.rule.map(|rule| Tried { rule, outcome: Outcome::Matched });
        trace.steps.push(StepTrace {
            step: answer.step,
            entries: tried.iter().len(),
            tried: tried.into_iter().collect(),
            note: None,
            action: None,
        });
        answer
    }

    fn agent(&self, agent: &Agent, at: u32, trace: &mut LayerTrace) -> Answer {
        let server = fold(self.server, agent.case);
        let answer = self.note(trace, server_step(agent, at, &server));
        if answer.verdict == Verdict::Deny {
            return answer;
        }
        if self.asked.kind == Kind::ClientRequests {
            return self.note(trace, client_request(agent, at, self.asked.name));
        }
        let mut applied = Vec::new();
        for (side, lists) in [(Side::Deny, &agent.deny), (Side::Allow, &agent.allow)] {
            for (key, list) in lists.of(self.asked.kind).iter().enumerate() {
                if list.key.matches(&server) {
                    applied.push(Applied { list, side, agent: at, key: key as u32 });
                }
            }
        }
        let granted = |list: &Applied<'_>| list.side == Side::Allow && !list.list.rules.is_empty();
        let narrowed = applied.iter().any(granted)
            || (self.asked.kind != Kind::Tools && narrows_tools(agent, &server));
        let end = if narrowed {
            Answer::new(Verdict::Deny, Step::DefaultDeny)
        } else {
            Answer::new(Verdict::Allow, Step::ImplicitGrant)
        };
        let names = [fold(self.asked.name, agent.case).into_owned()];
        let steps = [Step::ExactDeny, Step::WildcardDeny, Step::ExactAllow, Step::WildcardAllow];
        self.rules(&names, agent.case, &applied, &steps, end, trace)
    }

    fn allowlist(&self, allowlist: &Allowlist, trace: &mut LayerTrace) -> Answer {
        let none = Answer::new(Verdict::Deny, Step::AllowlistNone);
        if self.asked.kind == Kind::ClientRequests {
            return self.note(trace, allowlist_client_request(self.asked.name));
        }
        let Some(list) = allowlist.of(self.asked.kind) else {
            return self.note(trace, allowlist_others(allowlist).unwrap_or(none));
        };
        let name = fold(self.asked.name, allowlist.case).into_owned();
        let names = [format!("{}.{name}", fold(self.server, allowlist.case)), name];
        let applied = [Applied { list, side: Side::Allowlist, agent: 0, key: 0 }];
        self.rules(&names, allowlist.case, &applied, &[Step::AllowlistMatch], none, trace)
    }

    /// Evaluates the entries of a layer: the action first, then step by step.
    fn rules(
        &self,
        names: &[String],
        case: Case,
        applied: &[Applied<'_>],
        steps: &[Step],
        end: Answer,
        trace: &mut LayerTrace,
    ) -> Answer {
        let names_action = applied.iter().any(|list| {
            list.list.rules.iter().any(|rule| self.names_action(rule, list.side, names))
        });
        let reads_action = applied.iter().any(|list| list.list.reads_action);
        let looks_for_action = self.asked.kind == Kind::Tools && (names_action || reads_action);
        let steps = Steps { names, case, applied, steps, end };
        match self.query {
            Query::Call(call) => {
                let mut action = None;
                if looks_for_action {
                    match self.action(&call, names, applied) {
                        Ok(found) => action = found,
                        Err(ambiguity) => {
                            trace.steps.push(StepTrace {
                                step: Step::AmbiguousAction,
                                entries: 0,
                                tried: Vec::new(),
                                note: Some(ambiguity.to_string()),
                                action: None,
                            });
                            return Answer::new(Verdict::Deny, Step::AmbiguousAction);
                        }
                    }
                }
                self.walk(&steps, Some(action.as_deref()), Some(&call), trace)
            }
            Query::List => match &self.actions {
                Some(actions) if names_action => {
                    let each: Vec<Answer> = actions
                        .iter()
                        .map(|action| match action {
                            None => Answer::new(Verdict::Deny, Step::AmbiguousAction),
                            Some(action) => {
                                let first = trace.steps.len();
                                let answer = self.walk(&steps, Some(Some(&**action)), None, trace);
                                for step in &mut trace.steps[first..] {
                                    step.action = Some(action.to_string());
                                }
                                answer
                            }
                        })
                        .collect();
                    of_all_actions(&each)
                }
                _ => self.walk(&steps, None, None, trace),
            },
        }
    }

    fn names_action(&self, rule: &Rule, side: Side, names: &[String]) -> bool {
        let by_pattern = side == Side::Deny || self.asked.declares_action;
        self.asked.kind == Kind::Tools
            && names.iter().any(|name| rule.selector.actions_of(name, by_pattern).next().is_some())
    }

    fn action(
        &self,
        call: &Call<'_>,
        names: &[String],
        applied: &[Applied<'_>],
    ) -> Result<Option<String>, Ambiguity> {
        match Action::of(call, self.action_keys) {
            Action::Ambiguous(ambiguity) => Err(ambiguity),
            Action::Is(action) => Ok(Some(action.into())),
            Action::Missing => {
                let denies = |rule: &Rule| {
                    self.names_action(rule, Side::Deny, names)
                        && (self.asked.declares_action
                            || names.iter().any(|name| rule.selector.spells_action_of(name)))
                };
                let ambiguous = applied
                    .iter()
                    .any(|list| list.side == Side::Deny && list.list.rules.iter().any(denies));
                if ambiguous { Err(Ambiguity::Missing) } else { Ok(None) }
            }
        }
    }

    /// Evaluates the entries in order. `action` is `None` if it is unknown (during listing); `call`
    /// is `None` if the arguments are unknown.
    fn walk(
        &self,
        steps: &Steps<'_>,
        action: Option<Option<&str>>,
        call: Option<&Call<'_>>,
        trace: &mut LayerTrace,
    ) -> Answer {
        let mut maybes: Vec<Answer> = Vec::new();
        let mut end = None;
        for &step in steps.steps {
            let mut written = StepTrace::new(step);
            for applied in steps.applied {
                for (entry, rule) in applied.list.rules.iter().enumerate() {
                    if step_of(applied.side, rule) != step {
                        continue;
                    }
                    written.entries += 1;
                    if end.is_some() {
                        continue;
                    }
                    let at = RuleRef {
                        side: applied.side,
                        kind: self.asked.kind,
                        agent: applied.agent,
                        key: applied.key,
                        entry: entry as u32,
                    };
                    let Some(outcome) = self.ask(rule, applied.side, steps, action, call) else {
                        continue;
                    };
                    let verdict = self.asked.verdict(applied.side, rule);
                    let answer = Answer::by(verdict, step, at);
                    match &outcome {
                        Outcome::Matched => end = Some(answer),
                        Outcome::ConditionFailed(_) if verdict == Verdict::Deny => {
                            end = Some(answer);
                        }
                        Outcome::Maybe => maybes.push(answer),
                        _ => {}
                    }
                    written.tried.push(Tried { rule: at, outcome });
                }
            }
            trace.steps.push(written);
            if end.is_some() {
                break;
            }
        }
        let end = end.unwrap_or_else(|| self.note(trace, steps.end));
        outcome_of(&maybes, end)
    }

    /// The outcome of one entry; `None` if it does not cover the subject.
    fn ask(
        &self,
        rule: &Rule,
        side: Side,
        steps: &Steps<'_>,
        action: Option<Option<&str>>,
        call: Option<&Call<'_>>,
    ) -> Option<Outcome> {
        let speaks = self.speaks(rule, side, steps.names);
        let mut maybe = false;
        match speaks {
            Speaks::No => return None,
            Speaks::OfTheTool => {}
            Speaks::OfAnAction => match action {
                None => maybe = true,
                Some(None) => return Some(Outcome::OtherAction),
                Some(Some(action)) => {
                    let action = fold(action, steps.case);
                    let by_pattern = side == Side::Deny || self.asked.declares_action;
                    let mut globs = steps
                        .names
                        .iter()
                        .flat_map(|name| rule.selector.actions_of(name, by_pattern));
                    if !globs.any(|glob| glob.matches(&action)) {
                        return Some(Outcome::OtherAction);
                    }
                }
            },
        }
        if let Some(when) = &rule.when {
            let open = match call {
                None => when.is_open_in_listing(self.caller, action.is_some()),
                Some(_) => when.reads().action && action.is_none(),
            };
            if open {
                return Some(Outcome::Maybe);
            }
            let facts = Facts {
                caller: self.caller,
                server: self.server,
                tool: self.asked.name,
                action: action.flatten(),
                arguments: call.and_then(|call| call.arguments),
                hints: self.asked.hints,
                definition: self.definition,
            };
            match when.holds(&facts) {
                Ok(true) => {}
                Ok(false) => return Some(Outcome::ConditionFalse),
                Err(_) if maybe && side == Side::Deny => return Some(Outcome::Maybe),
                Err(why) => return Some(Outcome::ConditionFailed(why)),
            }
        }
        Some(if maybe { Outcome::Maybe } else { Outcome::Matched })
    }

    fn speaks(&self, rule: &Rule, side: Side, names: &[String]) -> Speaks {
        if rule.selector.carried_by(self.asked.hints)
            || names.iter().any(|name| rule.selector.names_tool(name))
        {
            Speaks::OfTheTool
        } else if self.names_action(rule, side, names) {
            Speaks::OfAnAction
        } else {
            Speaks::No
        }
    }
}

/// The input of a walk.
struct Steps<'a> {
    names: &'a [String],
    case: Case,
    applied: &'a [Applied<'a>],
    steps: &'a [Step],
    end: Answer,
}

const NOTHING: Decision =
    Decision { verdict: Verdict::Deny, layer: None, step: Step::DefaultDeny, rule: None };

fn outcome_of(maybes: &[Answer], end: Answer) -> Answer {
    let verdicts = || maybes.iter().chain([&end]).map(|answer| answer.verdict);
    let (Some(first), Some(most), Some(least)) =
        (maybes.first(), verdicts().max(), verdicts().min())
    else {
        return end;
    };
    match (least, most) {
        (Verdict::Deny, _) | (_, Verdict::Allow) => end,
        (_, Verdict::Deny) => Answer { verdict: Verdict::Depends, ..*first },
        _ => *maybes.iter().chain([&end]).find(|answer| answer.verdict == most).unwrap_or(&end),
    }
}
