//! Audit records of changes that people make through the admin UI. They are written before the change is made.

use serde_json::{Value, json};

use crate::audit::facts::Facts;
use crate::audit::redact::outside;

/// A change of a policy file that permits a tool to an agent.
pub struct PolicyEdit<'a> {
    /// The admin who saves it.
    pub by: &'a str,
    pub agent: &'a str,
    pub server: &'a str,
    pub tool: &'a str,
    /// The condition of the entry.
    pub when: Option<&'a str>,
    /// The files, with the digests of their old and new content.
    pub files: Vec<(String, String, String)>,
    /// The version of the active policy.
    pub policy: &'a str,
}

const CHANNEL: &str = "admin-ui";

/// The audit record of a changed policy file.
pub fn policy_edit(edit: &PolicyEdit<'_>) -> Facts {
    let mut facts = Facts::default();
    facts.text("by", edit.by);
    facts.text("channel", CHANNEL);
    facts.text("agent", edit.agent);
    facts.text("server", edit.server);
    facts.text("tool", &outside(edit.tool));
    if let Some(when) = edit.when {
        facts.text("when", &outside(when));
    }
    let files = edit.files.iter();
    let files =
        files.map(|(file, before, after)| json!({"file": file, "before": before, "after": after}));
    facts.json("files", &Value::from_iter(files).to_string());
    facts.text("policy", edit.policy);
    facts
}

/// The audit record of an accepted definition: `target` is a server, or `SERVER/NAME`.
pub fn acceptance(by: &str, target: &str, digest: &str) -> Facts {
    let mut facts = Facts::default();
    facts.text("by", by);
    facts.text("channel", CHANNEL);
    facts.text("accepts", &outside(target));
    facts.text("digest", digest);
    facts
}
