//! A bash file that defines `mcp_tools_policy_check`, as another framework has it. One bash reads it
//! and answers all calls, each in a process of its own: nothing that one call leaves behind reaches
//! the next, and one that hangs keeps nobody waiting.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use toolward_wire::Raw;

use super::super::GuardedCall;
use super::Environment;
use super::answer::{Denial, Failed, LONGEST, Said, passed_on};
use super::persistent::{Answer, Framing, Persistent};
use super::process::Program;
use super::request::metadata;
use crate::upstream::Log;

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
        name: &str,
        log: &Log,
    ) -> Result<Shell, String> {
        // Without a folder in its name, bash would look for it elsewhere.
        let file = std::path::absolute(&file).map_err(|error| error.to_string())?;
        policy_file(&file)?;
        let arguments = ["--noprofile", "--norc", "-c", DRIVER, "toolward"].map(Into::into);
        let arguments = arguments.into_iter().chain([file.clone().into()]).collect();
        let program = Program::new("bash".into(), arguments, environment).with_everything();
        let may_start = Box::new(move || policy_file(&file));
        Ok(Shell { process: Persistent::guarded(program, may_start, name, log) })
    }

    pub(super) async fn ask(
        &self,
        call: &GuardedCall<'_>,
        timeout: Duration,
    ) -> Result<Said, Failed> {
        let tool = &*call.permit.decided().original;
        let Some(plan) = call.permit.plan().filter(|_| !tool.contains('\0')) else {
            return Err(Failed("the tool's name cannot be given to a shell".into()));
        };
        let metadata = metadata(call, plan);
        let body = |id| {
            let head = format!("{id} {} {}\n", tool.len(), metadata.len());
            [head.as_bytes(), tool.as_bytes(), metadata.as_bytes()].concat()
        };
        match self.process.ask(body, timeout).await {
            Ok(Said::Deny(denial)) if denial.message.is_empty() => {
                let message = format!("Tool '{tool}' blocked by policy");
                Ok(Said::Deny(Denial { message, ..denial }))
            }
            said => said,
        }
    }
}

/// Whether nobody but this user can have written the file, or can put another in its place.
pub fn policy_file(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let shown = file.display();
    let found = std::fs::symlink_metadata(file)
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if !found.is_file() {
        let what = if found.is_symlink() { "a symbolic link" } else { "no regular file" };
        return Err(format!("{shown} is {what}; give the file itself"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{shown} belongs to another user"));
    }
    let writable = |mode: u32| mode & 0o022 != 0;
    if writable(found.mode()) {
        return Err(format!("{shown} can be written by others: `chmod go-w` it"));
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    let around = std::fs::metadata(folder)
        .map_err(|error| format!("the folder of {shown} cannot be read: {error}"))?;
    if writable(around.mode()) {
        return Err(format!("the folder of {shown} can be written by others: `chmod go-w` it"));
    }
    Ok(())
}

/// Answers of the driver.
struct Fields;

impl Framing for Fields {
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

    #[test]
    fn a_file_that_others_could_change_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.sh");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(policy_file(&file).unwrap_err().contains("cannot be read"));
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(policy_file(&file), Ok(()));
        for writable in [0o664, 0o646, 0o666] {
            mode(&file, writable);
            assert!(policy_file(&file).unwrap_err().contains("written by others"));
        }
        mode(&file, 0o600);
        let link = folder.path().join("link.sh");
        symlink(&file, &link).unwrap();
        assert!(policy_file(&link).unwrap_err().contains("symbolic link"));
        assert!(policy_file(folder.path()).unwrap_err().contains("no regular file"));
        mode(folder.path(), 0o770);
        assert!(policy_file(&file).unwrap_err().contains("folder"));
        mode(folder.path(), 0o700);
        assert_eq!(policy_file(&file), Ok(()));
    }
}
