//! Parses the answers of hooks. A malformed refusal is still a refusal; only its text is replaced.

use toolward_policy::refusal::cut;
use toolward_wire::{Raw, code};

use super::super::GuardedCall;

/// Maximum size of a hook's answer, in bytes.
pub(super) const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Maximum bytes of a hook's output that are quoted in a message.
const MAX_QUOTED: usize = 100;

/// A hook's answer to a call.
#[derive(Debug)]
pub(in super::super) enum HookVerdict {
    Allow,
    Deny(Denial),
}

/// A hook's refusal, as sent to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub code: i32,
    pub message: String,
    /// JSON.
    pub data: Option<Box<[u8]>>,
}

/// Why a hook has not given a valid answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct HookError(pub(in super::super) String);

impl HookError {
    fn not_understood() -> HookError {
        HookError("its answer is invalid".into())
    }
}

impl Denial {
    /// A refusal without a message.
    pub(super) fn plain() -> Denial {
        Denial { code: code::INVALID_PARAMS, message: String::new(), data: None }
    }

    /// Reads a refusal from the members `code`, `message` and `data`.
    pub(super) fn of(said: Raw<'_>) -> Denial {
        let data = said.member("data").filter(|data| data.bytes() != b"null");
        Denial {
            code: error_code(said.member("code").and_then(Raw::as_i64)),
            message: said.member("message").and_then(Raw::as_str).unwrap_or_default().into_owned(),
            data: data.map(|data| data.bytes().into()),
        }
    }

    /// Adds a default message if the hook gave none.
    pub(super) fn or_default_message(mut self, hook: &str, call: &GuardedCall<'_>) -> Denial {
        if self.message.trim().is_empty() {
            self.message = format!("{} is refused by the hook `{hook}`", call.permit.exposed());
        }
        self
    }
}

/// The error code for the client: the hook's own, unless it is reserved by JSON-RPC or MCP.
pub(super) fn error_code(code: Option<i64>) -> i32 {
    let own = |code: &i32| (-32603..=-32600).contains(code) || !(-32768..=-32000).contains(code);
    let code = code.and_then(|code| i32::try_from(code).ok()).filter(own);
    code.unwrap_or(code::INVALID_PARAMS)
}

/// Members that an allowing answer may have, for a program that is started for each call and for a
/// service.
const ALLOWING: &[&str] = &["decision"];
/// The same for a persistent process.
const ALLOWING_WITH_ID: &[&str] = &["id", "decision"];

/// The answer of a persistent process: `{"id": 7, "decision": "allow"}` or `{…, "decision": "deny", …}`.
pub(super) fn of_line(said: Raw<'_>) -> Result<HookVerdict, HookError> {
    decision(said, ALLOWING_WITH_ID)
}

/// The answer of a service: a decision, or OPA's `{"result": …}`.
pub(super) fn of_service(body: &[u8]) -> Result<HookVerdict, HookError> {
    let said = Raw::scan(body, MAX_ANSWER_BYTES).map_err(|_| HookError::not_understood())?;
    let Some(result) = said.member("result") else { return decision(said, ALLOWING) };
    if said.member("decision").is_some() {
        return Err(HookError::not_understood());
    }
    match result_allows(result) {
        Some(true) => {
            match contradiction(said, "result").or_else(|| contradiction(result, "allow")) {
                None => Ok(HookVerdict::Allow),
                Some(member) => Err(HookError(format!(
                    "it allows the call, but its `{member}` contradicts that"
                ))),
            }
        }
        Some(false) if result.is_object() => Ok(HookVerdict::Deny(Denial::of(result))),
        Some(false) => Ok(HookVerdict::Deny(Denial::plain())),
        None => Err(HookError::not_understood()),
    }
}

/// Reads a decision in the gateway's own format. An allowing answer must not have other members, because
/// they could be a refusal in another format. A refusal may have any.
fn decision(said: Raw<'_>, allowing: &[&str]) -> Result<HookVerdict, HookError> {
    if said.member("result").is_some() {
        return Err(HookError::not_understood());
    }
    match said.member("decision").and_then(Raw::as_str).as_deref() {
        Some("allow") => match unexpected_member(said, allowing) {
            None => Ok(HookVerdict::Allow),
            Some(member) => {
                Err(HookError(format!("an allowing answer must not have the member `{member}`")))
            }
        },
        Some("deny") => Ok(HookVerdict::Deny(Denial::of(said))),
        _ => Err(HookError::not_understood()),
    }
}

fn unexpected_member(said: Raw<'_>, expected: &[&str]) -> Option<String> {
    let extra = said.members().find(|member| !expected.iter().any(|name| member.is(name)))?;
    Some(cut(&extra.name(), MAX_QUOTED).into_owned())
}

/// OPA's `true`, `false` or `{"allow": …}`.
fn result_allows(result: Raw<'_>) -> Option<bool> {
    match result.is_object() {
        true => result.member("allow").and_then(Raw::as_bool),
        false => result.as_bool(),
    }
}

/// A second verdict in an OPA answer that contradicts the first. A package often has rules for both
/// `allow` and `deny`; other members belong to the operator.
fn contradiction(said: Raw<'_>, verdict: &str) -> Option<&'static str> {
    let agrees = |name: &str, value: Raw<'_>| match name {
        "allow" | "allowed" => value.as_bool() == Some(true),
        "decision" => value.as_str().as_deref() == Some("allow"),
        "deny" | "denied" => matches!(value.bytes(), b"null" | b"false" | b"[]" | b"{}" | b"\"\""),
        _ => false,
    };
    let second = |name: &&str| said.member(name).is_some_and(|value| !agrees(name, value));
    ["allow", "allowed", "decision", "deny", "denied", "result"]
        .into_iter()
        .filter(|name| *name != verdict)
        .find(second)
}

/// The answer of a program that was started for one call: its exit code and its output.
///
/// If a program exits with 0 and prints anything but an allowing object, its answer is invalid: the
/// output may be a refusal for another kind of hook, follow a log line, or have a format of its own.
pub(super) fn of_exit(
    exit: Option<i32>,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<HookVerdict, HookError> {
    match exit {
        Some(0) if stdout.trim_ascii().is_empty() || allows(stdout) => Ok(HookVerdict::Allow),
        Some(0) => Err(HookError(format!(
            "it exits with 0 and prints something other than `{{\"decision\":\"allow\"}}`: {}",
            quoted(stdout)
        ))),
        Some(1) => Ok(HookVerdict::Deny(match object(stdout) {
            Some(said) => Denial::of(said),
            None => Denial { message: first_line(stderr), ..Denial::plain() },
        })),
        Some(other) => Err(HookError(match first_line(stderr).as_str() {
            "" => format!("it ended with {other}"),
            said => format!("it ended with {other}: {said}"),
        })),
        None => Err(HookError("it was ended by a signal".into())),
    }
}

fn object(text: &[u8]) -> Option<Raw<'_>> {
    Raw::scan(text, MAX_ANSWER_BYTES).ok().filter(|said| said.is_object())
}

/// Whether a text is a single allowing object.
fn allows(text: &[u8]) -> bool {
    object(text).is_some_and(|said| matches!(decision(said, ALLOWING), Ok(HookVerdict::Allow)))
}

/// The first line of some output, for the log.
fn quoted(text: &[u8]) -> String {
    cut(&first_line(text.trim_ascii_start()), MAX_QUOTED).into_owned()
}

fn first_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(body: &str) -> Option<bool> {
        of_service(body.as_bytes()).ok().map(|said| matches!(said, HookVerdict::Allow))
    }

    #[test]
    fn a_service_answers_in_two_shapes_and_no_other() {
        for (body, allow) in [
            (r#"{"decision":"allow"}"#, true),
            (r#"{"decision":"deny"}"#, false),
            (r#"{"result":true,"decision_id":"x"}"#, true),
            (r#"{"result":false}"#, false),
            (r#"{"result":{"allow":true}}"#, true),
            (r#"{"result":{"allow":true,"deny":[],"allowed":true,"reason":"x"}}"#, true),
            (r#"{"result":{"allow":false,"message":"no"}}"#, false),
            (r#"{"result":{"allow":false,"allowed":true}}"#, false),
            (r#"{"decision":"deny","code":"x","message":3}"#, false),
            (r#"{"decision":"deny","allow":true}"#, false),
        ] {
            assert_eq!(service(body), Some(allow), "{body}");
        }
        for wrong in [
            "",
            "true",
            "{}",
            "[]",
            r#"{"decision":"Allow"}"#,
            r#"{"decision":true}"#,
            r#"{"decision":"deny","decision":"allow"}"#,
            r#"{"decision":"allow"}{"decision":"allow"}"#,
            r#"{"decision":"allow","result":false}"#,
            r#"{"decision":"allow","allow":false}"#,
            r#"{"decision":"allow","message":"no"}"#,
            r#"{"decision":"allow","id":7}"#,
            r#"{"result":true,"allow":false}"#,
            r#"{"result":true,"deny":["x"]}"#,
            r#"{"result":{"allow":true,"deny":["x"]}}"#,
            r#"{"result":{"allow":true,"allowed":false}}"#,
            r#"{"result":{"allow":true,"decision":"deny"}}"#,
            r#"{"result":null}"#,
            r#"{"result":"true"}"#,
            r#"{"result":{"allow":"true"}}"#,
            r#"{"allow":true}"#,
        ] {
            assert_eq!(service(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn codes_of_the_protocol_are_not_a_hooks() {
        for own in [-32600, -32602, -32603, 1, 0, -31999, -32769, i64::from(i32::MIN)] {
            assert_eq!(i64::from(error_code(Some(own))), own);
        }
        for other in [-32700, -32000, -32599, -32604, -32768, i64::MAX] {
            assert_eq!(error_code(Some(other)), -32602, "{other}");
        }
        assert_eq!(error_code(None), -32602);
    }

    #[test]
    fn an_exit_code_decides_and_a_refusal_may_have_words() {
        let deny = |stdout: &str, stderr: &str| match of_exit(
            Some(1),
            stdout.as_bytes(),
            stderr.as_bytes(),
        ) {
            Ok(HookVerdict::Deny(denial)) => denial,
            other => panic!("{other:?}"),
        };
        let full = deny(r#"{"code":-32600,"message":"no","data":{"a":[1]}}"#, "ignored");
        assert_eq!((full.code, &*full.message), (-32600, "no"));
        assert_eq!(full.data.as_deref(), Some(&br#"{"a":[1]}"#[..]));
        assert_eq!(deny("", "first\nsecond\n").message, "first");
        assert_eq!(deny("garbage", "why").message, "why");
        assert_eq!(deny("", ""), Denial::plain());
        for allowed in ["", " \n", r#"{"decision":"allow"}"#, "\n{\"decision\": \"allow\"}\n"] {
            let said = of_exit(Some(0), allowed.as_bytes(), b"a line for the log");
            assert!(matches!(said, Ok(HookVerdict::Allow)), "{allowed}");
        }
        for refusal in [
            "garbage",
            "DENY",
            "allow",
            "true",
            "{}",
            r#"{"code":-32602}"#,
            r#"{"decision":"deny"}"#,
            r#"{"decision":"Allow"}"#,
            r#"{"result":false}"#,
            r#"{"result":true}"#,
            r#"{"result":{"allow":true}}"#,
            r#"{"allow":true}"#,
            r#"{"allow":false}"#,
            r#"{"decision":"allow","allow":false}"#,
            r#"{"decision":"allow","allow":true}"#,
            r#"{"decision":"allow","data":{}}"#,
            r#"{"decision":"allow","id":1}"#,
            r#"{"decision":"allow","reason":"no"}"#,
            r#"[{"decision":"allow"}]"#,
            r#"{"decision":"allow","code":-32602}"#,
            r#"{"decision":"allow","message":"no"}"#,
            r#"{"decision":"allow","decision":"deny"}"#,
            "checking\n{\"decision\":\"deny\"}",
            "{\"decision\":\"allow\"}\n{\"decision\":\"deny\"}",
            "{\"decision\":\"allow\"}\ndone",
            "\u{feff}{\"decision\":\"allow\"}",
        ] {
            assert!(of_exit(Some(0), refusal.as_bytes(), b"").is_err(), "{refusal}");
        }
        assert!(of_exit(Some(2), b"", b"").is_err() && of_exit(None, b"", b"").is_err());
    }
}
