//! Hooks: the operator's own code, asked before a call is forwarded.
//!
//! | kind | is |
//! |---|---|
//! | [`exec`] | a program that is started for each call |
//! | [`persistent`] | processes that answer many calls each; a [`policy.sh`](shell) is one too |
//! | [`http`] | a service |
//!
//! Every way of going wrong is a [`Failed`]; what follows from it is the hook's `critical`.

pub(super) mod answer;
mod exec;
mod failures;
mod http;
mod persistent;
mod policy_file;
mod pool;
mod process;
mod request;
mod share;
mod shell;
mod streams;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolward_policy::selector::Glob;

use self::answer::{Failed, Said};
use self::exec::Exec;
use self::failures::Failures;
use self::http::Http;
use self::persistent::{Lines, Persistent};
use self::pool::Timeouts;
use self::process::Program;
use self::shell::Shell;
use super::{GuardedCall, Selection};
use crate::http_client::Address;

/// A hook as people see it, for the admin UI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownHook {
    pub name: String,
    /// `exec`, `persistent`, `policy_sh` or `http`.
    pub kind: &'static str,
    /// If the hook fails, the call is refused.
    pub critical: bool,
    /// Whether it sees the arguments of calls.
    pub arguments: bool,
    pub timeout: Duration,
    /// It is asked about some calls of the tool only, by their action.
    pub partial: bool,
    /// It is asked about all tools.
    pub every_tool: bool,
}

pub use self::policy_file::policy_file;
pub use self::process::{end_all, runnable};

/// A hook as the configuration has it.
#[derive(Debug, Clone)]
pub struct HookDefinition {
    pub name: String,
    pub kind: HookKind,
    /// Lower is asked first; hooks with the same are asked in the order of the file.
    pub priority: u8,
    /// A failure refuses the call.
    pub critical: bool,
    pub timeout: Duration,
    /// How long a persistent process may take from its start to its first answer.
    pub start_timeout: Duration,
    /// It sees the call's arguments.
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

/// What a hook sees beside the few variables that every child sees.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub declared: Vec<(OsString, OsString)>,
    /// Variables of the gateway's own that it sees, by name or pattern.
    pub passed: Vec<Glob>,
}

/// A hook that can be asked.
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

/// Where a hook stands among others.
pub(super) fn order(hook: &Hook) -> u8 {
    hook.priority
}

impl Hook {
    pub(super) fn new(definition: HookDefinition) -> Result<Hook, String> {
        let name: Arc<str> = definition.name.as_str().into();
        let failures = Arc::new(Failures::new(definition.name.to_string()));
        let timeout = definition.timeout;
        let timeouts = Timeouts { call: timeout, start: definition.start_timeout };
        let wrong = |why| format!("the hook `{name}`: {why}");
        let kind = match definition.kind {
            HookKind::Exec { program, arguments, persistent } => {
                let program = Program::new(program, arguments, definition.environment);
                let program = program.resolved().map_err(wrong)?;
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

    /// The hook as people see it.
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

    /// What the hook says of a call, or how it failed.
    pub(super) async fn ask(&self, call: &GuardedCall<'_>) -> Result<Said, Failed> {
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
        // Whatever was started for this call ends with it. Persistent hooks count their own time.
        let answer = match self.kind {
            Kind::Exec(_) | Kind::Http(_) => tokio::time::timeout(self.timeout, answer).await,
            Kind::Persistent(_) | Kind::Shell(_) => Ok(answer.await),
        };
        let said = match answer.unwrap_or_else(|_| Err(Failed("it did not answer in time".into())))
        {
            Ok(Said::Deny(denial)) => Ok(Said::Deny(denial.or_words(&self.name, call))),
            said => said,
        };
        if let Err(failed) = &said {
            self.failures.log(&failed.0);
        }
        said
    }
}
