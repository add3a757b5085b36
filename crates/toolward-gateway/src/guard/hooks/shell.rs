//! A bash file that defines `mcp_tools_policy_check`, as another framework has it. One bash reads it
//! and answers all calls, each in a process of its own: nothing that one call leaves behind reaches
//! the next, and one that hangs keeps nobody waiting.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use toolward_wire::Raw;

use super::super::GuardedCall;
use super::Environment;
use super::answer::{Denial, Failed, LONGEST, Said, passed_on};
use super::failures::Failures;
use super::persistent::{Answer, Framing, Persistent};
use super::policy_file::policy_file;
use super::pool::Timeouts;
use super::process::Program;
use super::request::metadata;
use super::share::Quota;

const DRIVER: &str = include_str!("driver.bash");
/// An answer: id, verdict, code, message, data; each ends with a NUL.
const PARTS: usize = 5;

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
        // Without a folder in its name, bash would look for it elsewhere.
        let file = std::path::absolute(&file).map_err(|error| error.to_string())?;
        policy_file(&file)?;
        let arguments = ["--noprofile", "--norc", "-c", DRIVER, "toolward"].map(Into::into);
        let arguments = arguments.into_iter().chain([file.clone().into()]).collect();
        let program =
            Program::new("bash".into(), arguments, environment).with_everything().resolved()?;
        let may_start = Box::new(move || policy_file(&file));
        Ok(Shell { process: Persistent::guarded(program, may_start, timeouts, name, failures) })
    }

    /// Starts bash before the first call.
    pub(super) fn start(&self) {
        self.process.start();
    }

    pub(super) async fn ask(&self, call: &GuardedCall<'_>) -> Result<Said, Failed> {
        let tool = &*call.permit.decision().original;
        let Some(plan) = call.plan.filter(|_| !tool.contains('\0')) else {
            return Err(Failed("the tool's name cannot be given to a shell".into()));
        };
        let Some(metadata) = metadata(call, plan) else {
            return Err(Failed("the tool's definition is not a JSON object".into()));
        };
        let body = |id| {
            let head = format!("{id} {} {}\n", tool.len(), metadata.len());
            [head.as_bytes(), tool.as_bytes(), metadata.as_bytes()].concat()
        };
        match self.process.ask(body, call.client.caller.agent.as_deref()).await {
            Ok(Said::Deny(denial)) if denial.message.is_empty() => {
                let message = format!("Tool '{tool}' blocked by policy");
                Ok(Said::Deny(Denial { message, ..denial }))
            }
            said => said,
        }
    }
}

/// Answers of the driver.
struct Fields;

impl Framing for Fields {
    const CONCURRENT: bool = true;
    const QUOTA: Quota = Quota::PROCESS_PER_CALL;

    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str> {
        let strange = "it prints something that is no answer";
        let mut ends = buffer.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let Some((end, _)) = ends.nth(PARTS - 1) else { return Ok(None) };
        let whole = buffer.get(..end).unwrap_or_default().to_vec();
        buffer.advance(end + 1);
        let mut parts = whole.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut part = || parts.next().ok_or(strange);
        let id = part()?.parse().map_err(|_| strange)?;
        let (verdict, code, message, data) = (part()?, part()?, part()?, part()?);
        let said = match &*verdict {
            "allow" => Ok(Said::Allow),
            "deny" => Ok(Said::Deny(Denial::plain())),
            "error" => Ok(Said::Deny(Denial {
                code: passed_on(code.parse().ok()),
                message: message.into_owned(),
                // What is no JSON cannot be passed on; the refusal stands.
                data: Raw::scan(data.as_bytes(), LONGEST).ok().map(|data| data.bytes().into()),
            })),
            _ => Err(Failed("its check ended without an answer".into())),
        };
        Ok(Some((id, said)))
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
        assert!(matches!(Fields::next(&mut buffer), Ok(Some((1, Ok(Said::Allow))))));
        let Ok(Some((2, Ok(Said::Deny(denial))))) = Fields::next(&mut buffer) else { panic!() };
        assert_eq!((denial.code, &*denial.message), (-32600, "no\nway"));
        assert_eq!(denial.data.as_deref(), Some(&b"{\"a\":1}"[..]));
        let Ok(Some((3, Ok(Said::Deny(denial))))) = Fields::next(&mut buffer) else { panic!() };
        assert_eq!((denial.code, denial.data), (-32602, None));
        assert!(matches!(Fields::next(&mut buffer), Ok(Some((4, Err(_))))));
        assert!(matches!(Fields::next(&mut buffer), Ok(None)));
        assert!(Fields::next(&mut b"x\0allow\0\0\0\0"[..].into()).is_err());
    }
}
