//! One entry of the log, as text or JSON.
//!
//! Text is `TIME LEVEL TARGET: MESSAGE key=value …`. Three fields are special. `server` and `hook` name what the
//! entry is about and come before the message (`upstream: files: …`), where text of the server cannot imitate
//! them. `diagnostic` is the only field that may span lines: its lines follow the message, indented, so that a
//! line that begins with a timestamp is always an entry of its own.
//!
//! Everything is sanitized here, once, in both formats: messages contain text of servers and agents.

use std::fmt::{Debug, Write};

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use serde_json::{Map, Value};
use toolward_config::config::LogFormat;
use toolward_config::sanitize;
use toolward_gateway::traces;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Before each line of a diagnostic.
const INDENT: &str = "    ";

pub(super) struct Entry {
    time: Timestamp,
    level: Level,
    target: &'static str,
    fields: Fields,
}

/// The fields of an event, sanitized.
#[derive(Default)]
struct Fields {
    message: String,
    /// The server or hook that the entry is about.
    subject: Option<(&'static str, String)>,
    diagnostic: Option<String>,
    others: Vec<(&'static str, Value)>,
}

impl Entry {
    pub(super) fn of(event: &Event<'_>) -> Entry {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (trace, decision) = traces::ids();
        fields.others.extend(trace.map(|id| ("trace_id", id.into())));
        fields.others.extend(decision.map(|id| ("decision_id", id.into())));
        let metadata = event.metadata();
        Entry {
            time: Timestamp::now(),
            level: *metadata.level(),
            target: metadata.target(),
            fields,
        }
    }

    /// An entry of the log about itself.
    pub(super) fn warning(message: String) -> Entry {
        let fields = Fields { message, ..Fields::default() };
        Entry { time: Timestamp::now(), level: Level::WARN, target: "log", fields }
    }

    /// The lines of the entry, with their line breaks. Styles are left to the writer to strip.
    pub(super) fn render(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.text(),
            LogFormat::Json => self.json(),
        }
    }

    fn text(&self) -> String {
        let Entry { time, level, target, fields } = self;
        let (dimmed, style) = (Style::new().dimmed(), style(*level));
        let mut text = format!("{dimmed}{time:.3}{dimmed:#} {style}{level}{style:#} {target}: ");
        match &fields.subject {
            Some(("hook", name)) => text.extend(["hook ", name, ": "]),
            Some((_, name)) => text.extend([name, ": "]),
            None => {}
        }
        text.push_str(&fields.message);
        for (name, value) in &fields.others {
            let _ = write!(text, " {name}={}", Shown(value));
        }
        for line in fields.diagnostic.iter().flat_map(|diagnostic| diagnostic.lines()) {
            text.extend(["\n", INDENT, line]);
        }
        text.push('\n');
        text
    }

    fn json(&self) -> String {
        let Entry { time, level, target, fields } = self;
        let mut object = Map::new();
        let mut add = |name: &str, value: Value| drop(object.insert(name.into(), value));
        add("timestamp", format!("{time:.3}").into());
        add("level", level.as_str().into());
        add("target", (*target).into());
        add("message", fields.message.as_str().into());
        if let Some((name, value)) = &fields.subject {
            add(name, value.as_str().into());
        }
        for (name, value) in &fields.others {
            add(name, value.clone());
        }
        if let Some(diagnostic) = &fields.diagnostic {
            add("diagnostic", diagnostic.as_str().into());
        }
        format!("{}\n", Value::Object(object))
    }
}

fn style(level: Level) -> Style {
    let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    match level {
        Level::ERROR => color(AnsiColor::Red).bold(),
        Level::WARN => color(AnsiColor::Yellow),
        Level::INFO => color(AnsiColor::Green),
        _ => Style::new().dimmed(),
    }
}

/// The value of a field in a line of text: quoted if its end would be ambiguous.
struct Shown<'a>(&'a Value);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Value::String(word) if is_plain(word) => f.write_str(word),
            other => write!(f, "{other}"),
        }
    }
}

fn is_plain(word: &str) -> bool {
    let delimits = |c: char| c.is_whitespace() || matches!(c, '"' | '=' | '\\');
    !word.is_empty() && !word.contains(delimits)
}

impl Fields {
    fn add(&mut self, field: &Field, text: &str) {
        match field.name() {
            "message" => self.message = sanitize(text).into_owned(),
            "diagnostic" => {
                let lines: Vec<_> = text.lines().map(sanitize).collect();
                self.diagnostic = Some(lines.join("\n"));
            }
            name @ ("server" | "hook") => self.subject = Some((name, sanitize(text).into_owned())),
            name => self.others.push((name, sanitize(text).as_ref().into())),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }
}

#[cfg(test)]
mod tests;
