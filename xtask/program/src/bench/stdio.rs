//! Calls over pipes: directly, and through `toolward wrap`.

use std::ffi::OsString;

use super::contest::{Contender, contest};
use super::spread::Spread;
use super::table::Table;
use super::{Bench, Result, toolward};

pub(super) fn run(bench: &Bench) -> Result<Table> {
    let folder = bench.subfolder("wrap")?;
    let policy = folder.join("policy.yaml");
    toolward::write_policy(&policy)?;
    let server: Vec<OsString> = vec!["--".into(), (&bench.testkit).into(), "echo-stdio".into()];
    let wrap: Vec<OsString> = vec![
        "--".into(),
        (&bench.toolward).into(),
        "wrap".into(),
        "--policy".into(),
        policy.into(),
        "--agent".into(),
        "bench".into(),
        "--name".into(),
        "echo".into(),
        "--audit".into(),
        folder.join("audit").into(),
    ];
    let load = |era: &str| ["load-stdio", "--era", era].map(OsString::from).to_vec();
    let contender = |name, era, parts: &[&[OsString]]| {
        Contender::new(name, [load(era), parts.concat()].concat())
    };
    let measured = contest(
        bench,
        &[
            contender("modern, directly", "modern", &[&server]),
            contender("modern, through toolward wrap", "modern", &[&wrap, &server]),
            contender("legacy, directly", "legacy", &[&server]),
            contender("legacy, through toolward wrap", "legacy", &[&wrap, &server]),
        ],
    )?;
    let mut table = Table::of(
        "calls over stdio",
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("calls per second", |one| one.per_second),
        ],
    );
    for (era, pair) in ["modern", "legacy"].into_iter().zip(measured.chunks(2)) {
        let [direct, wrapped] = pair else { continue };
        let rounds = direct.samples.iter().zip(&wrapped.samples);
        let added = Spread::of(rounds.map(|(direct, wrapped)| wrapped.p50 - direct.p50));
        let what = format!("added by toolward wrap, {era}, µs");
        table.finding(&what, added, "at most 60", added.median <= 60.0);
    }
    Ok(table)
}
