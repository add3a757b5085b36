//! Hooks: the operator's own code, which can veto a call before it is forwarded.
//!
//! | kind | is |
//! |---|---|
//! | [`exec`] | a program that is started for each call |
//! | [`persistent`] | processes that answer many calls each; a [`policy.sh`](shell) is one too |
//! | [`http`] | a service |
//!
//! Every failure is a [`HookError`]; the hook's `critical` setting determines its consequence.

pub(super) mod answer;
mod exec;
mod failures;
mod http;
mod interpreter;
mod persistent;
mod policy_file;
mod pool;
pub(super) mod process;
mod request;
mod script;
mod share;
mod shell;
mod streams;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolward_policy::selector::Glob;

use self::answer::{HookError, HookVerdict};
use self::exec::Exec;
use self::failures::Failures;
use self::http::Http;
use self::persistent::{Lines, Persistent};
use self::pool::Timeouts;
use self::process::Program;
use self::shell::Shell;
use super::{GuardedCall, Selection};
use crate::http_client::Address;

/// A hook for display in the admin UI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownHook {
    pub name: String,
    /// `exec`, `persistent`, `policy_sh` or `http`.
    pub kind: &'static str,
    /// If the hook fails, the call is refused.
    pub critical: bool,
    /// Whether it gets the arguments of calls.
    pub arguments: bool,
    pub timeout: Duration,
    /// It checks only some calls of the tool, by their action.
    pub partial: bool,
    /// It checks all tools.
    pub every_tool: bool,
}

pub use self::process::{end_all, runnable};
pub use self::script::Scripts;
pub use self::shell::usable_policy_file;

/// A hook as configured.
#[derive(Debug, Clone)]
pub struct HookDefinition {
    pub name: String,
    pub kind: HookKind,
    /// Lower runs first; hooks with the same priority run in file order.
    pub priority: u8,
    /// A failure refuses the call.
    pub critical: bool,
    pub timeout: Duration,
    /// Timeout of a persistent process from its start to its first answer.
    pub start_timeout: Duration,
    /// It gets the call's arguments.
    pub arguments: bool,
    pub environment: Environment,
    pub whom: Selection,
}

#[derive(Debug, Clone)]
pub enum HookKind {
    Exec { program: OsString, arguments: Vec<OsString>, persistent: bool },
    PolicySh(PathBuf),
    Http(Address),
}

/// Environment variables of a hook, besides the few that every child process inherits.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub declared: Vec<(OsString, OsString)>,
    /// Variables that it inherits from the gateway, by name or pattern.
    pub passed: Vec<Glob>,
}

/// A hook that is ready to check calls.
pub(super) struct Hook {
    pub(super) name: Arc<str>,
    pub(super) critical: bool,
    pub(super) whom: Selection,
    priority: u8,
    timeout: Duration,
    pub(super) arguments: bool,
    kind: Kind,
    failures: Arc<Failures>,
}

enum Kind {
    Exec(Exec),
    Persistent(Persistent<Lines>),
    Shell(Shell),
    Http(Box<Http>),
}

/// The sort key of hooks.
pub(super) fn order(hook: &Hook) -> u8 {
    hook.priority
}

impl Hook {
    /// Prepares a hook. `scripts` collects its script; `before` are those of the configuration it replaces.
    pub(super) fn new(
        definition: HookDefinition,
        scripts: &mut Scripts,
        before: &Scripts,
    ) -> Result<Hook, String> {
        let name: Arc<str> = definition.name.as_str().into();
        let failures = Arc::new(Failures::new(definition.name.to_string()));
        let timeout = definition.timeout;
        let timeouts = Timeouts { call: timeout, start: definition.start_timeout };
        let wrong = |why| format!("the hook `{name}`: {why}");
        let kind = match definition.kind {
            HookKind::Exec { program, arguments, persistent } => {
                let program = Program::new(program, arguments, definition.environment);
                let program = program.resolved().map_err(wrong)?;
                let program = program.with_whole_script(scripts, before).map_err(wrong)?;
                match persistent {
                    true => Kind::Persistent(Persistent::new(program, timeouts, &name, &failures)),
                    false => Kind::Exec(Exec::new(program)),
                }
            }
            HookKind::PolicySh(file) => {
                let shell = Shell::new(file, definition.environment, timeouts, &name, &failures);
                Kind::Shell(shell.map_err(wrong)?)
            }
            HookKind::Http(address) => Kind::Http(Box::new(Http::new(address))),
        };
        Ok(Hook {
            name,
            critical: definition.critical,
            whom: definition.whom,
            priority: definition.priority,
            timeout,
            arguments: definition.arguments,
            kind,
            failures,
        })
    }

    /// The hook for display.
    pub(super) fn shown(&self, partial: bool) -> ShownHook {
        let kind = match &self.kind {
            Kind::Exec(_) => "exec",
            Kind::Persistent(_) => "persistent",
            Kind::Shell(_) => "policy_sh",
            Kind::Http(_) => "http",
        };
        let (critical, arguments, timeout) = (self.critical, self.arguments, self.timeout);
        let (name, every_tool) = (self.name.to_string(), self.whom.is_about_every_tool());
        ShownHook { name, kind, critical, arguments, timeout, partial, every_tool }
    }

    /// Starts the process of a persistent hook, so that its first call does not wait for it.
    pub(super) fn start(&self) {
        match &self.kind {
            Kind::Persistent(process) => process.start(),
            Kind::Shell(shell) => shell.start(),
            Kind::Exec(_) | Kind::Http(_) => {}
        }
    }

    /// Runs the hook for a call.
    pub(super) async fn ask(&self, call: &GuardedCall<'_>) -> Result<HookVerdict, HookError> {
        let (arguments, caller) = (self.arguments, call.client.caller.agent.as_deref());
        let answer = async {
            match &self.kind {
                Kind::Exec(exec) => exec.ask(&request::json(call, arguments, None), caller).await,
                Kind::Persistent(process) => {
                    let body = |id| request::line(&request::json(call, arguments, Some(id)));
                    process.ask(body, caller).await
                }
                Kind::Shell(shell) => shell.ask(call).await,
                Kind::Http(http) => http.ask(&request::json(call, arguments, None), caller).await,
            }
        };
        // Dropping the future ends anything started for this call. Persistent hooks apply their own
        // timeouts.
        let answer = match self.kind {
            Kind::Exec(_) | Kind::Http(_) => tokio::time::timeout(self.timeout, answer).await,
            Kind::Persistent(_) | Kind::Shell(_) => Ok(answer.await),
        };
        let verdict =
            match answer.unwrap_or_else(|_| Err(HookError("it did not answer in time".into()))) {
                Ok(HookVerdict::Deny(denial)) => {
                    Ok(HookVerdict::Deny(denial.or_default_message(&self.name, call)))
                }
                verdict => verdict,
            };
        if let Err(failed) = &verdict {
            self.failures.log(&failed.0);
        }
        verdict
    }
}
