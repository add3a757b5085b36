//! Guards between a decision and the server: rate limits, then hooks. A guard can refuse a call that the
//! policy allows; it never allows a call that the policy denies, and it never changes a call.
//!
//! The guards in front of a tool are computed once, when a view is built. A call first consumes units of
//! all its limits; if a hook refuses it, they are returned, so that a refused call uses no quota.

pub mod approvals;
mod disconnect;
mod hooks;
mod limits;
pub mod pins;
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

use self::approvals::Redeemed;
use self::hooks::answer::{Denial, HookVerdict};
use self::hooks::{Hook, order};
use self::limits::{Limits, Reservation};
use self::selection::{CallSubject, Coverage};
use self::store::counters::Counters;
use crate::audit::facts::Facts;
use crate::client::Client;
use crate::permit::Permit;
use crate::upstream::Server;

pub(crate) use disconnect::OnDisconnect;

pub use hooks::ShownHook;
pub use hooks::{Environment, HookDefinition, HookKind, Scripts};
pub use hooks::{end_all, runnable, usable_policy_file};
pub use limits::{Counts, LimitDefinition, StoreSetup};
pub use selection::{AgentNames, Agents, ByAgent, Selection};
pub use shown::{InFront, ShownLimit};
pub use store::redis::{Redis, StoreTimeouts};

/// All limits and hooks of a configuration.
pub struct Guards {
    limits: Limits,
    /// In the order in which they run.
    hooks: Vec<Hook>,
    scripts: Scripts,
}

/// The configuration of guards.
pub struct Setup {
    pub limits: Vec<LimitDefinition>,
    pub store: StoreSetup,
    pub hooks: Vec<HookDefinition>,
    /// The scripts of hooks as they ran before; one that was truncated since then is refused.
    pub scripts: Scripts,
}

impl Default for Guards {
    fn default() -> Guards {
        let limits = Limits::new(Vec::new(), StoreSetup::default(), Arc::new(Counters::default()));
        Guards { limits, hooks: Vec::new(), scripts: Scripts::default() }
    }
}

impl Guards {
    /// Builds the guards. If they replace others, they keep their counters. The error is why a hook
    /// cannot be used.
    pub fn new(setup: Setup, before: Option<&Guards>) -> Result<Guards, String> {
        let counters = before.map(|before| before.limits.counters.clone()).unwrap_or_default();
        let mut scripts = Scripts::default();
        let hooks = setup.hooks.into_iter();
        let hooks = hooks.map(|hook| Hook::new(hook, &mut scripts, &setup.scripts));
        let mut hooks: Vec<Hook> = hooks.collect::<Result<_, _>>()?;
        hooks.sort_by_key(order);
        Ok(Guards { limits: Limits::new(setup.limits, setup.store, counters), hooks, scripts })
    }

    /// The scripts of hooks, for the guards that replace these.
    pub fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    /// The guards in front of a tool, for an agent; `None` if it has no guards.
    pub(crate) fn before(
        &self,
        policy: &Policy,
        agent: Option<&str>,
        server: &str,
        tool: &Tool,
    ) -> Option<Arc<Plan>> {
        let hints = policy.hints(server, tool);
        let about = CallSubject { agent, server, tool: tool.name(), hints: &hints };
        let limits = self.limits.over(about);
        let applicable =
            |(at, hook): (usize, &Hook)| Some(Applicable { at, covers: hook.whom.covers(about)? });
        let hooks: Box<[Applicable]> =
            self.hooks.iter().enumerate().filter_map(applicable).collect();
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

    /// The guards in front of the prompts and resources of a server, for an agent: the rate limits that name no
    /// tool. Hooks check calls of tools.
    pub(crate) fn before_other(&self, agent: Option<&str>, server: &str) -> Option<Arc<Plan>> {
        let limits = self.limits.over_other(agent, server);
        let (hooks, action_keys, hints, metadata) = Default::default();
        let definition = || Arc::from("{}");
        (!limits.is_empty()).then(|| {
            let definition = definition();
            Arc::new(Plan { limits, hooks, action_keys, definition, hints, metadata })
        })
    }

    /// Starts persistent hooks before the first call. Must be called on a long-lived runtime.
    pub fn start(&self) {
        self.hooks.iter().for_each(Hook::start);
    }

    /// Whether any hook gets the arguments of calls.
    pub(crate) fn read_arguments(&self) -> bool {
        self.hooks.iter().any(|hook| hook.arguments)
    }

    /// Checks whether a call may be made. Dropping the result returns the consumed units.
    pub(crate) async fn pass(&self, call: &GuardedCall<'_>) -> Result<Passed<'_>, Box<Stopped>> {
        // A call inside another one counts as both: each limit counts it once, and hooks check both.
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
            for at in call.meant(|plan| &plan.hooks) {
                let hook = self.hook(at)?;
                if hook.arguments
                    && let Some(number) = call.inexact_number()
                {
                    return Err(Box::new(Stopped::inexact(hook, &number)));
                }
                // Boxed because hooks are rare and their future is large.
                match Box::pin(hook.ask(call)).await {
                    Ok(HookVerdict::Allow) => {}
                    Ok(HookVerdict::Deny(denial)) => {
                        return Err(Box::new(Stopped::denied(hook, denial)));
                    }
                    Err(failed) if hook.critical => {
                        return Err(Box::new(Stopped::failed(hook, &failed.0)));
                    }
                    Err(failed) => failures.push((hook.name.clone(), failed.0)),
                }
            }
        }
        Ok(Passed { reservation, failures, approval: None })
    }

    /// The hook at an index of a plan. A plan and its hooks belong to one configuration; if they ever did not, the
    /// call must not pass without the hook.
    fn hook(&self, at: usize) -> Result<&Hook, Box<Stopped>> {
        self.hooks.get(at).ok_or_else(|| Box::new(Stopped::unknown_guard(Why::Failed, "hook")))
    }

    /// The indices of the limits that can apply to calls of a tool.
    pub(crate) fn over(&self, plan: Option<&Plan>, rules: &[LimitedRule]) -> Vec<usize> {
        let applicable = plan.map_or(&[][..], |plan| &plan.limits).iter().map(|one| one.at);
        applicable.chain(self.limits.of_rules(rules)).collect()
    }

    /// The limits on an agent's listings and refused calls.
    pub(crate) fn of_agent(&self, agent: Option<&str>) -> Vec<usize> {
        [self.limits.of_lists(agent), self.limits.of_refused(agent)].concat()
    }

    /// The name and rate of a limit.
    pub(crate) fn limit(&self, at: usize) -> Option<(&str, Rate)> {
        self.limits.named(at)
    }

    /// Checks the limits on an agent's listings.
    pub(crate) async fn list(&self, agent: Option<&str>) -> Result<(), Box<Stopped>> {
        let wanted = self.limits.of_lists(agent);
        if !wanted.is_empty() {
            self.limits.take(&wanted).await?.keep();
        }
        Ok(())
    }

    /// Delays an agent that has many refused calls.
    pub(crate) async fn delay(&self, agent: Option<&str>) {
        let delay = self.limits.delay(agent);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

/// The guards in front of one tool.
#[derive(Debug)]
pub struct Plan {
    limits: Box<[Applicable]>,
    hooks: Box<[Applicable]>,
    action_keys: Box<[Box<str>]>,
    definition: Arc<str>,
    hints: Box<[Box<str>]>,
    /// The definition for a `policy_sh`.
    metadata: OnceLock<Box<str>>,
}

/// A limit or hook that applies to a tool, and the calls that it covers.
#[derive(Debug)]
struct Applicable {
    at: usize,
    covers: Coverage,
}

/// A call that the policy allows, for its guards to check.
#[derive(Clone, Copy)]
pub struct GuardedCall<'a> {
    pub(crate) client: &'a Client,
    pub(crate) id: &'a Id,
    pub(crate) permit: &'a Permit,
    pub(crate) server: &'a Server,
    /// The guards in front of it.
    pub(crate) plan: Option<&'a Plan>,
    /// The call of `execute_tool` that contains it.
    pub(crate) through: Option<&'a GuardedCall<'a>>,
}

impl<'a> GuardedCall<'a> {
    /// The guards that apply to this call, among those of its tool.
    fn meant(&self, which: impl Fn(&'a Plan) -> &'a [Applicable]) -> impl Iterator<Item = usize> {
        let (plan, arguments) = (self.plan, self.permit.message().arguments());
        let keys = plan.map_or(&[][..], |plan| &plan.action_keys);
        let applicable = plan.map_or(&[][..], which).iter();
        applicable.filter(move |one| one.covers.call(arguments, keys)).map(|one| one.at)
    }
}

impl GuardedCall<'_> {
    /// Whether a person has to approve it.
    pub(crate) fn needs_approval(&self) -> bool {
        let mut calls = self.through.into_iter().chain([self]);
        calls.any(|call| !call.permit.asks().rules.is_empty())
    }

    /// A number in the arguments that a hook could read differently from the server.
    fn inexact_number(&self) -> Option<String> {
        let mut found = None;
        let given = self.permit.message().arguments()?;
        given.raw().numbers(&mut |text| {
            if found.is_none() && Precision::of(text) == Precision::Inexact {
                found = Some(cut(text, MAX_QUOTED_NUMBER).into_owned());
            }
        });
        found
    }
}

/// Maximum length of a number quoted in a refusal.
const MAX_QUOTED_NUMBER: usize = 40;

/// A call that passed its guards.
#[must_use]
pub struct Passed<'g> {
    reservation: Reservation<'g>,
    /// The grant that covers it, if a person had to approve it.
    approval: Option<Redeemed>,
    /// Non-critical hooks that failed, and why.
    failures: Vec<(Arc<str>, String)>,
}

impl Passed<'_> {
    /// The call is made: the consumed units are not returned.
    pub(crate) fn commit(self) {
        self.reservation.keep();
    }

    /// The same call, approved by a person.
    pub(crate) fn approved(self, approval: Redeemed) -> Self {
        Passed { approval: Some(approval), ..self }
    }

    /// Members of the audit record: who approved the call, and which guard failed although it passed.
    pub(crate) fn facts(&self, facts: &mut Facts) {
        if let Some(Redeemed { grant, by, channel }) = &self.approval {
            facts.text("grant", grant);
            facts.text("approved_by", by);
            facts.text("approved_via", channel);
        }
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
    /// The name of the limit or hook.
    pub by: String,
    /// For the audit log.
    pub reason: String,
}

#[derive(Debug)]
pub enum Why {
    /// A limit is used up. `scope` is what it counts, in a text for agents.
    Full { scope: String, rate: String, wait: Duration },
    /// The store of limits cannot be used.
    Store,
    /// A hook refuses.
    Denied(Denial),
    /// A hook failed, or gave an invalid answer.
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

    /// A hook would have to check a number that it may read differently from the server.
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

    /// A call needs a guard that the active configuration does not have. This cannot happen.
    fn unknown_guard(why: Why, kind: &str) -> Stopped {
        let reason = format!("a {kind} in front of this tool does not exist");
        tracing::error!(target: "guard", "{reason}; the call is refused. This is a bug in Toolward");
        Stopped { why, by: kind.into(), reason }
    }

    /// The step in the audit record.
    pub fn step(&self) -> &'static str {
        match self.why {
            Why::Full { .. } | Why::Store => "limit",
            Why::Denied(_) | Why::Failed => "hook",
        }
    }

    /// When to retry, if known.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.why {
            // Rounded up, so that a retry is never too early.
            Why::Full { wait, .. } => {
                let millis = wait.as_nanos().div_ceil(1_000_000);
                Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_guard_that_does_not_exist_refuses_the_call() {
        let guards = Guards::default();
        assert_eq!(guards.hook(0).err().map(|stopped| stopped.step()), Some("hook"));
        assert_eq!(
            guards.limits.take(&[0]).await.err().map(|stopped| stopped.step()),
            Some("limit")
        );
        assert!(guards.limits.take(&[]).await.is_ok());
    }
}
