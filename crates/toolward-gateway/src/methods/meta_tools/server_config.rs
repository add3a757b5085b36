//! `server_config`: the policy as it applies to the calling agent. It reveals nothing about other agents
//! or about tools that are hidden from the agent.

use serde_json::{Value, json};
use toolward_wire::Message;

use super::arguments::{MetaArguments, Wrong};
use crate::active::Active;
use crate::client::Client;
use crate::view::View;

/// Describes the policy for `client`. `listed` is the view it lists directly, `reached` the view it
/// reaches through discovery.
pub(super) fn describe(
    active: &Active,
    client: &Client,
    (listed, reached): (&View, &View),
    call: &Message,
) -> Result<String, Wrong> {
    MetaArguments::only(call.arguments(), &[])?;
    let agent = client.caller.agent.as_deref();
    let (listed_selectors, reached_selectors) =
        (listed.allowed().selectors(), reached.allowed().selectors());
    let mut allow: Vec<&String> = reached_selectors.iter().collect();
    allow.extend(listed_selectors.iter().filter(|entry| !reached_selectors.contains(entry)));
    let progressive = active.discovery.is_progressive(agent);
    let config = json!({
        "agent": agent,
        "policy": active.version,
        "layers": active.policy.layer_kinds().collect::<Vec<_>>(),
        "read_only": active.policy.is_read_only(),
        "enforced": active.enforced,
        "discovery": if progressive { "progressive" } else { "direct" },
        "allow": allow,
        "limits": limits(active, agent, [listed, reached]),
    });
    Ok(config.to_string())
}

/// The rate limits on the agent's calls, by the names that refusals use.
fn limits(active: &Active, agent: Option<&str>, views: [&View; 2]) -> Vec<Value> {
    let guards = &active.guards;
    let mut indices = guards.of_agent(agent);
    indices.extend(views.iter().flat_map(|view| view.limits(guards)));
    indices.sort_unstable();
    indices.dedup();
    let limit = |at: &usize| {
        let (name, rate) = guards.limit(*at)?;
        Some(json!({"limit": name, "rate": rate.to_string()}))
    };
    indices.iter().filter_map(limit).collect()
}
