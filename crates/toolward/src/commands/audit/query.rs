//! `toolward audit query`: one row per call, refusal, list or other event.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::counting::RowCounts;
use super::out::RowsOut;
use crate::audit_log::argument_search::ArgumentSearch;
use crate::audit_log::dir::{folder, look, separator};
use crate::audit_log::filter::Filter;
use crate::audit_log::rows;
use crate::audit_log::scan::{DISORDER, LONGEST_CALL, Scan, left_out};
use crate::audit_log::tail_rows::latest;
use crate::cli::QueryArgs;
use crate::exit::{self, Failure};

pub(super) fn run(args: QueryArgs) -> Result<u8, Failure> {
    let utc = args.filter.utc;
    let counting =
        (!args.count_by.is_empty()).then(|| RowCounts::new(&args.count_by, &args.filter));
    let sought = args.arguments.as_deref();
    let sought = sought.map(|text| ArgumentSearch::new(text, &args.record, args.state.as_deref()));
    let sought = sought.transpose()?.map(Arc::new);
    let filter = Filter::new(args.filter)?.separated_by(separator(&args.record));
    let filter = filter.with_arguments(sought.clone());
    let found = look(&folder(&args.record)?)?;
    let mut out = RowsOut::new(args.output.json, utc);
    let unreadable = match (args.last, counting) {
        (_, Some(mut counting)) => {
            let before = filter.since_micros;
            let scan = Scan::new(found, before, LONGEST_CALL)?;
            let take = |row, _: &mut _| {
                counting.add(&row);
                Ok(ControlFlow::Continue(()))
            };
            let unreadable = rows::each(scan, filter, take, || Ok(()))?;
            out.rows = counting.len();
            counting.print(args.output.json, args.limit.unwrap_or(usize::MAX))?;
            unreadable
        }
        (Some(rows), None) => {
            let latest = latest(&found, &filter, rows, u64::MAX)?;
            for row in &latest.rows {
                out.row(row)?;
            }
            latest.unreadable
        }
        (None, None) => {
            // An outcome is shown with its call, unless only outcomes are requested.
            let before = if filter.wants("intent") { DISORDER } else { LONGEST_CALL };
            let scan = Scan::new(found, filter.since_micros, before)?;
            forwards(scan, filter, args.limit, &mut out)?
        }
    };
    out.out.flush()?;
    let mut stderr = anstream::stderr();
    if out.rows == 0 && !args.output.json {
        writeln!(stderr, "no record matches")?;
    }
    let uncompared = sought.and_then(|sought| sought.uncompared());
    if let Some(warning) = &uncompared {
        writeln!(stderr, "{warning}")?;
    }
    Ok(match left_out(unreadable) {
        None if uncompared.is_some() => exit::NO,
        Some(warning) => {
            writeln!(stderr, "{warning}")?;
            exit::NO
        }
        None => exit::OK,
    })
}

/// Prints rows while records are read; returns the number of invalid lines.
fn forwards(
    scan: Scan,
    filter: Filter,
    limit: Option<usize>,
    out: &mut RowsOut,
) -> Result<u64, Failure> {
    let limit = limit.unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(0);
    }
    let watched = std::io::stdout().is_terminal();
    let out = std::cell::RefCell::new(out);
    rows::each(
        scan,
        filter,
        |row, progress| {
            if watched {
                progress.end();
            }
            let mut out = out.borrow_mut();
            out.row(&row)?;
            Ok(match out.rows >= limit {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        },
        || Ok(out.borrow_mut().out.flush_if_due()?),
    )
}
