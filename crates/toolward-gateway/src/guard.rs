//! What stands between a decision and a server: limits, then hooks. A guard can refuse a call that
//! policy allows; it never allows what policy refuses, and it changes nothing.
//!
//! Which guards stand in front of a tool is found out once, when a view is made. A call first takes
//! its part of all limits; a hook that refuses gives it back, so that a refused call costs nothing.

mod disconnect;
mod hooks;
mod limits;
mod selection;
mod shown;
mod store;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use toolward_policy::number::Precision;
use toolward_policy::refusal::cut;
use toolward_policy::{LimitedRule, Policy, Rate, Tool};
use toolward_wire::{Id, code};

use self::hooks::answer::{Denial, Said};
use self::hooks::{Hook, order};
use self::limits::{Limits, Reservation};
use self::selection::{About, Covers};
use self::store::counters::Counters;
use crate::audit::facts::Facts;
use crate::client::Client;
use crate::permit::Permit;
use crate::upstream::Server;

pub(crate) use disconnect::OnDisconnect;

pub use hooks::ShownHook;
pub use hooks::{Environment, HookDefinition, HookKind, end_all, policy_file, runnable};
pub use limits::{Counts, LimitDefinition, StoreSetup};
pub use selection::{Agents, ByAgent, Selection};
pub use shown::{InFront, ShownLimit};
pub use store::redis::{Redis, StoreTimeouts};

/// All limits and hooks of a configuration.
pub struct Guards {
    limits: Limits,
    /// In the order in which they are asked.
    hooks: Vec<Hook>,
}

/// What guards are made of.
pub struct Setup {
    pub limits: Vec<LimitDefinition>,
    pub store: StoreSetup,
    pub hooks: Vec<HookDefinition>,
}

impl Default for Guards {
    fn default() -> Guards {
        let limits = Limits::new(Vec::new(), StoreSetup::default(), Arc::new(Counters::default()));
        Guards { limits, hooks: Vec::new() }
    }
}

impl Guards {
    /// Guards that take the place of others go on counting where those are. An error says why a hook
    /// may not be used.
    pub fn new(setup: Setup, before: Option<&Guards>) -> Result<Guards, String> {
        let counters = before.map(|before| before.limits.counters.clone()).unwrap_or_default();
        let hooks = setup.hooks.into_iter().map(Hook::new);
        let mut hooks: Vec<Hook> = hooks.collect::<Result<_, _>>()?;
        hooks.sort_by_key(order);
        Ok(Guards { limits: Limits::new(setup.limits, setup.store, counters), hooks })
    }

    /// What stands in front of a tool, for an agent; `None`: nothing.
    pub(crate) fn before(
        &self,
        policy: &Policy,
        agent: Option<&str>,
        server: &str,
        tool: &Tool,
    ) -> Option<Arc<Plan>> {
        let hints = policy.hints(server, tool);
        let about = About { agent, server, tool: tool.name(), hints: &hints };
        let limits = self.limits.over(about);
        let standing =
            |(at, hook): (usize, &Hook)| Some(Standing { at, covers: hook.whom.covers(about)? });
        let hooks: Box<[Standing]> = self.hooks.iter().enumerate().filter_map(standing).collect();
        if limits.is_empty() && hooks.is_empty() {
            return None;
        }
        Some(Arc::new(Plan {
            limits,
            hooks,
            action_keys: policy.action_keys(server, tool.name()).into(),
            definition: tool.shared_definition(),
            hints: hints.iter().map(Box::from).collect(),
            metadata: OnceLock::new(),
        }))
    }

    /// Starts persistent hooks before the first call. Must be called on a runtime that stays.
    pub fn start(&self) {
        self.hooks.iter().for_each(Hook::start);
    }

    /// Whether some hook is told the arguments of calls.
    pub(crate) fn read_arguments(&self) -> bool {
        self.hooks.iter().any(|hook| hook.arguments)
    }

    /// Whether a call may be made. What it took is given back where the answer is dropped.
    pub(crate) async fn pass(&self, call: &GuardedCall<'_>) -> Result<Passed<'_>, Box<Stopped>> {
        // A call through another one is both: each limit counts it once, and hooks are asked about both.
        let outer = call.through;
        let calls = || outer.into_iter().chain([call]);
        let mut wanted: Vec<usize> = Vec::new();
        for call in calls() {
            let meant = call.meant(|plan| &plan.limits);
            wanted.extend(meant.chain(self.limits.of_rules(call.permit.limited())));
        }
        if outer.is_some() {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let reservation = self.limits.take(&wanted).await?;

        let mut failures = Vec::new();
        for call in calls() {
            for hook in call.meant(|plan| &plan.hooks).filter_map(|at| self.hooks.get(at)) {
                if hook.arguments
                    && let Some(number) = call.inexact_number()
                {
                    return Err(Box::new(Stopped::inexact(hook, &number)));
                }
                // Hooks are rare, and what asking one takes is large.
                match Box::pin(hook.ask(call)).await {
                    Ok(Said::Allow) => {}
                    Ok(Said::Deny(denial)) => return Err(Box::new(Stopped::denied(hook, denial))),
                    Err(failed) if hook.critical => {
                        return Err(Box::new(Stopped::failed(hook, &failed.0)));
                    }
                    Err(failed) => failures.push((hook.name.clone(), failed.0)),
                }
            }
        }
        Ok(Passed { reservation, failures })
    }

    /// The limits that can stand over calls of a tool, by their places.
    pub(crate) fn over(&self, plan: Option<&Plan>, rules: &[LimitedRule]) -> Vec<usize> {
        let standing = plan.map_or(&[][..], |plan| &plan.limits).iter().map(|one| one.at);
        standing.chain(self.limits.of_rules(rules)).collect()
    }

    /// The limits over an agent's listings and refused calls.
    pub(crate) fn of_agent(&self, agent: Option<&str>) -> Vec<usize> {
        [self.limits.of_lists(agent), self.limits.of_refused(agent)].concat()
    }

    /// What a limit is called, and what it allows.
    pub(crate) fn limit(&self, at: usize) -> Option<(&str, Rate)> {
        self.limits.named(at)
    }

    /// Whether an agent may list now.
    pub(crate) async fn list(&self, agent: Option<&str>) -> Result<(), Box<Stopped>> {
        let wanted = self.limits.of_lists(agent);
        if !wanted.is_empty() {
            self.limits.take(&wanted).await?.keep();
        }
        Ok(())
    }

    /// Waits for as long as an agent with many refused calls has to.
    pub(crate) async fn delay(&self, agent: Option<&str>) {
        let delay = self.limits.delay(agent);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

/// What stands in front of one tool.
#[derive(Debug)]
pub struct Plan {
    limits: Box<[Standing]>,
    hooks: Box<[Standing]>,
    action_keys: Box<[Box<str>]>,
    definition: Arc<str>,
    hints: Box<[Box<str>]>,
    /// The definition as a `policy_sh` gets it.
    metadata: OnceLock<Box<str>>,
}

/// A limit or hook, and the calls of the tool that it is about.
#[derive(Debug)]
struct Standing {
    at: usize,
    covers: Covers,
}

/// A call that policy allows.
#[derive(Clone, Copy)]
pub struct GuardedCall<'a> {
    pub(crate) client: &'a Client,
    pub(crate) id: &'a Id,
    pub(crate) permit: &'a Permit,
    pub(crate) server: &'a Server,
    /// The guards in front of it.
    pub(crate) plan: Option<&'a Plan>,
    /// The call of `execute_tool` through which it is made.
    pub(crate) through: Option<&'a GuardedCall<'a>>,
}

impl<'a> GuardedCall<'a> {
    /// What stands in front of this very call, of all that stands in front of its tool.
    fn meant(&self, which: impl Fn(&'a Plan) -> &'a [Standing]) -> impl Iterator<Item = usize> {
        let (plan, arguments) = (self.plan, self.permit.message().arguments());
        let keys = plan.map_or(&[][..], |plan| &plan.action_keys);
        let standing = plan.map_or(&[][..], which).iter();
        standing.filter(move |one| one.covers.call(arguments, keys)).map(|one| one.at)
    }
}

impl GuardedCall<'_> {
    /// A number in the arguments that a hook could read differently from the server.
    fn inexact_number(&self) -> Option<String> {
        let mut found = None;
        let given = self.permit.message().arguments()?;
        given.raw().numbers(&mut |text| {
            if found.is_none() && Precision::of(text) == Precision::Inexact {
                found = Some(cut(text, LONGEST_NUMBER).into_owned());
            }
        });
        found
    }
}

/// So much of a number is repeated in a refusal.
const LONGEST_NUMBER: usize = 40;

/// A call that no guard refuses.
#[must_use]
pub struct Passed<'g> {
    reservation: Reservation<'g>,
    /// Hooks that failed and are not critical, and how.
    failures: Vec<(Arc<str>, String)>,
}

impl Passed<'_> {
    /// The call is made: what it took is gone.
    pub(crate) fn commit(self) {
        self.reservation.keep();
    }

    /// What the record says of a call that passed though something failed.
    pub(crate) fn facts(&self, facts: &mut Facts) {
        if self.reservation.local {
            facts.text("limit_store", "memory");
        }
        if !self.failures.is_empty() {
            let failed = |(hook, why): &(Arc<str>, String)| json!({"hook": **hook, "why": why});
            let failed: Vec<_> = self.failures.iter().map(failed).collect();
            facts.json("hooks_failed", &json!(failed).to_string());
        }
    }
}

/// A call or listing that a guard refuses.
#[derive(Debug)]
pub struct Stopped {
    pub why: Why,
    /// The limit or the hook, as a person calls it.
    pub by: String,
    /// For the record.
    pub reason: String,
}

#[derive(Debug)]
pub enum Why {
    /// A limit is used up. `scope` is what it counts, in words for agents.
    Full { scope: String, rate: String, wait: Duration },
    /// The store of limits cannot be used.
    Store,
    /// A hook refuses.
    Denied(Denial),
    /// A hook could not be asked, or said nothing that can be understood.
    Failed,
}

impl Stopped {
    fn limit((name, scope): (&str, &str), rate: &str, wait: Duration) -> Stopped {
        let reason = format!("the limit `{name}` of {rate} is used up");
        let why = Why::Full { scope: scope.into(), rate: rate.into(), wait };
        Stopped { why, by: name.into(), reason }
    }

    fn store(why: &str) -> Stopped {
        let reason = format!("the store of limits cannot be used: {why}");
        Stopped { why: Why::Store, by: "limits.store".into(), reason }
    }

    fn denied(hook: &Hook, denial: Denial) -> Stopped {
        let reason = format!("the hook `{}` refuses: {}", hook.name, denial.message);
        Stopped { why: Why::Denied(denial), by: hook.name.to_string(), reason }
    }

    /// A hook would have to judge a number that has several readings.
    fn inexact(hook: &Hook, number: &str) -> Stopped {
        let message = format!(
            "the number {number} is not exact as a 64-bit integer or double, so it cannot be checked: \
             send it with fewer digits, or as a string"
        );
        Stopped::denied(hook, Denial { code: code::INVALID_PARAMS, message, data: None })
    }

    fn failed(hook: &Hook, why: &str) -> Stopped {
        let reason = format!("the hook `{}` failed: {why}", hook.name);
        Stopped { why: Why::Failed, by: hook.name.to_string(), reason }
    }

    /// The step that the record names.
    pub fn step(&self) -> &'static str {
        match self.why {
            Why::Full { .. } | Why::Store => "limit",
            Why::Denied(_) | Why::Failed => "hook",
        }
    }

    /// When to try again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.why {
            // Never sooner than it would pass.
            Why::Full { wait, .. } => {
                let millis = wait.as_nanos().div_ceil(1_000_000);
                Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
            }
            _ => None,
        }
    }
}
