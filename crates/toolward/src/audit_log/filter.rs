//! Filters records. An outcome is matched through the call it belongs to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use memchr::memmem::{self, Finder};
use serde_json::Value;
use toolward_gateway::audit::read::Opening;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use super::argument_search::ArgumentSearch;
use super::clock::Clock;
use super::row::subject;
use super::scan::time_at;
use super::time::point;
use crate::cli::{FilterArgs, RecordedVerdict};
use crate::exit::Failure;

/// The maximum number of calls in flight; beyond it the oldest is dropped.
const MAX_OPEN: usize = 16_384;

/// The conditions of a filter.
pub(crate) struct Filter {
    agent: Option<String>,
    server: Option<String>,
    tool: Option<Glob>,
    verdict: Option<&'static str>,
    would: Option<&'static str>,
    kinds: Vec<String>,
    /// As written in records.
    since: Option<String>,
    until: Option<String>,
    /// The same in microseconds.
    pub(crate) since_micros: Option<u64>,
    pub(crate) until_micros: Option<u64>,
    /// The separator between server and tool in client-facing names.
    separators: Vec<String>,
    /// The arguments that a call must have.
    sought: Option<Arc<ArgumentSearch>>,
    /// A substring of every matching line, to skip others without parsing.
    needles: Vec<Finder<'static>>,
}

impl Filter {
    pub(crate) fn new(args: FilterArgs) -> Result<Filter, Failure> {
        let clock = Clock::new(args.utc);
        let time = |flag: &str, text: &Option<String>| {
            text.as_deref().map(|text| point(flag, text, &clock)).transpose()
        };
        let since_micros = time("--since", &args.since)?;
        let until_micros = time("--until", &args.until)?;
        let word = |verdict: RecordedVerdict| match verdict {
            RecordedVerdict::Allow => "allow",
            RecordedVerdict::Deny => "deny",
            RecordedVerdict::Ask => "ask",
        };
        let (verdict, would) = (args.verdict.map(word), args.would.map(word));
        let named = |text: &Option<String>| text.as_deref().and_then(quoted);
        let agent = named(&args.agent).filter(|_| args.agent.as_deref() != Some(""));
        let tool = args.tool.as_deref().filter(|text| !text.contains(['*', '?', '[']));
        let needles = [
            agent.map(|name| format!("\"agent\":{name}")),
            // A list record has servers as keys, and an unlisted name begins with the server and ends with
            // the tool.
            args.server.as_deref().and_then(quoted).map(|server| begin(&server)),
            tool.and_then(quoted).map(|tool| end(&tool)),
            verdict.map(|verdict| format!("\"verdict\":\"{verdict}\"")),
            would.map(|_| "\"would\":{".to_string()),
        ];
        Ok(Filter {
            agent: args.agent,
            server: args.server,
            tool: args.tool.as_deref().map(|text| Glob::new(text, Case::Sensitive)),
            verdict,
            would,
            kinds: args.kinds,
            since: since_micros.map(time_at),
            until: until_micros.map(time_at),
            since_micros,
            until_micros,
            separators: ["__", "/"].map(String::from).into(),
            sought: None,
            needles: needles
                .into_iter()
                .flatten()
                .map(|needle| Finder::new(needle.as_bytes()).into_owned())
                .collect(),
        })
    }

    /// The same, with the separator of the configuration.
    pub(crate) fn separated_by(mut self, separator: Option<String>) -> Filter {
        self.separators.extend(separator.filter(|own| !own.is_empty()));
        self
    }

    /// The same, only for calls with certain arguments.
    pub(crate) fn with_arguments(self, sought: Option<Arc<ArgumentSearch>>) -> Filter {
        Filter { sought, ..self }
    }

    /// Whether time and kind alone decide the match.
    pub(crate) fn is_plain(&self) -> bool {
        self.agent.is_none()
            && self.server.is_none()
            && self.tool.is_none()
            && self.verdict.is_none()
            && self.would.is_none()
            && self.sought.is_none()
    }

    /// Whether records of this kind are wanted.
    pub(crate) fn wants(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind)
    }

    pub(crate) fn in_time(&self, time: &str) -> bool {
        self.since.as_deref().is_none_or(|since| since <= time)
            && self.until.as_deref().is_none_or(|until| time <= until)
    }

    /// Whether a line may match, by a substring search.
    fn can_fit(&self, line: &[u8]) -> bool {
        self.needles.iter().all(|needle| needle.find(line).is_some())
    }

    /// The record, if agent, server, tool and verdict match.
    pub(crate) fn read(&self, line: &[u8]) -> Option<Value> {
        if !self.can_fit(line) {
            return None;
        }
        serde_json::from_slice(line).ok().filter(|record| self.fits(record))
    }

    fn fits(&self, record: &Value) -> bool {
        let agent = |wanted: &String| match wanted.as_str() {
            // A rejected request has an agent only if one was identified.
            "" => match record.get("agent") {
                Some(agent) => agent.is_null(),
                None => record["kind"] == "turned-away",
            },
            wanted => record["agent"] == *wanted,
        };
        // An unlisted name has no server and tool in its record: it is matched by its parts.
        let unseen = record["exposed_name"].as_str().filter(|_| subject(record).is_none());
        let server = |wanted: &String| {
            let begins = |name: &str| {
                let rest = name.strip_prefix(wanted.as_str());
                rest.is_some_and(|rest| self.separators.iter().any(|one| rest.starts_with(one)))
            };
            record["server"] == **wanted
                || record["servers"].get(wanted).is_some()
                || (record["server"].is_null() && unseen.is_some_and(begins))
        };
        let tool = |wanted: &Glob| {
            let ends = |name: &str| {
                let mut cuts = self.separators.iter().flat_map(|one| {
                    name.match_indices(one.as_str()).map(|(at, found)| at + found.len())
                });
                cuts.any(|at| name.get(at..).is_some_and(|tool| wanted.matches(tool)))
            };
            let own = subject(record).map(|(_, name)| name);
            let names = own.into_iter().chain(record["exposed_name"].as_str());
            names.into_iter().any(|name| wanted.matches(name)) || unseen.is_some_and(ends)
        };
        self.agent.as_ref().is_none_or(agent)
            && self.server.as_ref().is_none_or(server)
            && self.tool.as_ref().is_none_or(tool)
            && self.verdict.is_none_or(|verdict| record["verdict"] == *verdict)
            && self.would.is_none_or(|verdict| record["would"]["verdict"] == *verdict)
            // Last, because it counts what it cannot compare.
            && self.sought.as_ref().is_none_or(|sought| sought.fits(record))
    }
}

/// A string as written in records, if it needs no escapes.
fn quoted(text: &str) -> Option<String> {
    let plain =
        text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
    plain.then(|| format!("\"{text}\""))
}

/// A quoted string without its closing quote, or without its opening quote.
fn begin(quoted: &str) -> String {
    quoted.strip_suffix('"').unwrap_or(quoted).into()
}

fn end(quoted: &str) -> String {
    quoted.strip_prefix('"').unwrap_or(quoted).into()
}

/// The id of the call that an outcome belongs to.
pub(crate) fn intent_of(line: &[u8]) -> Option<&str> {
    let begin = memmem::find(line, b"\"intent\":\"")? + "\"intent\":\"".len();
    let rest = line.get(begin..)?;
    std::str::from_utf8(rest.get(..memchr::memchr(b'"', rest)?)?).ok()
}

/// A matching record. An outcome includes the intent of its call.
pub(crate) struct Match {
    pub(crate) record: Value,
    pub(crate) intent: Option<Value>,
}

/// Matches records, and tracks calls in flight.
pub(crate) struct Matcher {
    pub(crate) filter: Filter,
    open: HashMap<String, Value>,
    /// The same in order, including some that have ended.
    order: VecDeque<String>,
}

impl Matcher {
    pub(crate) fn new(filter: Filter) -> Matcher {
        Matcher { filter, open: HashMap::new(), order: VecDeque::new() }
    }

    /// Waits for the outcome of a call that was found elsewhere.
    pub(crate) fn expect(&mut self, intent: &Value) {
        if let Some(id) = intent["id"].as_str() {
            self.open.insert(id.into(), intent.clone());
            self.order.push_back(id.into());
        }
    }

    /// Whether any call has no outcome yet.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The record, if it matches; kinds and times of calls are checked elsewhere.
    pub(crate) fn take(&mut self, line: &[u8], opening: Opening<'_>) -> Option<Match> {
        match opening.kind {
            "intent" => {
                let record = self.filter.read(line)?;
                self.expect(&record);
                Some(Match { record, intent: None })
            }
            "outcome" => {
                let intent = self.open.remove(intent_of(line)?)?;
                let record = serde_json::from_slice(line).ok()?;
                Some(Match { record, intent: Some(intent) })
            }
            kind if self.filter.wants(kind) => {
                let record = self.filter.read(line)?;
                Some(Match { record, intent: None })
            }
            _ => None,
        }
    }

    /// The oldest call, if there are too many in flight.
    pub(crate) fn give_up(&mut self) -> Option<Value> {
        while self.order.len() > MAX_OPEN {
            let given_up = self.order.pop_front().and_then(|id| self.open.remove(&id));
            if given_up.is_some() {
                return given_up;
            }
        }
        None
    }

    /// All calls without an outcome, in order.
    pub(crate) fn unended(&mut self) -> Vec<Value> {
        let order = std::mem::take(&mut self.order);
        order.iter().filter_map(|id| self.open.remove(id)).collect()
    }
}
