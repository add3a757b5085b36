//! The JSON of `toolward status`.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use toolward_gateway::active::Active;
use toolward_gateway::audit::line::time;
use toolward_gateway::audit::sink_state::SinkState;
use toolward_gateway::audit::{Audit, Recording};
use toolward_gateway::guard::pins::Mode;
use toolward_gateway::metrics::calls::Span;
use toolward_gateway::upstream::Server;
use toolward_wire::Era;
use toolward_wire::list::ListKind;

use crate::reload::Reloader;
use crate::report::shared_resources;

/// The answer to `toolward status`.
pub(crate) async fn status(reloader: &Reloader, begun: Instant) -> Value {
    let gateway = reloader.gateway();
    let active = gateway.active();
    let servers = active.servers.iter().map(|one| {
        let mut row = server(one);
        row["pins"] = pins(&active, one.name());
        row
    });
    let servers: Vec<Value> = servers.collect();
    let audit = match gateway.context.audit.recording().await {
        Recording::Recorded => "ok",
        Recording::Refused => "failing",
        Recording::Unrecorded => "unrecorded",
    };
    // Takes the lock of the state itself.
    let callers = reloader.callers();
    let running = reloader.running();
    let state = reloader.state();
    let last = state
        .last
        .as_ref()
        .map(|last| json!({"time": time(last.at), "by": last.by, "error": last.error}));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "uptime_s": begun.elapsed().as_secs(),
        "page": reloader.page.get(),
        "policy": policy(&active),
        "agents": callers.iter().flatten().collect::<Vec<_>>(),
        "read_only": active.policy.is_read_only(),
        "allow_all": !active.enforced,
        "servers": servers,
        "hidden_resources": hidden_resources(&active),
        "audit": audit,
        "sinks": sinks(&gateway.context.audit),
        "audit_required": gateway.context.audit.is_required(),
        "audit_dir": running.as_ref().map(|running| &running.audit),
        "config": running.as_ref().and_then(|running| running.config.as_ref()),
        "denying": state.denying,
        "draining": state.draining,
        "failing_tests": state.failing,
        "reload": {"taken_up": state.taken_up, "refused": state.refused, "last": last},
    })
}

/// The audit sinks: how far behind each is.
fn sinks(audit: &Audit) -> Vec<Value> {
    let sink = |sink: &Arc<SinkState>| {
        json!({
            "name": sink.name,
            "lag_s": sink.lag().as_secs_f64(),
            "max_lag_s": sink.max_lag.map(|max| max.as_secs_f64()),
            "delivered": sink.delivered(),
            "failures": sink.failures(),
            "error": sink.error(),
        })
    };
    audit.sinks().iter().map(sink).collect()
}

/// Resources and templates that two servers list: those of the later server, which are hidden.
fn hidden_resources(active: &Active) -> Vec<Value> {
    let kinds = [ListKind::Resources, ListKind::ResourceTemplates];
    let lists = kinds.map(|kind| -> Vec<(String, Vec<String>)> {
        let listed = active.servers.iter().filter_map(|server| {
            let catalogue = server.listed_as(kind)?.catalogue;
            let names = catalogue.entries().iter().map(|entry| entry.name().to_string());
            Some((server.name().to_string(), names.collect()))
        });
        listed.collect()
    });
    let hidden = lists.iter().flat_map(|lists| shared_resources::hidden(lists));
    hidden.map(|one| json!({"server": one.server, "uri": one.uri, "owner": one.owner})).collect()
}

/// The pins of a server: its mode, and how many definitions changed.
fn pins(active: &Active, server: &str) -> Value {
    let changed = active.pins.changed(server);
    let quarantined: usize = changed.iter().map(|list| list.quarantined().count()).sum();
    let changed: usize = changed.iter().map(|list| list.changed.len()).sum();
    let mode = active.pins.mode(server);
    let refused = active.pins.refusal().filter(|_| mode != Mode::Off);
    json!({"mode": mode.as_str(), "changed": changed, "quarantined": quarantined, "refused": refused})
}

/// The state and metrics of a server.
pub(crate) fn server(server: &Server) -> Value {
    let (state, revisions) = server.state();
    let eras = revisions.iter().map(|revision| era(revision.era()));
    let mut eras: Vec<&str> = eras.collect();
    eras.dedup();
    let revisions: Vec<&str> = revisions.iter().map(|revision| revision.as_str()).collect();
    let listed =
        |kind: ListKind| server.listed_as(kind).map(|listed| listed.catalogue.entries().len());
    let lived = server.life.so_far();
    let failure = lived.last_failure.map(|last| json!({"time": time(last.at), "text": last.why}));
    let recent = Span::sum(&server.calls.recent());
    let login = server.missing_login();
    json!({
        "name": server.name(),
        "state": state,
        "login": login.map(|needs| json!({"why": needs.why, "command": needs.command()})),
        "eras": eras,
        "revisions": revisions,
        "tools": listed(ListKind::Tools),
        "prompts": listed(ListKind::Prompts),
        "resources": listed(ListKind::Resources),
        "calls": server.calls.total(),
        "errors": server.calls.errors(),
        "under_way": server.calls.under_way(),
        "starts": lived.starts,
        "restarts": lived.restarts,
        "last_failure": failure,
        "last_5_min": {
            "calls": recent.calls(),
            "errors": recent.errors,
            "p50_us": recent.percentile(50),
            "p95_us": recent.percentile(95),
        },
    })
}

pub(crate) fn era(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

/// The active policy, with the hit counts of its rules.
pub(crate) fn policy(active: &Active) -> Value {
    let (policy, hits) = (&active.policy, &active.hits);
    let layers: Vec<&str> = policy.layer_names().collect();
    let hit = |(layer, rule)| {
        let calls = Some(hits.of_rule(layer, rule)).filter(|calls| *calls > 0)?;
        let rule = policy.rule_at(layer, rule)?;
        Some(json!({"layer": layer, "rule": rule.path, "at": rule.location(), "calls": calls}))
    };
    let by_rule: Vec<Value> = policy.rules().into_iter().filter_map(hit).collect();
    json!({
        "version": active.version,
        "layers": layers,
        "layer_kinds": policy.layer_kinds().collect::<Vec<_>>(),
        "since": time(hits.since()),
        "decided": hits.total(),
        "hits": by_rule,
        "decided_by_no_rule": hits.of_no_rule(),
        "refused_unseen": active.unlisted.total(),
        "would": active.shadow.is_some().then(|| {
            let totals = active.shadowed.totals().into_iter();
            Value::Object(totals.map(|(verdict, calls)| (verdict.into(), calls.into())).collect())
        }),
    })
}
