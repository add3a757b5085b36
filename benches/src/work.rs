//! The loops that are timed, and whose instructions are counted.

use std::hint::black_box;

use toolward_policy::{Caller, Decision, Row};

use crate::contenders::Contender;
use crate::engine::{Engine, Rows, RowsByName, shown};
use crate::world::Request;

/// How many requests the uniform mix has.
pub const MIX: usize = 1 << 16;
/// The number of requests per sample: a few hundred microseconds, so that few samples are interrupted
/// by other programs. Both are powers of two, so that wrapping around costs only a mask.
pub const SAMPLE: usize = 1 << 12;

/// Decides `count` requests, round and round. Which one is next depends on the last decision, so
/// that the processor cannot overlap a decision with the one before it.
pub fn decide(engine: &Engine, rows: &Rows, requests: &[Request], count: usize) -> usize {
    let mask = requests.len() - 1;
    let mut next = 0;
    for _ in 0..count {
        let request = &requests[next & mask];
        next = after(next, rows.decide(engine.agent(request.agent), request));
    }
    count
}

/// Always the next one, but neither the compiler nor the processor can know that.
#[inline]
fn after(request: usize, decision: Decision) -> usize {
    let decision = black_box(decision);
    request + 1 + (black_box(decision.verdict as usize) >> 2)
}

/// The same, with rows found by the names of agent and server.
pub fn decide_by_name(
    engine: &Engine,
    rows: &RowsByName<'_>,
    requests: &[Request],
    count: usize,
) -> usize {
    let mask = requests.len() - 1;
    let mut next = 0;
    for _ in 0..count {
        let request = &requests[next & mask];
        next = after(next, rows.decide(engine.names(request), &request.tool));
    }
    count
}

/// Lists all tools of an agent repeatedly.
pub fn list_seen(rows: &[Row], caller: Caller<'_>, count: usize) -> usize {
    for _ in 0..count {
        black_box(shown(black_box(rows), caller));
    }
    count
}

/// Lists all tools of one new agent after the other.
pub fn list_first(engine: &Engine, first: usize, count: usize) -> usize {
    for agent in first..first + count {
        let agent = agent % engine.agents();
        black_box(shown(&engine.rows_of(agent), engine.agent(agent)));
    }
    count
}

pub fn ask(contender: &dyn Contender, requests: std::ops::Range<usize>) -> usize {
    let count = requests.len();
    for request in requests {
        black_box(contender.allows(request));
    }
    count
}
