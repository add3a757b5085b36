//! Memory of held calls: a legacy server asks a modern client, and the call stays open at the server until the client
//! responds.

use serde_json::json;

use super::growth::other_agents;
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup};
use super::wire::{Endpoint, Wire};
use super::{Bench, Result};

/// An agent can have 16 held calls.
const AGENTS: usize = 32;
const PER_AGENT: usize = 16;
const TARGET_KB: f64 = 64.0;

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let (_echo, server) = bench.echo_with(&["--resources", "1", "--legacy"])?;
    let setup = Setup::new(bench, &[("echo".into(), &server)], Rules::Mixed)?;
    let toolward = setup.and(&other_agents(AGENTS + 1))?.start(bench)?;
    let mut agents = Vec::with_capacity(AGENTS);
    for number in 1..=AGENTS {
        let mut wire = Endpoint::new(&toolward.url, &format!("token-of-agent-{number}")).open()?;
        let call = json!({"name": "echo__echo", "arguments": {}});
        wire.ask_modern("tools/call", call)?;
        agents.push(wire);
    }
    // The first one of each agent also pays for what its calls share.
    hold(&mut agents, 1)?;
    let before = toolward.process.resident()?;
    hold(&mut agents, PER_AGENT - 1)?;
    let after = toolward.process.resident()?;
    let calls = AGENTS * (PER_AGENT - 1);
    let each = Spread::of([(after - before) / calls as f64]);
    let mut table = Table::new("held calls", &["resident, MB"]);
    table.row(&format!("{AGENTS} held calls"), [format!("{:.1}", before / 1024.0)]);
    let all = AGENTS * PER_AGENT;
    table.row(&format!("{all} held calls"), [format!("{:.1}", after / 1024.0)]);
    table.finding("memory of a held call, kB", each, "at most 64", each.median <= TARGET_KB);
    missing(bench, &mut table);
    Ok(table)
}

/// Makes calls that are held, for every agent.
fn hold(agents: &mut [Wire], calls: usize) -> Result<()> {
    for _ in 0..calls {
        for agent in &mut *agents {
            let call = json!({"name": "echo__ask", "arguments": {}});
            let held = agent.ask_modern("tools/call", call)?;
            if held["resultType"] != "input_required" {
                return Err(format!("a call is not held: {held}"));
            }
        }
    }
    Ok(())
}
