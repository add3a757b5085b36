//! What hooks answer. A refusal stays one, however badly it is worded: only its words are ours then.

use toolward_policy::refusal::cut;
use toolward_wire::{Raw, code};

use super::super::GuardedCall;

/// The longest answer of a hook.
pub(super) const LONGEST: usize = 64 << 10;

/// Bytes of a hook's output that are repeated in a message.
const MAX_QUOTED: usize = 100;

/// What a hook says of a call.
#[derive(Debug)]
pub(in super::super) enum Said {
    Allow,
    Deny(Denial),
}

/// A hook's refusal, as the client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub code: i32,
    pub message: String,
    /// JSON.
    pub data: Option<Box<[u8]>>,
}

/// Why a hook has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Failed(pub(in super::super) String);

impl Failed {
    fn not_understood() -> Failed {
        Failed("its answer cannot be understood".into())
    }
}

impl Denial {
    /// A refusal with nothing said about it.
    pub(super) fn plain() -> Denial {
        Denial { code: code::INVALID_PARAMS, message: String::new(), data: None }
    }

    /// A refusal in the members `code`, `message` and `data`.
    pub(super) fn of(said: Raw<'_>) -> Denial {
        let data = said.member("data").filter(|data| data.bytes() != b"null");
        Denial {
            code: passed_on(said.member("code").and_then(Raw::as_i64)),
            message: said.member("message").and_then(Raw::as_str).unwrap_or_default().into_owned(),
            data: data.map(|data| data.bytes().into()),
        }
    }

    /// With words of ours where the hook has none.
    pub(super) fn or_words(mut self, hook: &str, call: &GuardedCall<'_>) -> Denial {
        if self.message.trim().is_empty() {
            self.message = format!("{} is refused by the hook `{hook}`", call.permit.exposed());
        }
        self
    }
}

/// A code of a hook's own, as far as it may be one: what the protocol keeps for itself is not.
pub(super) fn passed_on(code: Option<i64>) -> i32 {
    let own = |code: &i32| (-32603..=-32600).contains(code) || !(-32768..=-32000).contains(code);
    let code = code.and_then(|code| i32::try_from(code).ok()).filter(own);
    code.unwrap_or(code::INVALID_PARAMS)
}

/// Members of an allowing answer: of a program that is started for each call and of a service.
const ALLOWING: &[&str] = &["decision"];
/// The same for a persistent process.
const ALLOWING_WITH_ID: &[&str] = &["id", "decision"];

/// The answer of a persistent process: `{"id": 7, "decision": "allow"}` or `{…, "decision": "deny", …}`.
pub(super) fn of_line(said: Raw<'_>) -> Result<Said, Failed> {
    decision(said, ALLOWING_WITH_ID)
}

/// The answer of a service: a decision, or OPA's `{"result": …}`.
pub(super) fn of_service(body: &[u8]) -> Result<Said, Failed> {
    let said = Raw::scan(body, LONGEST).map_err(|_| Failed::not_understood())?;
    let Some(result) = said.member("result") else { return decision(said, ALLOWING) };
    if said.member("decision").is_some() {
        return Err(Failed::not_understood());
    }
    match result_allows(result) {
        Some(true) => {
            match contradiction(said, "result").or_else(|| contradiction(result, "allow")) {
                None => Ok(Said::Allow),
                Some(member) => {
                    Err(Failed(format!("it allows, and its `{member}` contradicts that")))
                }
            }
        }
        Some(false) if result.is_object() => Ok(Said::Deny(Denial::of(result))),
        Some(false) => Ok(Said::Deny(Denial::plain())),
        None => Err(Failed::not_understood()),
    }
}

/// A decision in the gateway's own form. An allowing answer has no members but these: any other one could
/// be a refusal in another form. A refusal stays one, whatever else it has.
fn decision(said: Raw<'_>, allowing: &[&str]) -> Result<Said, Failed> {
    if said.member("result").is_some() {
        return Err(Failed::not_understood());
    }
    match said.member("decision").and_then(Raw::as_str).as_deref() {
        Some("allow") => match unexpected_member(said, allowing) {
            None => Ok(Said::Allow),
            Some(member) => {
                Err(Failed(format!("an allowing answer must not have the member `{member}`")))
            }
        },
        Some("deny") => Ok(Said::Deny(Denial::of(said))),
        _ => Err(Failed::not_understood()),
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

/// A second verdict in an answer of OPA that does not agree with the first one. A package often has rules
/// for both `allow` and `deny`; other members are the operator's own.
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

/// The answer of a program that was started for one call: its exit code, and what it printed.
///
/// A program that exits with 0 and prints anything but an allowing object has not answered: it may be a
/// refusal that was written for another kind of hook, behind a log line or in a shape of its own.
pub(super) fn of_exit(exit: Option<i32>, stdout: &[u8], stderr: &[u8]) -> Result<Said, Failed> {
    match exit {
        Some(0) if stdout.trim_ascii().is_empty() || allows(stdout) => Ok(Said::Allow),
        Some(0) => Err(Failed(format!(
            "it exits with 0 and prints something other than `{{\"decision\":\"allow\"}}`: {}",
            quoted(stdout)
        ))),
        Some(1) => Ok(Said::Deny(match object(stdout) {
            Some(said) => Denial::of(said),
            None => Denial { message: first_line(stderr), ..Denial::plain() },
        })),
        Some(other) => Err(Failed(match first_line(stderr).as_str() {
            "" => format!("it ended with {other}"),
            said => format!("it ended with {other}: {said}"),
        })),
        None => Err(Failed("it was ended by a signal".into())),
    }
}

fn object(text: &[u8]) -> Option<Raw<'_>> {
    Raw::scan(text, LONGEST).ok().filter(|said| said.is_object())
}

/// Whether a text is one object that allows.
fn allows(text: &[u8]) -> bool {
    object(text).is_some_and(|said| matches!(decision(said, ALLOWING), Ok(Said::Allow)))
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
        of_service(body.as_bytes()).ok().map(|said| matches!(said, Said::Allow))
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
            assert_eq!(i64::from(passed_on(Some(own))), own);
        }
        for other in [-32700, -32000, -32599, -32604, -32768, i64::MAX] {
            assert_eq!(passed_on(Some(other)), -32602, "{other}");
        }
        assert_eq!(passed_on(None), -32602);
    }

    #[test]
    fn an_exit_code_decides_and_a_refusal_may_have_words() {
        let deny = |stdout: &str, stderr: &str| match of_exit(
            Some(1),
            stdout.as_bytes(),
            stderr.as_bytes(),
        ) {
            Ok(Said::Deny(denial)) => denial,
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
            assert!(matches!(said, Ok(Said::Allow)), "{allowed}");
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
