//! The narrowest change of a policy that permits a tool to an agent, and its effect: for `toolward allow` and the admin UI.

pub(crate) mod proposal;

use similar::TextDiff;
use toolward_config::Options;
use toolward_policy::analyse::{self, Point, PointKind, Subjects};
use toolward_policy::{Caller, Catalogue, Policy, Verdict};

use self::proposal::FileChange;
use crate::exit::Failure;
use crate::load::{Input, invalid};
use crate::policy_gate;
use crate::reads::Reads;
use crate::report::points;

/// The tools and calls that a change permits.
pub(crate) struct Effect {
    /// The tools that the agent sees in addition, or with fewer conditions.
    pub(crate) gained: Vec<(String, Verdict)>,
    /// Calls that become possible besides those of the tool, such as calls of other agents.
    pub(crate) others: Vec<String>,
}

impl Effect {
    pub(crate) fn new(
        before: &Policy,
        after: &Input,
        agent: &str,
        (server, tool): (&str, &str),
    ) -> Effect {
        Effect {
            gained: gained(before, after, agent),
            others: others(before, &after.policy, agent, (server, tool)),
        }
    }

    /// Whether the agent can use the tool then.
    pub(crate) fn reaches(&self, (server, tool): (&str, &str)) -> bool {
        let name = format!("{server}/{tool}");
        self.gained.iter().any(|(gained, _)| *gained == name)
    }
}

/// The configuration with changed files, whose tests pass.
pub(crate) fn load_changed(
    options: &Options,
    changes: &[FileChange],
    catalogue: &Catalogue,
) -> Result<Input, Failure> {
    let reads = Reads::default();
    changes.iter().for_each(|change| reads.assume(&change.path, &change.after));
    let after = Input::from(options, Vec::new(), &reads);
    let mut after = after.map_err(|diagnostics| invalid(&diagnostics))?;
    after.catalogue = catalogue.clone();
    policy_gate::passes(&after)?;
    Ok(after)
}

/// A change as a unified diff.
pub(crate) fn unified_diff(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(2).header(name, name).to_string()
}

fn gained(before: &Policy, after: &Input, agent: &str) -> Vec<(String, Verdict)> {
    let caller = Caller::named(agent);
    let mut gained = Vec::new();
    for (server, tools) in after.catalogue.lists() {
        for tool in tools.tools() {
            let verdict = |policy: &Policy| policy.list(caller, server, tool).decision.verdict;
            let (was, is) = (verdict(before), verdict(&after.policy));
            if is < was {
                gained.push((format!("{server}/{}", tool.name()), is));
            }
        }
    }
    gained
}

fn others(
    before: &Policy,
    after: &Policy,
    agent: &str,
    (server, tool): (&str, &str),
) -> Vec<String> {
    let found = analyse::diff(before, after, &Subjects::default());
    let is_meant = |point: &Point| {
        let named = point.agent.as_deref() == Some(agent) && point.server == server;
        // Requests of a server to the client come with the use of its tools.
        let of_tool = point.kind == PointKind::Tool && point.name == tool;
        named && (of_tool || point.kind == PointKind::ClientRequest)
    };
    let changes = found.changes.iter().chain(&found.possible);
    let wider = changes.filter(|change| change.is_wider() && !is_meant(&change.point));
    let mut others: Vec<String> = wider.map(|change| points::text(&change.point)).collect();
    if found.undecided.iter().any(|one| !one.narrower_only) {
        others.push("perhaps more: the change could not be analyzed completely".into());
    }
    others
}
