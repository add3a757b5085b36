//! `toolward plan`: which past calls and listings a new policy would change.

mod output;

use std::io::Write;

use toolward_config::{
    Disk, Loader, Options, PolicyFile, PolicyFlag, ProcessEnv, is_configuration,
};

use self::output::Printed;
use super::history::History;
use crate::cli::{PlanArgs, ReportFormat};
use crate::exit::{self, Failure};
use crate::load::{Input, invalid};
use crate::replay::candidate;
use crate::replay::{Rules, replay};

pub(crate) fn run(args: &PlanArgs) -> Result<u8, Failure> {
    let history = History::new(&args.history)?;
    let new = new_policy(args, &history)?;
    for warning in &new.loaded.warnings {
        writeln!(anstream::stderr(), "{}", warning.render(true))?;
    }
    let rules = Rules {
        policy: &new.policy,
        catalogue: &history.current.catalogue,
        naming: Some(&history.current.policy),
        separator: &history.current.loaded.config.separator,
    };
    let report = replay(history.found, history.period, rules, args.agent.as_deref())?;
    let printed = Printed { report: &report, policy: &new.policy, clock: &history.clock };
    let mut out = std::io::BufWriter::new(anstream::stdout());
    match args.format {
        _ if args.output.json => printed.write_json(&mut out)?,
        ReportFormat::Json => printed.write_json(&mut out)?,
        ReportFormat::Text => out.write_all(printed.text().as_bytes())?,
        ReportFormat::Markdown => out.write_all(printed.markdown().as_bytes())?,
    }
    out.flush()?;
    Ok(if report.is_changed() { exit::NO } else { exit::OK })
}

fn new_policy(args: &PlanArgs, history: &History) -> Result<Input, Failure> {
    let path = args.new.clone();
    let content = std::fs::read_to_string(&path).unwrap_or_default();
    let loader = Loader { files: Disk, env: ProcessEnv };
    let new = match is_configuration(&path, &content) {
        true => {
            let options = Options { main: Some(path), ..Options::default() };
            candidate::load(&loader, &options, None)
        }
        false => {
            let file = PolicyFile { path, flag: PolicyFlag::Policy, format: None };
            let options = Options { policies: vec![file], ..Options::default() };
            candidate::load(&loader, &options, Some(&history.current.servers))
        }
    };
    new.map_err(|diagnostics| invalid(&diagnostics))
}
