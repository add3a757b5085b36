//! `server_config`: what holds for the agent that asks. Of others, and of what is hidden from it, nothing
//! is said.

use serde_json::{Value, json};
use toolward_wire::Message;

use super::arguments::{Given, Wrong};
use crate::active::Active;
use crate::client::Client;
use crate::view::View;

/// What `client` may know of the policy. `listed` is what it sees directly, `reached` what it finds
/// through discovery.
pub(super) fn said(
    active: &Active,
    client: &Client,
    (listed, reached): (&View, &View),
    call: &Message,
) -> Result<String, Wrong> {
    Given::only(call.arguments(), &[])?;
    let agent = client.caller.agent.as_deref();
    let (listed_selectors, reached_selectors) =
        (listed.allowed().selectors(), reached.allowed().selectors());
    let mut allow: Vec<&String> = reached_selectors.iter().collect();
    allow.extend(listed_selectors.iter().filter(|entry| !reached_selectors.contains(entry)));
    let progressive = active.discovery.is_progressive(agent);
    let said = json!({
        "agent": agent,
        "policy": active.version,
        "layers": active.policy.layer_kinds().collect::<Vec<_>>(),
        "read_only": active.policy.is_read_only(),
        "enforced": active.enforced,
        "discovery": if progressive { "progressive" } else { "direct" },
        "allow": allow,
        "limits": limits(active, agent, [listed, reached]),
    });
    Ok(said.to_string())
}

/// The limits that stand over what the agent can do, by the names that refusals use.
fn limits(active: &Active, agent: Option<&str>, views: [&View; 2]) -> Vec<Value> {
    let guards = &active.guards;
    let mut places = guards.of_agent(agent);
    places.extend(views.iter().flat_map(|view| view.limits(guards)));
    places.sort_unstable();
    places.dedup();
    let limit = |at: &usize| {
        let (name, rate) = guards.limit(*at)?;
        Some(json!({"limit": name, "rate": rate.to_string()}))
    };
    places.iter().filter_map(limit).collect()
}
