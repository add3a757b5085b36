//! Descriptions of rate limits, for the agents that they limit.
//!
//! Agents never see where a limit is configured. They see who shares it and which calls it counts. A pattern
//! is shown as written; an exact name is not, because a tool can be renamed.

use toolward_policy::fnmatch::is_pattern;

/// The agents and the server that a limit applies to.
pub(super) struct Scope<'a> {
    pub(super) sharing: LimitScope,
    pub(super) server: Option<&'a str>,
}

/// The agents that share a limit.
#[derive(Clone, Copy)]
pub(super) enum LimitScope {
    Everyone,
    /// One agent.
    Agent,
    /// All agents that match a pattern.
    Pattern,
    /// All agents without rules or limits of their own.
    Unnamed,
}

impl Scope<'_> {
    pub(super) fn of(sharing: LimitScope) -> Scope<'static> {
        Scope { sharing, server: None }
    }

    /// The scope of a `limit` on an entry of the policy; `agent` is the agent whose entry it is.
    pub(super) fn of_rule(agent: Option<&str>) -> Scope<'static> {
        Scope::of(match agent {
            None => LimitScope::Everyone,
            Some("default") => LimitScope::Unnamed,
            Some(name) if is_pattern(name) => LimitScope::Pattern,
            Some(_) => LimitScope::Agent,
        })
    }

    /// "your calls that match `get_*`". `selector` selects the calls; `None` for all.
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
            LimitScope::Pattern => format!("{what}{which} by agents with your rules"),
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
            (&Scope::of_rule(Some("ci-*")), None, "calls by agents with your rules"),
            (&unnamed, None, "calls by agents without rules of their own"),
        ] {
            assert_eq!(scope.calls(selector), words);
        }
        assert_eq!(agent.listings(), "your listings");
        assert_eq!(everyone.listings(), "all listings by all agents");
    }
}
