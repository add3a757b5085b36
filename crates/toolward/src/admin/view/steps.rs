//! Steps of the policy in words. The audit log, JSON output and the manual use codes such as
//! `6-default-deny`; a person gets a sentence.

/// A step as a heading.
pub(crate) fn label(code: &str) -> &str {
    match code {
        "unknown-agent" => "No rules for this agent",
        "server-deny" => "Server denied",
        "server-not-allowed" => "Server not allowed",
        "server-allow" => "Server allowed",
        "1-exact-deny" => "Denied by name",
        "2-wildcard-deny" => "Denied by pattern or hint",
        "3-exact-allow" => "Allowed by name",
        "4-wildcard-allow" => "Allowed by pattern or hint",
        "5-implicit-grant" => "Whole server allowed",
        "6-default-deny" => "Not allowed by any rule",
        "allowlist-match" => "In the allowlist",
        "allowlist-none" => "Not in the allowlist",
        "not-exposed" => "Not exposed",
        "ambiguous-action" => "Action unclear",
        "unsafe-uri" => "Unsafe URI",
        "read-only-mode" => "Read-only mode",
        "no-policy" => "No policy",
        "no-such-tool" => "No such tool",
        "pin" => "Quarantined",
        "hook" => "Hook",
        "limit" => "Limit",
        other => other,
    }
}

/// The reason of a step, for records without a reason of their own.
pub(crate) fn sentence(code: &str) -> &str {
    match code {
        "unknown-agent" => "there are no rules for this agent",
        "server-deny" => "a rule denies the server",
        "server-not-allowed" => "no rule allows the server",
        "1-exact-deny" | "2-wildcard-deny" => "a rule denies the tool",
        "5-implicit-grant" => "the agent may use the whole server",
        "6-default-deny" => "no rule allows the tool",
        "allowlist-none" => "no entry of the allowlist covers the tool",
        "not-exposed" => "the server does not expose the tool",
        "ambiguous-action" => "the action is ambiguous",
        "unsafe-uri" => "servers may interpret the URI differently",
        "read-only-mode" => "read-only mode",
        "no-policy" => "there is no policy",
        "no-such-tool" => "the server has no such tool",
        "pin" => "its definition is not the approved one",
        "hook" => "a hook refused the call",
        "limit" => "a limit is used up",
        other => label(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_policy::Step;

    #[test]
    fn every_step_has_words() {
        let steps = [
            Step::UnknownAgent,
            Step::ServerDeny,
            Step::ServerNotAllowed,
            Step::ServerAllow,
            Step::ExactDeny,
            Step::WildcardDeny,
            Step::ExactAllow,
            Step::WildcardAllow,
            Step::ImplicitGrant,
            Step::DefaultDeny,
            Step::AllowlistMatch,
            Step::AllowlistNone,
            Step::NotExposed,
            Step::AmbiguousAction,
            Step::UnsafeUri,
            Step::ReadOnlyMode,
            Step::NoPolicy,
            Step::NoSuchTool,
        ];
        for code in steps.iter().map(|step| step.as_str()).chain(["hook", "limit"]) {
            assert_ne!(label(code), code);
            assert!(!label(code).contains('-') || code == "read-only-mode", "{code}");
            assert_ne!(sentence(code), code);
        }
    }
}
