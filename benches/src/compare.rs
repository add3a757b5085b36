//! Times and ratios of one run.

use std::time::Duration;

use toolward_policy::Verdict;

use crate::contenders::{self, Contender};
use crate::engine::{Engine, Rows};
use crate::loading;
use crate::report::{Cell, Line, Report};
use crate::timing::{Effort, Time, time};
use crate::work::{self, MIX, SAMPLE};
use crate::world::{Request, World};
use crate::{LARGE, SMALL};

/// The measurements for one number of rules.
struct Measured {
    hot: Time,
    uniform: Time,
    by_name: Time,
    list_seen: Time,
    list_first: Time,
    contenders: Vec<(&'static str, Time)>,
}

pub fn run(quick: bool) -> Report {
    let mut report = Report::default();
    let small = measure(SMALL, quick, &mut report);
    let large = measure(LARGE, quick, &mut report);
    decisions(&small, &large, &mut report);
    listings(&small, &large, &mut report);
    loading::run(quick, &mut report);
    report
}

fn measure(rules: usize, quick: bool, report: &mut Report) -> Measured {
    let world = World::new(rules);
    let requests = world.requests(MIX);
    let engine = Engine::new(&world);
    let rows = engine.rows();
    let by_name = engine.rows_by_name();

    // The slow engines take a hundred milliseconds per decision.
    let asked = match (rules, quick) {
        (SMALL, _) => 1024,
        (_, true) => 8,
        (_, false) => 64,
    };
    report.note(verified(&world, &engine, &rows, &requests));
    let contenders = contenders::all(&world, &requests[..asked]);
    for contender in &contenders {
        verify(&**contender, &engine, &rows, &requests[..asked]);
    }

    let (samples, seconds) = if quick { (30, 1) } else { (300, 10) };
    let effort = Effort { samples, budget: Duration::from_secs(seconds) };
    let many = Effort { samples: 16 * samples, ..effort };
    let hot = &requests[..1];
    let mut mix = requests.chunks(SAMPLE).cycle();
    let mut next = || mix.next().unwrap_or(hot);
    let seen = engine.rows_of(0);
    let mut agents = (0..engine.agents()).cycle();
    Measured {
        hot: time(many, || work::decide(&engine, &rows, hot, SAMPLE)),
        uniform: time(many, || work::decide(&engine, &rows, next(), SAMPLE)),
        by_name: time(many, || work::decide_by_name(&engine, &by_name, next(), SAMPLE)),
        list_seen: time(effort, || work::list_seen(&seen, engine.agent(0), 100)),
        list_first: time(effort, || work::list_first(&engine, agents.next().unwrap_or(0), 1)),
        contenders: contenders
            .iter()
            .map(|c| (c.name(), time(effort, || work::ask(&**c, 0..asked))))
            .collect(),
    }
}

/// Checks the whole mix against the fastest contender before anything is timed.
fn verified(world: &World, engine: &Engine, rows: &Rows, requests: &[Request]) -> String {
    verify(&contenders::Linear::over_own_rules(world, requests), engine, rows, requests);
    let mut steps = std::collections::BTreeMap::new();
    for request in requests {
        let step = rows.decide(engine.agent(request.agent), request).step;
        *steps.entry(step.as_str()).or_insert(0) += 100;
    }
    let percent = |(step, hundreds)| format!("{step} {}%", hundreds / requests.len());
    let steps: Vec<String> = steps.into_iter().map(percent).collect();
    format!("Mix at {} rules: {}", world.rules.len(), steps.join(", "))
}

/// Checks that a contender gives the same verdicts; otherwise the times could not be compared.
fn verify(contender: &dyn Contender, engine: &Engine, rows: &Rows, requests: &[Request]) {
    for (at, request) in requests.iter().enumerate() {
        let decision = rows.decide(engine.agent(request.agent), request);
        let (allows, name) = (decision.verdict == Verdict::Allow, contender.name());
        assert_eq!(contender.allows(at), allows, "{name} differs on {}", request.tool);
    }
}

fn decisions(small: &Measured, large: &Measured, report: &mut Report) {
    let reference = large.uniform.median_ns;
    let line = |what: &str, small: Time, large: Time| {
        Line::new(
            what,
            vec![
                Cell::Time(small),
                Cell::Time(large),
                Cell::Ratio(large.median_ns / small.median_ns),
                Cell::Ratio(large.median_ns / reference),
            ],
        )
    };
    let within = |small: Time, large: Time, limit: f64| {
        let worst = small.median_ns.max(large.median_ns);
        worst <= limit && large.median_ns / small.median_ns < 3.0
    };
    let mut lines = vec![
        line("toolward, hot", small.hot, large.hot)
            .target("≤ 50 ns, growth < 3×", within(small.hot, large.hot, 50.0)),
        line("toolward, uniform mix", small.uniform, large.uniform)
            .target("≤ 150 ns, growth < 3×", within(small.uniform, large.uniform, 150.0)),
        line("toolward, rows found by names", small.by_name, large.by_name),
    ];
    for ((name, small), (_, large)) in small.contenders.iter().zip(&large.contenders) {
        lines.push(line(name, *small, *large));
    }
    let columns = ["10 rules", "100,000 rules", "growth", "to uniform mix"];
    report.section("A decision on a known tool", &columns, lines);
}

fn listings(small: &Measured, large: &Measured, report: &mut Report) {
    let line = |what: &str, small: Time, large: Time, target: &str, limit: f64| {
        let cells = vec![
            Cell::Time(small),
            Cell::Time(large),
            Cell::Ratio(large.median_ns / small.median_ns),
            Cell::None,
        ];
        Line::new(what, cells).target(target, small.median_ns.max(large.median_ns) < limit)
    };
    let lines = vec![
        line("toolward, seen before", small.list_seen, large.list_seen, "< 30 µs", 30e3),
        line("toolward, first time", small.list_first, large.list_first, "< 3 ms", 3e6),
    ];
    let columns = ["10 rules", "100,000 rules", "growth", ""];
    report.section("Listing 1,000 tools", &columns, lines);
}
