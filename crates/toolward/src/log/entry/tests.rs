use std::sync::{Arc, Mutex};

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::*;

struct Captured(Arc<Mutex<Vec<Entry>>>);

impl<S: Subscriber> Layer<S> for Captured {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.0.lock().unwrap().push(Entry::of(event));
    }
}

/// The only event that `emit` emits.
fn captured(emit: impl FnOnce()) -> Entry {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Captured(entries.clone()));
    tracing::subscriber::with_default(subscriber, emit);
    let mut entries = entries.lock().unwrap();
    assert_eq!(entries.len(), 1);
    entries.remove(0)
}

/// The text without styles and without its timestamp, which is checked.
fn text(entry: &Entry) -> String {
    let text = anstream::adapter::strip_str(&entry.render(LogFormat::Text)).to_string();
    let (time, rest) = text.split_once(' ').unwrap();
    assert!(time.ends_with('Z') && time.len() == "2026-11-16T13:36:32.123Z".len(), "{time}");
    time.parse::<Timestamp>().unwrap();
    rest.into()
}

fn json(entry: &Entry) -> Value {
    let line = entry.render(LogFormat::Json);
    assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    let mut value: Value = serde_json::from_str(&line).unwrap();
    let time = value.as_object_mut().unwrap().shift_remove("timestamp").unwrap();
    time.as_str().unwrap().parse::<Timestamp>().unwrap();
    value
}

#[test]
fn text_and_json_have_level_target_message_and_fields() {
    let entry = captured(|| {
        tracing::error!(target: "audit", decision = "66064ca2", tries = 3_u64, why = "disk full", "not written");
    });
    assert_eq!(
        text(&entry),
        "ERROR audit: not written decision=66064ca2 tries=3 why=\"disk full\"\n"
    );
    assert_eq!(
        json(&entry).to_string(),
        r#"{"level":"ERROR","target":"audit","message":"not written","decision":"66064ca2","tries":3,"why":"disk full"}"#
    );
}

#[test]
fn the_server_comes_before_the_message_and_cannot_be_imitated_by_its_text() {
    let said = "policy loaded\n2026-11-16T13:36:32.123Z INFO policy: loaded \u{1b}[31m\u{202e}";
    let entry = captured(|| tracing::info!(target: "stderr", server = "files", "{said}"));
    let text = text(&entry);
    assert!(text.starts_with("INFO stderr: files: policy loaded␊2026-"), "{text:?}");
    assert_eq!(text.lines().count(), 1, "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    let json = json(&entry);
    assert_eq!(json["server"], "files");
    assert!(!json["message"].as_str().unwrap().contains(['\n', '\u{1b}', '\u{202e}']), "{json}");
}

#[test]
fn a_hook_is_named_as_one() {
    let entry = captured(|| tracing::warn!(target: "guard", hook = "h", "it failed"));
    assert_eq!(text(&entry), "WARN guard: hook h: it failed\n");
    assert_eq!(json(&entry)["hook"], "h");
}

#[test]
fn a_diagnostic_keeps_its_lines_indented_in_text_and_is_one_string_in_json() {
    let diagnostic = "error: unknown key\n --> a.yaml:1:1\n\u{1b}[31m";
    let entry = captured(|| tracing::warn!(target: "reload", diagnostic, "rejected"));
    let shown = "WARN reload: rejected\n    error: unknown key\n     --> a.yaml:1:1\n    ␛[31m\n";
    assert_eq!(text(&entry), shown);
    assert_eq!(json(&entry)["diagnostic"], "error: unknown key\n --> a.yaml:1:1\n␛[31m");
}

#[test]
fn values_that_could_be_taken_for_more_fields_are_quoted() {
    for (value, shown) in
        [("a=b", "\"a=b\""), ("", "\"\""), ("a\"b", "\"a\\\"b\""), ("plain/x.y", "plain/x.y")]
    {
        let entry = captured(|| tracing::info!(target: "authn", source = value, "m"));
        assert_eq!(text(&entry), format!("INFO authn: m source={shown}\n"));
    }
}
