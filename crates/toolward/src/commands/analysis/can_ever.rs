//! `toolward can-ever`: whether a call of some kind can ever be allowed.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::{sanitize, suggest};
use toolward_policy::Family;
use toolward_policy::analyse::{self, Ever, Subjects, Witness};
use toolward_policy::fnmatch::{fnmatch, is_pattern};

use crate::cli::{CanEverArgs, ToolsArgs};
use crate::exit::{self, Failure};
use crate::load::Input;
use crate::render::{GREEN, RED, YELLOW, paint};
use crate::report::points;

pub(crate) fn run(args: &CanEverArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let Some((server, selector)) =
        args.subject.split_once('/').filter(|(one, other)| !one.is_empty() && !other.is_empty())
    else {
        return Err(Failure::usage(format!(
            "error: `{}` does not name a server and tools\n  help: write SERVER/SELECTOR, e.g. 'tracker/delete_*'",
            sanitize(&args.subject)
        )));
    };
    let input = Input::load(&args.policy, &ToolsArgs { lists: Vec::new() }, matches)?;
    let hint = analyse::impossible_hint(&input.policy, selector);
    for warning in unknown_server(&input, server).into_iter().chain(hint) {
        writeln!(anstream::stderr(), "warning: {}", sanitize(&warning))?;
    }
    let agent = args.agent.as_deref();
    let subjects = Subjects {
        agent: agent.filter(|agent| !is_pattern(agent)),
        agents: agent.filter(|agent| is_pattern(agent)),
        servers: Some(server),
        ..Subjects::default()
    };
    let answer = analyse::can_ever(&input.policy, &subjects, Family::Tools, selector);
    let (word, style, code, witness) = match &answer {
        Ever::Yes(witness) => ("yes", GREEN, exit::OK, Some(witness)),
        Ever::Asks(witness) => ("only if a person approves", YELLOW, exit::OK, Some(witness)),
        Ever::Never => ("never", RED, exit::NO, None),
        Ever::Depends(witness) => ("undecided", YELLOW, exit::UNDECIDED, Some(witness)),
        Ever::Undecided(_) => ("undecided", YELLOW, exit::UNDECIDED, None),
    };
    let mut out = anstream::stdout();
    if args.output.json {
        let undecided = match &answer {
            Ever::Undecided(why) => Some(points::undecided(why)),
            _ => None,
        };
        let report = json!({
            "answer": match &answer {
                Ever::Yes(_) => "yes",
                Ever::Asks(_) => "ask",
                Ever::Never => "never",
                Ever::Depends(_) | Ever::Undecided(_) => "undecided",
            },
            "example": witness.map(|witness| points::to_json(&witness.point)),
            "decision": witness.map(|witness| points::decision_json(&input.policy, &witness.decision)),
            "depends_on": witness.map(|witness| &witness.depends_on),
            "undecided": undecided,
        });
        writeln!(out, "{report}")?;
        return Ok(code);
    }
    writeln!(out, "{}", paint(style, word))?;
    if let Some(witness) = witness {
        write!(out, "{}", details(&input, witness))?;
    }
    if let Ever::Undecided(why) = &answer {
        writeln!(out, "  {}", points::undecided(why))?;
    }
    Ok(code)
}

/// Reports that the configuration has no such server, which is most likely a typo.
fn unknown_server(input: &Input, server: &str) -> Option<String> {
    let names = || input.loaded.config.servers.iter().map(|known| known.name.as_str());
    if names().next().is_none() || names().any(|name| name == server || fnmatch(server, name)) {
        return None;
    }
    let help = match suggest::nearest(server, names()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Some(format!("there is no server named `{server}`; {help}"))
}

fn details(input: &Input, witness: &Witness) -> String {
    let mut text = format!("  e.g. {}\n", points::text(&witness.point));
    text.push_str(&format!("  by {}\n", points::rule(&input.policy, &witness.decision)));
    if !witness.depends_on.is_empty() {
        let conditions = sanitize(&witness.depends_on.join("`, `")).into_owned();
        text.push_str(&format!("  depends on `{conditions}`\n"));
    }
    text
}
