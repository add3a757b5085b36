//! `audit query --arguments`: finds calls by the keyed hash of their arguments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use toolward_config::sanitize;
use toolward_gateway::audit::arguments::{Comparison, HashKey, compare};
use toolward_gateway::lock::LockUnpoisoned;

use crate::arguments::ArgumentsText;
use crate::cli::RecordArgs;
use crate::exit::Failure;
use crate::running;

/// The arguments to search for.
pub(crate) struct ArgumentSearch {
    /// Common serializations: a hash covers the bytes that were sent.
    spellings: Vec<Vec<u8>>,
    key: Option<HashKey>,
    /// The directory in which the key was looked up.
    state: Option<PathBuf>,
    uncompared: Mutex<UncomparedRecords>,
}

/// Records whose hash cannot be compared.
#[derive(Default)]
struct UncomparedRecords {
    records: u64,
    /// The ids of the keys of these hashes.
    keys: BTreeSet<String>,
}

impl ArgumentSearch {
    pub(crate) fn new(
        text: &str,
        record: &RecordArgs,
        state: Option<&Path>,
    ) -> Result<ArgumentSearch, Failure> {
        let given = ArgumentsText::parse(text).map_err(|why| {
            Failure::usage(format!("error: the arguments are not a JSON object: {why}"))
        })?;
        let state = state.map(Path::to_path_buf).or_else(|| state_folder(record));
        let key = state.as_deref().map(HashKey::existing).transpose().map_err(|error| {
            let state = state.as_deref().unwrap_or(Path::new("")).display().to_string();
            Failure::invalid(format!("error: the key in {}: {error}", sanitize(&state)))
        })?;
        let (spellings, uncompared) = (spellings(&given), Mutex::default());
        Ok(ArgumentSearch { spellings, key: key.flatten(), state, uncompared })
    }

    fn unknown(&self) -> MutexGuard<'_, UncomparedRecords> {
        self.uncompared.locked()
    }

    /// Whether a record belongs to a call with these arguments.
    pub(crate) fn fits(&self, record: &Value) -> bool {
        let hash = record["arguments_hash"].as_str().or(record["arguments"].as_str());
        let Some(hash) = hash else { return false };
        let compared = compare(hash, self.key.as_ref(), &self.spellings);
        if compared == Comparison::Unknown {
            let key = hash.split(':').nth(1).unwrap_or_default();
            let mut unknown = self.unknown();
            unknown.records += 1;
            unknown.keys.insert(sanitize(key).chars().take(16).collect());
        }
        compared == Comparison::Same
    }

    /// A warning about calls that could not be compared.
    pub(crate) fn uncompared(&self) -> Option<String> {
        let unknown = self.unknown();
        let calls = match unknown.records {
            0 => return None,
            1 => String::from("1 record was"),
            many => format!("{many} records were"),
        };
        let keys: Vec<String> = unknown.keys.iter().take(3).cloned().collect();
        let state = self.state.as_ref().map(|state| state.display().to_string());
        let at = state.map_or(String::new(), |state| format!(" in {}", sanitize(&state)));
        Some(format!(
            "warning: {calls} not compared: their arguments are hashed with a key that is not{at} \
             (key {})\n  help: give the state directory of the gateway that wrote them: --state DIR",
            keys.join(", ")
        ))
    }
}

/// The state directory of the gateway that wrote a log.
fn state_folder(record: &RecordArgs) -> Option<PathBuf> {
    if record.dir.is_none() {
        return running::places(record.config.as_deref()).state;
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".local/state/toolward"))
}

/// The object as given, compact, and with the spacing of Python; with and without escapes for non-ASCII
/// characters.
fn spellings(given: &ArgumentsText) -> Vec<Vec<u8>> {
    let value = Value::Object((**given).clone());
    let compact = value.to_string();
    let spaced = spaced(&value);
    let mut all: Vec<String> = vec![given.text().into(), escaped(&compact), escaped(&spaced)];
    all.extend([compact, spaced]);
    all.dedup();
    all.into_iter().map(String::into_bytes).collect()
}

/// JSON with a space after each comma and colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), spaced(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// The same JSON in ASCII.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_in_the_spellings_of_usual_clients() {
        let given = ArgumentsText::parse(r#"{"b" : [1,2], "a":"ü 😀"}"#).unwrap();
        let all = spellings(&given);
        for usual in [
            r#"{"b" : [1,2], "a":"ü 😀"}"#,
            r#"{"b":[1,2],"a":"ü 😀"}"#,
            r#"{"b": [1, 2], "a": "ü 😀"}"#,
            r#"{"b": [1, 2], "a": "\u00fc \ud83d\ude00"}"#,
            r#"{"b":[1,2],"a":"\u00fc \ud83d\ude00"}"#,
        ] {
            assert!(all.iter().any(|one| one == usual.as_bytes()), "{usual}");
        }
    }
}
