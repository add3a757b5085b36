//! What has happened, in numbers, as `toolward status` says it.

use serde_json::{Value, json};
use toolward_gateway::active::Snapshot;
use toolward_gateway::audit::line::time;
use toolward_gateway::metrics::calls::Span;
use toolward_gateway::upstream::Server;
use toolward_wire::Era;

/// What a server is and does.
pub(crate) fn server(server: &Server) -> Value {
    let (state, revisions) = server.state();
    let eras = revisions.iter().map(|revision| era(revision.era()));
    let mut eras: Vec<&str> = eras.collect();
    eras.dedup();
    let revisions: Vec<&str> = revisions.iter().map(|revision| revision.as_str()).collect();
    let tools = server.listed().map(|listed| listed.catalogue.entries().len());
    let lived = server.life.so_far();
    let failure = lived.last_failure.map(|last| json!({"time": time(last.at), "text": last.why}));
    let recent = Span::sum(&server.calls.recent());
    json!({
        "name": server.name(),
        "state": state,
        "eras": eras,
        "revisions": revisions,
        "tools": tools,
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

/// The policy in force, and how often its rules decided.
pub(crate) fn policy(snapshot: &Snapshot) -> Value {
    let (policy, hits) = (&snapshot.policy, &snapshot.hits);
    let layers: Vec<&str> = policy.layer_names().collect();
    let hit = |(layer, rule)| {
        let calls = Some(hits.of_rule(layer, rule)).filter(|calls| *calls > 0)?;
        let rule = policy.rule_at(layer, rule)?;
        Some(json!({"layer": layer, "rule": rule.path, "at": rule.location(), "calls": calls}))
    };
    let by_rule: Vec<Value> = policy.rules().into_iter().filter_map(hit).collect();
    json!({
        "version": snapshot.version,
        "layers": layers,
        "layer_kinds": policy.layer_kinds().collect::<Vec<_>>(),
        "since": time(hits.since()),
        "decided": hits.total(),
        "hits": by_rule,
        "decided_by_no_rule": hits.of_no_rule(),
        "refused_unseen": snapshot.unseen.total(),
    })
}
