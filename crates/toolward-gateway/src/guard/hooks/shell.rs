//! A bash file that defines `mcp_tools_policy_check`, compatible with mcp-bash. One bash process sources
//! it and answers all calls, each in a subshell of its own: no state leaks from one call to the next, and
//! a call that hangs blocks no other.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use toolward_wire::Raw;

use super::super::GuardedCall;
use super::Environment;
use super::answer::{Denial, HookError, HookVerdict, MAX_ANSWER_BYTES, error_code};
use super::failures::Failures;
use super::persistent::{Answer, Framing, Persistent};
use super::policy_file::policy_file;
use super::pool::Timeouts;
use super::process::Program;
use super::request::metadata;
use super::share::Quota;
use crate::program;

const DRIVER: &str = include_str!("driver.bash");
/// The fields of an answer: id, verdict, code, message, data, each terminated by NUL.
const FIELD_COUNT: usize = 5;

pub(super) struct Shell {
    process: Persistent<Fields>,
}

impl Shell {
    pub(super) fn new(
        file: PathBuf,
        environment: Environment,
        timeouts: Timeouts,
        name: &str,
        failures: &Arc<Failures>,
    ) -> Result<Shell, String> {
        // Without a directory in its name, bash would search `PATH` for it.
        let file = std::path::absolute(&file).map_err(|error| error.to_string())?;
        usable_policy_file(&file)?;
        let arguments = ["--noprofile", "--norc", "-c", DRIVER, "toolward"].map(Into::into);
        let arguments = arguments.into_iter().chain([file.clone().into()]).collect();
        let program = Program::new("bash".into(), arguments, environment)
            .with_whole_environment()
            .resolved()?;
        let may_start = Box::new(move || policy_file(&file));
        Ok(Shell { process: Persistent::guarded(program, may_start, timeouts, name, failures) })
    }

    /// Starts bash before the first call.
    pub(super) fn start(&self) {
        self.process.start();
    }

    pub(super) async fn ask(&self, call: &GuardedCall<'_>) -> Result<HookVerdict, HookError> {
        let tool = &*call.permit.decision().original;
        let Some(plan) = call.plan.filter(|_| !tool.contains('\0')) else {
            return Err(HookError("the tool's name cannot be given to a shell".into()));
        };
        let Some(metadata) = metadata(call, plan) else {
            return Err(HookError("the tool's definition is not a JSON object".into()));
        };
        let body = |id| {
            let head = format!("{id} {} {}\n", tool.len(), metadata.len());
            [head.as_bytes(), tool.as_bytes(), metadata.as_bytes()].concat()
        };
        match self.process.ask(body, call.client.caller.agent.as_deref()).await {
            Ok(HookVerdict::Deny(denial)) if denial.message.is_empty() => {
                let message = format!("Tool '{tool}' blocked by policy");
                Ok(HookVerdict::Deny(Denial { message, ..denial }))
            }
            verdict => verdict,
        }
    }
}

/// Checks the file of a `policy_sh` without running it: no other user can change it, and bash can parse it.
pub fn usable_policy_file(file: &Path) -> Result<(), String> {
    policy_file(file)?;
    let Some(bash) = program::find("bash".as_ref(), std::env::var_os("PATH").as_deref()) else {
        return Err("`bash` was not found in PATH".into());
    };
    // A path that does not begin with `/` could be taken for an option.
    let file = std::path::absolute(file).map_err(|error| error.to_string())?;
    let mut parse = Command::new(bash);
    // Without variables: a shell would run the code that `BASH_ENV` names.
    parse.env_clear().arg("-n").arg(&file).stdin(Stdio::null());
    let parsed = parse.output().map_err(|error| format!("bash cannot be started: {error}"))?;
    if parsed.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&parsed.stderr);
    let first = errors.lines().next().unwrap_or("bash cannot parse it");
    match first.strip_prefix(&*file.to_string_lossy()) {
        Some(rest) => Err(format!("{}{rest}", file.display())),
        None => Err(format!("{}: {first}", file.display())),
    }
}

/// Answers of the driver.
struct Fields;

impl Framing for Fields {
    const CONCURRENT: bool = true;
    const QUOTA: Quota = Quota::PROCESS_PER_CALL;

    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str> {
        let strange = "it prints something that is not an answer";
        let mut ends = buffer.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let Some((end, _)) = ends.nth(FIELD_COUNT - 1) else { return Ok(None) };
        let whole = buffer.get(..end).unwrap_or_default().to_vec();
        buffer.advance(end + 1);
        let mut parts = whole.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut part = || parts.next().ok_or(strange);
        let id = part()?.parse().map_err(|_| strange)?;
        let (word, code, message, data) = (part()?, part()?, part()?, part()?);
        let verdict = match &*word {
            "allow" => Ok(HookVerdict::Allow),
            "deny" => Ok(HookVerdict::Deny(Denial::plain())),
            "error" => Ok(HookVerdict::Deny(Denial {
                code: error_code(code.parse().ok()),
                message: message.into_owned(),
                // Data that is not JSON is dropped; the refusal remains.
                data: Raw::scan(data.as_bytes(), MAX_ANSWER_BYTES)
                    .ok()
                    .map(|data| data.bytes().into()),
            })),
            _ => Err(HookError("its check exited without an answer".into())),
        };
        Ok(Some((id, verdict)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_driver_are_fields() {
        let mut buffer = BytesMut::from(
            &b"1\0allow\0\0\0\x002\0error\0-32600\0no\nway\0{\"a\":1}\x003\0error\0x\0n\0{\x004\0fail\0\0\0\x005\0d"[..],
        );
        assert!(matches!(Fields::next(&mut buffer), Ok(Some((1, Ok(HookVerdict::Allow))))));
        let Ok(Some((2, Ok(HookVerdict::Deny(denial))))) = Fields::next(&mut buffer) else {
            panic!()
        };
        assert_eq!((denial.code, &*denial.message), (-32600, "no\nway"));
        assert_eq!(denial.data.as_deref(), Some(&b"{\"a\":1}"[..]));
        let Ok(Some((3, Ok(HookVerdict::Deny(denial))))) = Fields::next(&mut buffer) else {
            panic!()
        };
        assert_eq!((denial.code, denial.data), (-32602, None));
        assert!(matches!(Fields::next(&mut buffer), Ok(Some((4, Err(_))))));
        assert!(matches!(Fields::next(&mut buffer), Ok(None)));
        assert!(Fields::next(&mut b"x\0allow\0\0\0\0"[..].into()).is_err());
    }
}
