//! Exit codes and error output.

use std::io::Write;
use std::process::ExitCode;

use toolward_config::Diagnostic;

use crate::log;
/// Success, or allowed.
pub(crate) const OK: u8 = 0;
/// Denied, or a test that failed.
pub(crate) const NO: u8 = 1;
/// The command was called wrongly.
pub(crate) const USAGE: u8 = 2;
/// The configuration or a policy is not valid.
pub(crate) const INVALID: u8 = 3;

/// The answer could not be found out.
pub(crate) const UNDECIDED: u8 = 4;

/// No gateway can be reached.
pub(crate) const UNREACHABLE: u8 = 5;

/// The output could not be written, because its reader has closed the pipe: what a shell reports for a
/// program that SIGPIPE (13) ended.
const CLOSED_PIPE: u8 = 128 + 13;

/// The error of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// Already sanitized for a terminal.
    message: String,
    /// The same without file excerpts, which may contain secrets.
    brief: Option<String>,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: message.into(), brief: None }
    }

    pub(crate) fn denied(message: impl Into<String>) -> Failure {
        Failure { code: NO, message: message.into(), brief: None }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Failure {
        Failure { code: UNREACHABLE, message: message.into(), brief: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure { code: INVALID, message: message.into(), brief: None }
    }

    /// The same failure, with a text without file excerpts.
    pub(crate) fn briefly(self, brief: String) -> Failure {
        Failure { brief: Some(brief), ..self }
    }

    /// The message without file excerpts.
    pub(crate) fn brief(&self) -> String {
        self.brief.clone().unwrap_or_else(|| self.text())
    }

    /// The message without colors.
    pub(crate) fn text(&self) -> String {
        anstream::adapter::strip_str(&self.message).to_string()
    }

    /// The same as a finding, for commands that report several.
    pub(crate) fn to_diagnostic(&self) -> Diagnostic {
        let text = self.text();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        match text.split_once("\n  help: ") {
            Some((message, help)) => Diagnostic::error(message).help(help),
            None => Diagnostic::error(text),
        }
    }

    pub(crate) fn report(self) -> ExitCode {
        if self.message.is_empty() {
            return ExitCode::from(self.code);
        }
        if log::is_json() {
            let (text, brief) = (self.text(), self.brief());
            let first = brief.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            tracing::error!(target: "toolward", diagnostic = text.trim_end(), "{first}");
            return ExitCode::from(self.code);
        }
        let mut stderr = anstream::stderr();
        let text = self.message.trim_end();
        // Diagnostics have their own heading.
        let headline = if text.contains("error") { "" } else { "error: " };
        let _ = writeln!(stderr, "{headline}{text}");
        ExitCode::from(self.code)
    }
}

/// A closed pipe ends the command without a message, but not successfully: with `pipefail`, a script would
/// take an unknown answer for a yes. Any other write error is reported.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => {
                Failure { code: CLOSED_PIPE, message: String::new(), brief: None }
            }
            _ => Failure::usage(format!("error: cannot write: {error}")),
        }
    }
}
