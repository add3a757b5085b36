//! Capability tags of a tool: from the server's annotations, or set by the operator.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The tags that annotations can produce. All other tags are defined by the operator.
pub const BUILT_IN: [&str; 5] =
    ["read-only", "destructive", "idempotent", "open-world", "closed-world"];

/// A tool's final set of tags, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hints(Box<[Box<str>]>);

impl Hints {
    pub fn new<S: AsRef<str>>(tags: impl IntoIterator<Item = S>) -> Hints {
        let mut tags: Vec<Box<str>> = tags.into_iter().map(|tag| tag.as_ref().into()).collect();
        tags.sort_unstable();
        tags.dedup();
        Hints(tags.into())
    }

    /// No tags, as for prompts and resources.
    pub fn none() -> &'static Hints {
        static NONE: LazyLock<Hints> = LazyLock::new(Hints::default);
        &NONE
    }

    pub fn contains(&self, tag: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(tag)).is_ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tag| &**tag)
    }
}

/// A server's claims about a tool. A field of the wrong type counts as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl Annotations {
    /// Reads the `annotations` member of a tool definition.
    pub fn of(value: Option<&Value>) -> Annotations {
        let Some(Value::Object(members)) = value else {
            return Annotations::default();
        };
        Annotations {
            read_only: flag(members, "readOnlyHint"),
            destructive: flag(members, "destructiveHint"),
            idempotent: flag(members, "idempotentHint"),
            open_world: flag(members, "openWorldHint"),
        }
    }

    /// The claims that both make: the less safe of two for each hint.
    pub fn least_safe(self, other: Annotations) -> Annotations {
        let both = |one: Option<bool>, other: Option<bool>, safe: bool| {
            if one == Some(safe) { other } else { one }
        };
        Annotations {
            read_only: both(self.read_only, other.read_only, true),
            destructive: both(self.destructive, other.destructive, false),
            idempotent: both(self.idempotent, other.idempotent, true),
            open_world: both(self.open_world, other.open_world, false),
        }
    }

    /// The tags, with the protocol's defaults for missing claims: a tool without annotations is
    /// destructive and open-world.
    pub fn hints(self) -> Hints {
        let mut tags = Vec::with_capacity(3);
        if self.read_only == Some(true) {
            tags.push("read-only");
        } else if self.destructive != Some(false) {
            tags.push("destructive");
        }
        if self.idempotent == Some(true) {
            tags.push("idempotent");
        }
        tags.push(if self.open_world == Some(false) { "closed-world" } else { "open-world" });
        Hints::new(tags)
    }
}

fn flag(members: &Map<String, Value>, name: &str) -> Option<bool> {
    members.get(name).and_then(Value::as_bool)
}
