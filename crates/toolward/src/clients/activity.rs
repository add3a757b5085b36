//! Connections and calls of each agent, from the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use crate::audit_log::dir::{has_log, look};
use crate::audit_log::filter::Filter;
use crate::audit_log::rows;
use crate::audit_log::scan::{LONGEST_CALL, Scan};
use crate::cli::FilterArgs;
use crate::clients::probe;
use crate::exit::Failure;

/// The part of the log that is read.
pub(crate) const PERIOD: &str = "30d";
/// The most tools and programs of an agent that are kept.
const MAX_NAMES: usize = 1000;

/// The activity of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentActivity {
    /// The time of the last list or call, as written in the log.
    pub(crate) last: Option<String>,
    /// The names that its clients give themselves.
    pub(crate) programs: BTreeSet<String>,
    /// The servers that it listed or called, with the time of the last use.
    pub(crate) servers: BTreeMap<String, String>,
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    /// The tools that it called, by server.
    pub(crate) tools: BTreeSet<(String, String)>,
}

/// The activity of all agents. Connections of `doctor` itself do not count.
pub(crate) fn activity(audit: &Path) -> Result<BTreeMap<String, AgentActivity>, Failure> {
    let mut agents = BTreeMap::new();
    if !has_log(audit) {
        return Ok(agents);
    }
    let kinds = ["list", "intent", "refusal"].map(String::from).to_vec();
    let filter =
        Filter::new(FilterArgs { kinds, since: Some(PERIOD.into()), ..Default::default() })?;
    let scan = Scan::new(look(audit)?, filter.since_micros, LONGEST_CALL)?;
    let take = |row: Value, _: &mut _| {
        add(&mut agents, &row);
        Ok(ControlFlow::Continue(()))
    };
    rows::each(scan, filter, take, || Ok(()))?;
    Ok(agents)
}

fn add(agents: &mut BTreeMap<String, AgentActivity>, row: &Value) {
    let text = |name: &str| row[name].as_str();
    let (Some(agent), Some(time)) = (text("agent"), text("time")) else { return };
    if text("client").is_some_and(|program| program.starts_with(probe::CLIENT_NAME)) {
        return;
    }
    let activity = agents.entry(agent.into()).or_default();
    activity.last = Some(time.into());
    if let Some(program) = text("client").filter(|_| activity.programs.len() < MAX_NAMES) {
        activity.programs.insert(program.into());
    }
    let listed =
        row["servers"].as_object().into_iter().flatten().map(|(server, _)| server.as_str());
    for server in listed.chain(text("server")) {
        activity.servers.insert(server.into(), time.into());
    }
    match text("kind") {
        Some("intent") => activity.calls += 1,
        Some("refusal") => activity.refused += row["count"].as_u64().unwrap_or(1),
        _ => {}
    }
    if let (Some("intent"), Some(server), Some(tool)) = (text("kind"), text("server"), text("tool"))
        && activity.tools.len() < MAX_NAMES
    {
        activity.tools.insert((server.into(), tool.into()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_lists_of_clients_count_and_those_of_doctor_do_not() {
        let mut agents = BTreeMap::new();
        let rows = [
            json!({"kind": "list", "agent": "a", "time": "t1", "client": "cursor 1", "servers": {"s": {}}}),
            json!({"kind": "intent", "agent": "a", "time": "t2", "server": "s", "tool": "x"}),
            json!({"kind": "intent", "agent": "a", "time": "t3", "server": "s", "tool": "x"}),
            json!({"kind": "refusal", "agent": "a", "time": "t4", "server": "u", "tool": "y"}),
            json!({"kind": "list", "agent": "b", "time": "t5", "client": "toolward-doctor 1", "servers": {"s": {}}}),
            json!({"kind": "list", "time": "t6", "servers": {"s": {}}}),
        ];
        rows.iter().for_each(|row| add(&mut agents, row));
        assert_eq!(agents.len(), 1);
        let found = &agents["a"];
        assert_eq!((found.calls, found.refused, found.last.as_deref()), (2, 1, Some("t4")));
        assert_eq!(found.servers["s"], "t3");
        assert!(found.programs.contains("cursor 1"));
        let tools: Vec<&(String, String)> = found.tools.iter().collect();
        assert_eq!(tools, [&("s".to_owned(), "x".to_owned())]);
    }
}
