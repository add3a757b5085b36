//! `execute_tool`: a call inside a call.
//!
//! The inner call becomes a request like any other, built from the client's own bytes, and goes through
//! every stage.

use std::time::Duration;

use toolward_wire::{Message, Sender};

use super::arguments::{MetaArguments, Wrong};
use crate::upstream::built_in::EXECUTE_TOOL;
use crate::view::Authorization;

/// The call inside a call of `execute_tool`.
pub(crate) struct InnerCall {
    /// A call of `SERVER/TOOL`.
    pub(crate) message: Message,
    /// The timeout that the client set, if any.
    pub(crate) timeout: Option<Duration>,
}

/// Extracts the inner call of `execute_tool`; `None` for any other call, or if its arguments are invalid.
pub(crate) fn inner(authorization: &Authorization) -> Option<InnerCall> {
    let Authorization { permit, server, .. } = authorization;
    let is_it = server.is_own() && *permit.decision().original == *EXECUTE_TOOL;
    if is_it { read(permit.message()).ok() } else { None }
}

/// The error in the arguments of a call without a valid inner call.
pub(super) fn wrong(message: &Message) -> Wrong {
    read(message).err().unwrap_or_else(|| "the arguments cannot be read".into())
}

fn read(message: &Message) -> Result<InnerCall, Wrong> {
    let known = ["server", "tool", "args", "timeout_ms"];
    let given = MetaArguments::only(message.arguments(), &known)?;
    let (server, tool) = (given.text("server")?, given.text("tool")?);
    // Server names contain no slash, and a slash separates server and tool below.
    if server.contains('/') {
        return Err("`server` must be a server's name".into());
    }
    let timeout = given.number("timeout_ms", 1)?.map(Duration::from_millis);
    let edit = message.edit().set_param_str("name", &format!("{server}/{tool}"));
    let edit = match given.object("args")? {
        Some(args) => edit.set_param("arguments", args.bytes()),
        None => edit.remove_param("arguments"),
    };
    let body = edit.finish();
    let length = body.len();
    let message = Message::parse(body, length, Sender::Client).map_err(|why| why.to_string())?;
    Ok(InnerCall { message, timeout })
}

#[cfg(test)]
mod tests {
    use toolward_wire::MAX_REQUEST_BYTES;

    use super::*;

    fn outer(arguments: &str) -> Message {
        let params = format!(
            r#"{{"_meta":{{"progressToken":"p"}}, "name":"toolward__execute_tool","arguments":{arguments}}}"#
        );
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        Message::parse(body.into(), MAX_REQUEST_BYTES, Sender::Client).unwrap()
    }

    #[test]
    fn the_arguments_inside_are_the_clients_bytes() {
        let args = r#"{ "a":1.50,"b" : "\u0041\/",  "c":[ ] }"#;
        let arguments = format!(r#"{{"tool":"t","args":{args},"server":"s","timeout_ms":20}}"#);
        let inner = read(&outer(&arguments)).unwrap();
        assert_eq!(inner.message.arguments().unwrap().raw().bytes(), args.as_bytes());
        assert_eq!(inner.message.param("name").unwrap().bytes(), b"\"s/t\"");
        assert_eq!(inner.message.meta("progressToken").unwrap().bytes(), b"\"p\"");
        assert_eq!(inner.timeout, Some(Duration::from_millis(20)));
        let none = read(&outer(r#"{"tool":"t","server":"s"}"#)).unwrap();
        assert!(none.message.arguments().is_none() && none.timeout.is_none());
    }

    #[test]
    fn an_invalid_call_has_a_reason() {
        for (arguments, said) in [
            (r#"{}"#, "`server` is missing"),
            (r#"{"server":"s"}"#, "`tool` is missing"),
            (r#"{"server":1,"tool":"t"}"#, "`server` must be a string"),
            (r#"{"server":"a/b","tool":"t"}"#, "`server` must be a server's name"),
            (r#"{"server":"s","tool":"t","args":[]}"#, "`args` must be an object"),
            (r#"{"server":"s","tool":"t","args":"{}"}"#, "`args` must be an object"),
            (r#"{"server":"s","tool":"t","timeout_ms":0}"#, "`timeout_ms` must be"),
            (r#"{"server":"s","tool":"t","timeout_ms":1.5}"#, "`timeout_ms` must be"),
            (r#"{"server":"s","tool":"t","arguments":{}}"#, "`arguments` is not an argument"),
            (r#"{"server":"s","tool":"t","Args":{}}"#, "`Args` is not an argument"),
        ] {
            let why = read(&outer(arguments)).err().unwrap();
            assert!(why.starts_with(said), "{arguments}: {why}");
        }
    }
}
