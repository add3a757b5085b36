//! The filter of the live view.

use serde_json::Value;

use crate::admin::query::encoded;
use crate::admin::{AdminUi, Query};
use crate::audit_log::filter::Filter;
use crate::audit_log::row::what;
use crate::cli::{FilterArgs, RecordedVerdict};
use crate::exit::Failure;

/// Kinds of records about calls, and about calls and lists.
const CALLS: [&str; 3] = ["intent", "refusal", "unavailable"];

/// The fields of the form, as submitted.
#[derive(Debug, Clone, Default)]
pub(super) struct FilterForm {
    /// `=NAME`; `=` for unnamed callers; empty for all.
    pub(super) agent: String,
    pub(super) server: String,
    pub(super) verdict: String,
    /// `calls`, `all`, or empty for calls and lists.
    pub(super) kinds: String,
    pub(super) text: String,
}

impl FilterForm {
    pub(super) fn read(query: &Query) -> FilterForm {
        let word = |name: &str| query.word(name).unwrap_or_default().to_string();
        FilterForm {
            agent: word("agent"),
            server: word("server"),
            verdict: word("verdict"),
            kinds: word("kinds"),
            text: word("q"),
        }
    }

    pub(super) fn is_agent(&self, name: &str) -> bool {
        self.agent.strip_prefix('=') == Some(name)
    }

    /// Whether the filter excludes anything.
    pub(super) fn is_narrow(&self) -> bool {
        let fields = [&self.agent, &self.server, &self.verdict, &self.text];
        fields.iter().any(|field| !field.is_empty())
    }

    /// Whether rows must be parsed completely to be matched.
    pub(super) fn is_sought(&self) -> bool {
        !self.text.is_empty() || self.verdict == "failed"
    }

    /// The same as a query string.
    pub(super) fn query(&self) -> String {
        let fields = [
            ("agent", &self.agent),
            ("server", &self.server),
            ("verdict", &self.verdict),
            ("kinds", &self.kinds),
            ("q", &self.text),
        ];
        let said = fields.iter().filter(|(_, value)| !value.is_empty());
        let said = said.map(|(name, value)| format!("{name}={}", encoded(value)));
        said.collect::<Vec<_>>().join("&")
    }

    /// The part of the filter that can be matched before a line is parsed.
    pub(super) fn filter(&self, page: &AdminUi) -> Result<Filter, Failure> {
        let kinds = match &*self.kinds {
            "all" => Vec::new(),
            "calls" => CALLS.map(String::from).into(),
            _ => CALLS.into_iter().chain(["list"]).map(String::from).collect(),
        };
        let filter = Filter::new(FilterArgs {
            agent: self.agent.strip_prefix('=').map(String::from),
            server: Some(self.server.clone()).filter(|server| !server.is_empty()),
            verdict: match &*self.verdict {
                "allow" => Some(RecordedVerdict::Allow),
                "deny" => Some(RecordedVerdict::Deny),
                _ => None,
            },
            kinds,
            ..FilterArgs::default()
        })?;
        Ok(filter.separated_by(Some(page.reloader.begun().separator.clone())))
    }

    /// Whether a row that passed the filter matches completely.
    pub(super) fn takes(&self, row: &Value) -> bool {
        let failed = || match row["outcome"].as_str() {
            Some("ok" | "cancelled") | None => row["kind"] == "unavailable",
            Some(_) => true,
        };
        if self.verdict == "failed" && !failed() {
            return false;
        }
        if self.text.is_empty() {
            return true;
        }
        let sought = self.text.to_lowercase();
        let names = ["agent", "exposed_name", "step", "rule", "rule_text", "rule_at", "outcome"];
        let also = ["reason", "id", "client", "request_id"];
        let words = names.iter().chain(&also).filter_map(|name| row[name].as_str());
        let about = what(row);
        words.chain([about.as_str()]).any(|word| word.to_lowercase().contains(&sought))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_sought_in_what_a_row_shows() {
        let row = json!({"kind": "intent", "server": "Files", "tool": "read", "agent": "dev",
            "outcome": "timed-out", "rule_at": "toolward.yaml:3:4", "arguments": "secret"});
        let takes = |text: &str, verdict: &str| {
            let (text, verdict) = (text.into(), verdict.into());
            FilterForm { text, verdict, ..FilterForm::default() }.takes(&row)
        };
        assert!(takes("", "") && takes("files/READ", "") && takes("yaml:3", "failed"));
        assert!(!takes("write", "") && !takes("secret", ""));
        let fine = json!({"kind": "intent", "outcome": "ok"});
        let failed = FilterForm { verdict: "failed".into(), ..FilterForm::default() };
        assert!(!failed.takes(&fine) && failed.takes(&json!({"kind": "unavailable"})));
    }
}
