//! Output of rows: unbuffered at first, for people who watch, then in batches.

use std::fs::File;
use std::io::{BufWriter, Result, Stdout, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::table::Columns;
use crate::audit_log::row::json;
use crate::render::terminal_width;

/// The number of rows written without buffering.
const AT_ONCE: usize = 100;
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// Output that can be watched.
pub(crate) struct Out {
    to: To,
    lines: usize,
    flushed: Instant,
    colours: bool,
}

enum To {
    Standard(BufWriter<Stdout>),
    File(BufWriter<File>),
}

impl Out {
    pub(crate) fn standard() -> Out {
        let stdout = std::io::stdout();
        let colours = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        let to = To::Standard(BufWriter::with_capacity(64 << 10, stdout));
        Out { to, lines: 0, flushed: Instant::now(), colours }
    }

    pub(crate) fn file(file: File) -> Out {
        let to = To::File(BufWriter::with_capacity(64 << 10, file));
        Out { to, lines: 0, flushed: Instant::now(), colours: false }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.to {
            To::Standard(out) => out,
            To::File(out) => out,
        }
    }

    /// Writes a line, including its line break.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        if self.colours {
            self.writer().write_all(line.as_bytes())?;
        } else {
            let plain = anstream::adapter::strip_str(line).to_string();
            self.writer().write_all(plain.as_bytes())?;
        }
        self.written()
    }

    /// Writes bytes without styles.
    pub(crate) fn plain(&mut self, line: &[u8]) -> Result<()> {
        self.writer().write_all(line)?;
        self.written()
    }

    fn written(&mut self) -> Result<()> {
        self.lines += 1;
        if self.lines <= AT_ONCE { self.flush() } else { self.flush_if_due() }
    }

    /// Flushes the buffer if its oldest row has waited long enough.
    pub(crate) fn flush_if_due(&mut self) -> Result<()> {
        if self.flushed.elapsed() >= FLUSH_INTERVAL { self.flush() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.flushed = Instant::now();
        self.writer().flush()
    }
}

/// Rows as a table or as JSON.
pub(crate) struct RowsOut {
    pub(crate) out: Out,
    /// `None`: JSON.
    columns: Option<Columns>,
    pub(crate) rows: usize,
}

impl RowsOut {
    pub(crate) fn new(as_json: bool, utc: bool) -> RowsOut {
        let columns = (!as_json).then(|| Columns::new(utc));
        RowsOut { out: Out::standard(), columns, rows: 0 }
    }

    pub(crate) fn row(&mut self, row: &Value) -> Result<()> {
        let first = self.rows == 0;
        self.rows += 1;
        match &mut self.columns {
            None => self.out.plain(format!("{}\n", json(row)).as_bytes()),
            Some(columns) => {
                let width = terminal_width();
                let headline = if first { columns.headline(row, width) } else { String::new() };
                let line = headline + &columns.row(row, width);
                self.out.line(&line)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_are_there_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut out = Out::file(File::create(&path).unwrap());
        for rows in 1..=AT_ONCE {
            out.plain(b"row\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), rows);
        }
    }
}
