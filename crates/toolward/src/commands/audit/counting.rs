//! `toolward audit query --count-by`: counts calls by agent, tool and other fields.

use std::collections::HashMap;
use std::io::Write;

use anstyle::Style;
use serde_json::{Map, Value, json};
use toolward_config::sanitize;

use crate::audit_log::row;
use crate::cli::{CountBy, FilterArgs};
use crate::exit::Failure;
use crate::render::{BOLD, Table};

/// Kinds of records that are about one call.
const CALLS: [&str; 3] = ["intent", "refusal", "unavailable"];

/// Counts rows that agree in some members.
pub(super) struct RowCounts {
    by: Vec<CountBy>,
    /// Only calls are counted, unless kinds are named.
    calls_only: bool,
    counts: HashMap<Vec<Option<String>>, u64>,
}

impl RowCounts {
    pub(super) fn new(by: &[CountBy], filter: &FilterArgs) -> RowCounts {
        let calls_only = filter.kinds.is_empty() && !by.contains(&CountBy::Kind);
        RowCounts { by: by.to_vec(), calls_only, counts: HashMap::new() }
    }

    pub(super) fn add(&mut self, row: &Value) {
        if self.calls_only && !CALLS.iter().any(|kind| row["kind"] == **kind) {
            // Rejected requests are counted only on request.
            return;
        }
        let key = self.by.iter().map(|by| self.member(*by, row)).collect();
        // One record can count several requests of one second.
        *self.counts.entry(key).or_default() += row["count"].as_u64().unwrap_or(1);
    }

    fn member(&self, by: CountBy, row: &Value) -> Option<String> {
        let text = |name: &str| row[name].as_str().map(String::from);
        match by {
            CountBy::Tool => {
                let Some((noun, name)) = row::subject(row) else { return text("exposed_name") };
                let server = text("server").filter(|_| !self.by.contains(&CountBy::Server));
                Some(match server {
                    Some(server) => format!("{noun}{server}/{name}"),
                    None => format!("{noun}{name}"),
                })
            }
            other => text(other.as_str()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Prints the groups, largest first.
    pub(super) fn print(self, as_json: bool, limit: usize) -> Result<(), Failure> {
        let mut rows: Vec<(Vec<Option<String>>, u64)> = self.counts.into_iter().collect();
        rows.sort_by(|(one, count), (other, more)| more.cmp(count).then_with(|| one.cmp(other)));
        rows.truncate(limit);
        let mut out = anstream::stdout();
        if as_json {
            for (key, count) in rows {
                let mut row = Map::new();
                row.insert("count".into(), json!(count));
                for (by, value) in self.by.iter().zip(key) {
                    row.insert(by.as_str().into(), json!(value));
                }
                writeln!(out, "{}", row::json(&Value::Object(row)))?;
            }
            return Ok(());
        }
        if rows.is_empty() {
            return Ok(());
        }
        let heads: Vec<String> = self.by.iter().map(|by| by.as_str().to_uppercase()).collect();
        let mut headline = vec!["COUNT"];
        headline.extend(heads.iter().map(String::as_str));
        let mut table = Table::new(&headline);
        for (key, count) in rows {
            let mut cells = vec![(count.to_string(), BOLD)];
            cells.extend(key.into_iter().map(|value| {
                let value = value.unwrap_or_else(|| "-".into());
                (sanitize(&value).into_owned(), Style::new())
            }));
            table.row(cells);
        }
        write!(out, "{}", table.render())?;
        Ok(())
    }
}
