//! Reports of changed and approved definitions: log entries and audit records.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use toolward_wire::list::ListKind;

use super::canonical::Digest;
use super::screen::{ChangedEntry, Outcome};
use super::{Mode, Pins, ServerSetup, State};
use crate::audit::facts::Facts;
use crate::audit::redact::outside;
use crate::lock::LockUnpoisoned;

/// Names in a record, and changes of one definition.
const MAX_RECORDED: usize = 100;
const MAX_CHANGES: usize = 20;
/// Reports that wait until they can be recorded.
const MAX_WAITING: usize = 1000;
/// Changes that were reported once are not reported again.
const MAX_REPORTED: usize = 10_000;

impl Pins {
    pub(super) fn report_approved(&self, approved: &[String]) {
        let mut facts = Facts::default();
        let file = self.file().unwrap_or_default();
        facts.text("lock", &Digest::of_text(&file.render()).to_string());
        let names = approved.iter().take(MAX_RECORDED);
        facts.json(
            "approved",
            &names.map(|name| outside(name).into_owned()).collect::<Value>().to_string(),
        );
        facts.number("count", approved.len() as u64);
        tracing::info!(target: "pins", "approved definitions were loaded: {} changed", approved.len());
        self.push(&mut self.state.locked(), "pin-approved", facts);
    }

    /// The records of changes that were found since the last time.
    pub(crate) fn take_reports(&self) -> Vec<(&'static str, Facts)> {
        if !self.has_reports.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.state.locked().reports)
    }

    /// Keeps a report that could not be recorded, for the next time.
    pub(crate) fn put_back(&self, kind: &'static str, facts: Facts) {
        let mut state = self.state.locked();
        if state.reports.len() < MAX_WAITING {
            self.push(&mut state, kind, facts);
        }
    }

    pub(super) fn report(&self, state: &mut State, setup: &ServerSetup, changed: &ChangedEntry) {
        let (server, name) = (&*setup.name, &*changed.name);
        let kind = changed.kind.noun();
        if !self.is_new(&[server, kind, name, changed.outcome.as_str()], changed.current.digest()) {
            return;
        }
        let summary = changed.summary();
        let shown = (outside(name), outside(&summary));
        match changed.outcome {
            Outcome::Quarantined => tracing::warn!(
                target: "pins", server,
                "the {kind} `{}` is quarantined: {}; review it with `toolward changes {server}`",
                shown.0, shown.1
            ),
            Outcome::ApprovedShown | Outcome::Reported => tracing::info!(
                target: "pins", server,
                "the definition of the {kind} `{}` changed ({}): {}; review it with `toolward changes {server}`",
                shown.0, changed.class.as_str(), shown.1
            ),
        }
        let mut facts = Facts::default();
        facts.text("server", server);
        facts.text(kind_key(changed.kind), &outside(name));
        facts.text("class", changed.class.as_str());
        facts.text("mode", setup.mode.as_str());
        facts.text("outcome", changed.outcome.as_str());
        let digest = |of: Option<Digest>| of.map(|digest| digest.to_string());
        let approved = changed.approved.as_ref().map(|one| one.digest());
        facts.maybe("approved", digest(approved).as_deref());
        facts.text("current", &changed.current.digest().to_string());
        let changes = changed.changes.iter().take(MAX_CHANGES);
        let changes = changes.map(|one| json!({"at": outside(&one.at), "class": one.class.as_str(), "what": outside(&one.what)}));
        facts.json("changes", &Value::from_iter(changes).to_string());
        self.push(state, "pin-change", facts);
    }

    pub(super) fn report_instructions(
        &self,
        state: &mut State,
        setup: &ServerSetup,
        (approved, current): (Option<&str>, Option<&str>),
    ) {
        let server = &*setup.name;
        let digest = |text: Option<&str>| text.map(|text| Digest::of_text(text).to_string());
        let now = Digest::of_text(current.unwrap_or_default());
        if !self.is_new(&[server, "instructions"], now) {
            return;
        }
        tracing::warn!(
            target: "pins", server,
            "the server's instructions changed; review them with `toolward changes {server}`"
        );
        let mut facts = Facts::default();
        facts.text("server", server);
        facts.text("mode", setup.mode.as_str());
        let outcome = match setup.mode {
            Mode::Warn => Outcome::Reported,
            _ => Outcome::ApprovedShown,
        };
        facts.text("outcome", outcome.as_str());
        facts.json("instructions", "true");
        facts.maybe("approved", digest(approved).as_deref());
        facts.maybe("current", digest(current).as_deref());
        self.push(state, "pin-change", facts);
    }

    /// Whether a change was not reported before.
    fn is_new(&self, parts: &[&str], current: Digest) -> bool {
        let about = Digest::of_text(&parts.join("\u{0}"));
        let mut reported = self.reported.locked();
        if reported.len() >= MAX_REPORTED {
            reported.clear();
        }
        reported.insert(Digest::of_all([("about", about), ("current", current)]))
    }

    fn push(&self, state: &mut State, kind: &'static str, facts: Facts) {
        state.reports.push((kind, facts));
        self.has_reports.store(true, Ordering::Release);
    }
}

/// The member of an audit record that names an entry.
fn kind_key(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "tool",
        ListKind::Prompts => "prompt",
        ListKind::Resources => "uri",
        ListKind::ResourceTemplates => "template",
    }
}
