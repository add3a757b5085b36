//! The report as JSON.

use serde_json::{Value, json};

use super::{EntryReport, Report, Start};

pub(super) fn to_json(report: &Report) -> Value {
    let doors = report.doors.iter().map(|door| {
        json!({"client": door.client, "file": door.file, "what": door.what, "help": door.help})
    });
    let limits = report
        .limits
        .iter()
        .map(|limit| json!({"client": limit.client.id, "what": limit.what, "help": limit.help}));
    let agents = report.agents.iter().map(|agent| {
        let activity = agent.activity.as_ref();
        json!({
            "client": agent.client.id,
            "agent": agent.name,
            "connected": activity.and_then(|one| one.last.as_deref()),
            "programs": activity.map(|one| &one.programs),
            "calls": activity.map_or(0, |one| one.calls),
            "refused": activity.map_or(0, |one| one.refused),
            "tools_called": activity.map_or(0, |one| one.tools.len()),
            "not_read_only": agent.writing,
            "not_listed": agent.unlisted,
            "observed": agent.is_observed,
        })
    });
    json!({
        "ok": report.is_fine(),
        "entries": report.entries.iter().map(entry).collect::<Vec<_>>(),
        "second_doors": doors.collect::<Vec<_>>(),
        "limits": limits.collect::<Vec<_>>(),
        "clients": agents.collect::<Vec<_>>(),
        "config": report.config,
        "offline": report.is_offline,
    })
}

fn entry(entry: &EntryReport) -> Value {
    let EntryReport { found, start, last_used, overrides, login } = entry;
    let wrapped = found.wrapped.as_ref();
    let (tools, error, only_by_client) = match start {
        Start::No | Start::NeedsLogin(_) => (None, None, None),
        Start::Listed(tools) => (Some(tools.len()), None, None),
        Start::Failed(why) => (None, Some(why), None),
        Start::OnlyByClient(why) => (None, None, Some(why)),
    };
    json!({
        "client": found.client.id,
        "file": found.file,
        "name": found.name,
        "project": found.project,
        "state": found.state.word(),
        "reason": found.state.reason(),
        "help": found.state.help(found.client),
        "server": wrapped.and_then(|wrapped| wrapped.server.as_deref()),
        "agent": wrapped.and_then(|wrapped| wrapped.agent.as_deref()),
        "disabled": wrapped.is_some_and(|wrapped| wrapped.is_disabled),
        "tools": tools,
        "start_error": error,
        "needs_login": login,
        "not_started": only_by_client,
        "last_used": last_used,
        "overrides_wrapped": overrides,
    })
}
