//! `toolward tail`: follows calls, refusals and lists.

use std::time::Duration;

use super::audit::out::RowsOut;
use crate::audit_log::dir::{folder, look, separator};
use crate::audit_log::filter::{Filter, Matcher};
use crate::audit_log::follow::RowFollower;
use crate::audit_log::tail_rows::latest;
use crate::cli::TailArgs;
use crate::exit::{self, Failure};

/// The polling interval of files.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A call that takes longer is shown before it has ended.
const LONG_CALL: Duration = Duration::from_secs(1);
/// How many bytes of each stream are searched for the first rows, from the end.
const SEARCHED_BYTES: u64 = 64 << 20;

pub(crate) fn run(args: TailArgs) -> Result<u8, Failure> {
    let utc = args.filter.utc;
    let filter = Filter::new(args.filter)?.separated_by(separator(&args.record));
    let folder = folder(&args.record)?;
    let found = look(&folder)?;
    let mut out = RowsOut::new(args.output.json, utc);
    // Without following, all requested rows are printed.
    let back = if args.no_follow { u64::MAX } else { SEARCHED_BYTES };
    let latest = latest(&found, &filter, args.lines, back)?.rows;
    let mut matcher = Matcher::new(filter);
    for row in &latest {
        out.row(row)?;
        if row["kind"] == "intent" && row.get("outcome").is_none() {
            matcher.expect(row);
        }
    }
    out.out.flush()?;
    if args.no_follow {
        return Ok(exit::OK);
    }
    let mut arriving = RowFollower::after(folder, &found, matcher, LONG_CALL)?;
    // Until the process ends or its output is closed.
    loop {
        for row in &arriving.poll(None)?.rows {
            out.row(row)?;
        }
        out.out.flush()?;
        std::thread::sleep(POLL_INTERVAL);
    }
}
