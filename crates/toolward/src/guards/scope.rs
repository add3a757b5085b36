//! What a rate limit counts, in words for the agent that it stops.
//!
//! Agents never see where a limit is configured. They see who shares it and which calls it counts. A
//! pattern is shown as it is written; an exact name is not, because a tool can be renamed.

use toolward_policy::reason::RuleText;

/// Who and which server a limit is about.
pub(super) struct Scope<'a> {
    pub(super) sharing: LimitScope,
    pub(super) server: Option<&'a str>,
}

/// Who shares a limit.
#[derive(Clone, Copy)]
pub(super) enum LimitScope {
    Everyone,
    /// The agent has it alone.
    Agent,
    /// All agents without rules or limits of their own.
    Unnamed,
}

impl Scope<'_> {
    pub(super) fn of(sharing: LimitScope) -> Scope<'static> {
        Scope { sharing, server: None }
    }

    /// The scope of a `limit` on an entry of the policy.
    pub(super) fn of_rule(rule: &RuleText) -> Scope<'static> {
        let default = ["agents.default.", "agents[\"default\"]."];
        Scope::of(match &rule.path {
            path if default.iter().any(|own| path.starts_with(own)) => LimitScope::Unnamed,
            path if path.starts_with("agents") => LimitScope::Agent,
            _ => LimitScope::Everyone,
        })
    }

    /// "your calls that match `get_*`". `selector` is what calls are selected by, if not all are.
    pub(super) fn calls(&self, selector: Option<&str>) -> String {
        let is_pattern = |text: &str| text.contains(['*', '?', '[']) || text.starts_with("hint:");
        let which = match (selector, self.server) {
            (Some(selector), Some(server)) if is_pattern(selector) => {
                format!(" that match `{server}/{selector}`")
            }
            (Some(selector), None) if is_pattern(selector) => format!(" that match `{selector}`"),
            (Some(_), _) => " of this kind".into(),
            (None, Some(server)) => format!(" to the server `{server}`"),
            (None, None) => String::new(),
        };
        self.shared("calls", &which)
    }

    pub(super) fn listings(&self) -> String {
        self.shared("listings", "")
    }

    fn shared(&self, what: &str, which: &str) -> String {
        match self.sharing {
            LimitScope::Agent => format!("your {what}{which}"),
            LimitScope::Everyone if which.is_empty() => format!("all {what} by all agents"),
            LimitScope::Everyone => format!("{what}{which} by all agents"),
            LimitScope::Unnamed => format!("{what}{which} by agents without rules of their own"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_described_without_their_place_in_the_configuration() {
        let everyone = Scope::of(LimitScope::Everyone);
        let of_server = Scope { sharing: LimitScope::Everyone, server: Some("files") };
        let agent = Scope::of(LimitScope::Agent);
        let unnamed = Scope::of(LimitScope::Unnamed);
        for (scope, selector, words) in [
            (&everyone, None, "all calls by all agents"),
            (&everyone, Some("files/write_*"), "calls that match `files/write_*` by all agents"),
            (&everyone, Some("files/remove"), "calls of this kind by all agents"),
            (&of_server, None, "calls to the server `files` by all agents"),
            (&of_server, Some("get_*"), "calls that match `files/get_*` by all agents"),
            (&agent, None, "your calls"),
            (&agent, Some("hint:destructive"), "your calls that match `hint:destructive`"),
            (&agent, Some("go.far"), "your calls of this kind"),
            (&unnamed, None, "calls by agents without rules of their own"),
        ] {
            assert_eq!(scope.calls(selector), words);
        }
        assert_eq!(agent.listings(), "your listings");
        assert_eq!(everyone.listings(), "all listings by all agents");
    }
}
