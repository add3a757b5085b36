//! The clients as agents: whether they have connected, the tools that they used, and the next step.

use std::collections::BTreeMap;

use serde_json::Value;
use toolward_policy::Tool;

use super::{EntryReport, Start};
use crate::clients::activity::AgentActivity;
use crate::clients::gateway_file::GatewayFile;
use crate::clients::table::Client;
use crate::load::Input;

/// One client that has wrapped entries.
pub(super) struct AgentReport {
    pub(super) client: &'static Client,
    /// The agent of its entries.
    pub(super) name: String,
    /// Its calls and lists; `None` if it has not connected.
    pub(super) activity: Option<AgentActivity>,
    /// Tools that it called and that are not read-only, as `SERVER/TOOL`.
    pub(super) writing: Vec<String>,
    /// How many tools that it called are not listed now, so that their hints are not known.
    pub(super) unlisted: usize,
    /// Its rules allow everything.
    pub(super) is_observed: bool,
}

pub(super) fn agent_reports(
    entries: &[EntryReport],
    activity: &BTreeMap<String, AgentActivity>,
    input: Option<&Input>,
    gateway: Option<&GatewayFile>,
) -> Vec<AgentReport> {
    let mut reports: Vec<AgentReport> = Vec::new();
    for entry in entries {
        let Some(name) = entry.found.wrapped.as_ref().and_then(|wrapped| wrapped.agent.clone())
        else {
            continue;
        };
        if reports.iter().any(|known| known.name == name) {
            continue;
        }
        let activity = activity.get(&name).cloned();
        let (mut writing, mut unlisted) = (Vec::new(), 0);
        for (server, tool) in activity.iter().flat_map(|activity| &activity.tools) {
            match is_read_only(entries, input, server, tool) {
                Some(true) => {}
                Some(false) => writing.push(format!("{server}/{tool}")),
                None => unlisted += 1,
            }
        }
        reports.push(AgentReport {
            client: entry.found.client,
            writing,
            unlisted,
            is_observed: gateway.is_some_and(|gateway| gateway.observes(&name)),
            activity,
            name,
        });
    }
    reports
}

/// Whether a tool has the hint; `None` if no started server lists it.
fn is_read_only(
    entries: &[EntryReport],
    input: Option<&Input>,
    server: &str,
    tool: &str,
) -> Option<bool> {
    let listed = entries.iter().find_map(|entry| {
        let wrapped = entry.found.wrapped.as_ref()?;
        let Start::Listed(tools) = &entry.start else { return None };
        let of_server = wrapped.server.as_deref() == Some(server);
        tools.iter().filter(|_| of_server).find(|one| one["name"] == tool)
    });
    let tool = Tool::new(tool, listed.and_then(Value::as_object)?);
    Some(input?.policy.hints(server, &tool).contains("read-only"))
}
