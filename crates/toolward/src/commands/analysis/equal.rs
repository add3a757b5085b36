//! `toolward equal`: whether two policies decide everything alike.

use std::io::Write;

use serde_json::json;
use toolward_policy::analyse::{self, Subjects};

use super::load;
use crate::cli::EqualArgs;
use crate::exit::{self, Failure};
use crate::report::points;

pub(crate) fn run(args: &EqualArgs) -> Result<u8, Failure> {
    let (one, other) = (load(&args.one, &[])?, load(&args.other, &[])?);
    let found = analyse::diff(&one.policy, &other.policy, &Subjects::default());
    let answer = found.is_none();
    let example = found.changes.first().or(found.possible.first());
    let mut out = anstream::stdout();
    if args.output.json {
        let example = example.map(|change| {
            json!({
                "example": points::to_json(&change.point),
                "one": points::decision_json(&one.policy, &change.before),
                "other": points::decision_json(&other.policy, &change.after),
                "depends_on": change.depends_on,
            })
        });
        let undecided: Vec<String> = found.undecided.iter().map(points::undecided).collect();
        let report = json!({"equal": answer, "difference": example, "undecided": undecided});
        writeln!(out, "{report}")?;
    } else {
        let word = match answer {
            Some(true) => "equal: both decide everything alike",
            Some(false) => "not equal",
            None => "undecided",
        };
        writeln!(out, "{word}")?;
        if let Some(change) = example {
            writeln!(out, "  {}", points::text(&change.point))?;
            for (name, policy, decision) in
                [("A", &one.policy, &change.before), ("B", &other.policy, &change.after)]
            {
                let rule = points::rule(policy, decision);
                writeln!(out, "  {name}: {}, {rule}", decision.verdict)?;
            }
        }
        for undecided in &found.undecided {
            writeln!(out, "  {}", points::undecided(undecided))?;
        }
    }
    Ok(match answer {
        Some(true) => exit::OK,
        Some(false) => exit::NO,
        None => exit::UNDECIDED,
    })
}
