//! Policy layers from environment variables: an allowlist and read-only mode.

use std::ffi::OsString;

use toolward_policy::source::{AllowlistSource, Case, Entry, RulesSource};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Span, Text};
use crate::io::Env;
use crate::resolve::merge::Assembly;

/// The environment variable with an allowlist.
pub const ALLOWED_TOOLS_VARIABLE: &str = "TOOLWARD_ALLOWED_TOOLS";
/// The variable that turns on read-only mode.
pub const READ_ONLY_VARIABLE: &str = "TOOLWARD_READ_ONLY";

/// Reads an allowlist separated by commas or spaces. An empty variable means no allowlist.
pub(crate) fn allowlist(env: &impl Env, assembly: &mut Assembly) {
    let Some(value) = variable(env, ALLOWED_TOOLS_VARIABLE, assembly) else { return };
    if value.trim().is_empty() {
        return;
    }
    let text = Text::new(ALLOWED_TOOLS_VARIABLE, value.as_str());
    let mut tools = Vec::new();
    let mut next = 0;
    for word in value.split([',', ' ', '\t', '\n', '\r']) {
        let at = next;
        next += word.len() + 1;
        if word.starts_with('!') {
            let message = format!("an allowlist cannot deny, and {} begins with `!`", quoted(word));
            assembly.report(
                Diagnostic::error(message)
                    .at(&text, Span::new(at, at + word.len()))
                    .help("list allowed tools; to deny, use `agents` with `deny`"),
            );
        } else if !word.is_empty() {
            tools.push(Entry::new(word));
        }
    }
    if tools.is_empty() && !value.contains('!') {
        assembly.report(
            Diagnostic::error(format!("{} lists no tools", quoted(ALLOWED_TOOLS_VARIABLE)))
                .at(&text, Span::new(0, value.len()))
                .help("unset it to use no allowlist"),
        );
    }
    let allowlist = AllowlistSource {
        path: ALLOWED_TOOLS_VARIABLE.into(),
        case: Case::Sensitive,
        tools,
        prompts: None,
        resources: None,
    };
    assembly.push_layer(ALLOWED_TOOLS_VARIABLE, RulesSource::Allowlist(allowlist));
}

/// Read-only mode by flag, environment or main file: any of them turns it on, none turns it off.
pub(crate) fn read_only(env: &impl Env, flag: bool, assembly: &mut Assembly) {
    let stated = match variable(env, READ_ONLY_VARIABLE, assembly).as_deref() {
        None | Some("" | "0" | "false" | "no" | "off") => false,
        Some("1" | "true" | "yes" | "on") => true,
        Some(other) => {
            let text = Text::new(READ_ONLY_VARIABLE, other);
            let message = format!("{} is neither on nor off", quoted(READ_ONLY_VARIABLE));
            assembly.report(
                Diagnostic::error(message)
                    .at(&text, Span::new(0, other.len()))
                    .help("set it to `1`, `true`, `yes`, `on`, or to `0`, `false`, `no`, `off`"),
            );
            return;
        }
    };
    let name = match (flag, stated) {
        (true, _) => "--read-only",
        (false, true) => READ_ONLY_VARIABLE,
        (false, false) => "read_only",
    };
    if flag || stated || assembly.config.read_only {
        assembly.push_layer(name, RulesSource::ReadOnly);
    }
}

/// A variable that is not valid UTF-8 is an error: ignoring it would widen the policy.
fn variable(env: &impl Env, name: &str, assembly: &mut Assembly) -> Option<String> {
    match env.var(name).map(OsString::into_string) {
        Some(Ok(value)) => Some(value),
        Some(Err(_)) => {
            assembly.report(Diagnostic::error(format!("{} is not valid UTF-8", quoted(name))));
            None
        }
        None => None,
    }
}
