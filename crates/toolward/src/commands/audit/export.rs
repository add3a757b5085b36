//! `toolward audit export`: records for other systems, one per line.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;
use toolward_config::sanitize;
use toolward_gateway::audit::line::harmless;

use super::out::Out;
use super::{cef, csv, ecs, ocsf};
use crate::audit_log::dir::{folder, look, separator};
use crate::audit_log::filter::{Filter, Matcher};
use crate::audit_log::progress::Progress;
use crate::audit_log::row::told;
use crate::audit_log::rows;
use crate::audit_log::scan::{LONGEST_CALL, Scan, left_out, time_at};
use crate::cli::{ExportArgs, ExportFormat};
use crate::exit::{self, Failure};

pub(super) fn run(args: ExportArgs) -> Result<u8, Failure> {
    let filter = Filter::new(args.filter)?.separated_by(separator(&args.record));
    let found = look(&folder(&args.record)?)?;
    let mut out = match &args.output {
        Some(path) => Out::file(create(path)?),
        None => Out::standard(),
    };
    let watched = args.output.is_none() && std::io::stdout().is_terminal();
    if args.format == ExportFormat::Csv {
        out.plain(csv::headline().as_bytes())?;
    }
    let mut scan = Scan::new(found, filter.since_micros, LONGEST_CALL)?;
    if args.format == ExportFormat::Csv {
        let take = |row: Value, progress: &mut Progress| {
            if watched {
                progress.end();
            }
            out.plain(csv::row(&row).as_bytes())?;
            Ok(ControlFlow::Continue(()))
        };
        let unreadable = rows::each(scan, filter, take, || Ok(()))?;
        out.flush()?;
        return finished(unreadable);
    }
    // Records may be slightly out of order.
    let end = filter.until_micros.map(|until| time_at(until.saturating_add(10_000_000)));
    let plain = args.format == ExportFormat::Jsonl && filter.is_plain();
    let mut matcher = Matcher::new(filter);
    scan.each(|line, opening, progress| {
        if end.as_deref().is_some_and(|end| end < opening.time) {
            return Ok(ControlFlow::Break(()));
        }
        let wanted = |filter: &Filter| filter.wants(opening.kind) && filter.in_time(opening.time);
        let found = match plain {
            // The line does not have to be parsed.
            true => wanted(&matcher.filter).then(|| (Value::Null, None)),
            false => matcher.take(line, opening).map(|found| (found.record, found.intent)),
        };
        matcher.give_up();
        let Some((record, intent)) = found.filter(|_| wanted(&matcher.filter)) else {
            return Ok(ControlFlow::Continue(()));
        };
        if watched {
            progress.end();
        }
        let record = match &intent {
            Some(intent) => told(record, intent),
            None => record,
        };
        match args.format {
            ExportFormat::Jsonl => as_it_is(line, &mut out)?,
            ExportFormat::Csv | ExportFormat::Cef => out.plain(cef::event(&record).as_bytes())?,
            ExportFormat::Ecs => json_line(&ecs::event(&record), &mut out)?,
            ExportFormat::Ocsf => json_line(&ocsf::event(&record), &mut out)?,
        }
        Ok(ControlFlow::Continue(()))
    })?;
    scan.progress.end();
    out.flush()?;
    finished(scan.unreadable)
}

fn finished(unreadable: u64) -> Result<u8, Failure> {
    Ok(match left_out(unreadable) {
        Some(warning) => {
            writeln!(anstream::stderr(), "{warning}")?;
            exit::NO
        }
        None => exit::OK,
    })
}

/// The audit record as it was hashed. Gateways never write one that is unsafe for terminals.
fn as_it_is(line: &[u8], out: &mut Out) -> std::io::Result<()> {
    match line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        true => out.plain(&[line, b"\n"].concat()),
        false => out.plain((harmless(&String::from_utf8_lossy(line)) + "\n").as_bytes()),
    }
}

/// One JSON object per line, in ASCII: records may contain text from servers and clients.
fn json_line(event: &Value, out: &mut Out) -> std::io::Result<()> {
    out.plain((harmless(&event.to_string()) + "\n").as_bytes())
}

/// Creates a file with mode 0600. Existing files are never overwritten: they could be audit logs.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| {
        let path = path.display().to_string();
        Failure::usage(format!("error: {}: {error}", sanitize(&path)))
    })
}
