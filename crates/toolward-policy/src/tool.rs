//! A tool as its server describes it, reduced to the facts that policies use.

use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::hints::Annotations;

/// One tool of a server.
#[derive(Debug, Clone)]
pub struct Tool {
    name: Box<str>,
    annotations: Annotations,
    properties: Box<[Property]>,
    definition: Arc<str>,
    declares_action: bool,
}

/// A top-level property of a tool's input schema.
#[derive(Debug, Clone)]
pub(crate) struct Property {
    pub(crate) name: Box<str>,
    /// The values of its `enum`; `None` for a value that is not a string.
    pub(crate) values: Option<Box<[Option<Box<str>>]>>,
}

impl Tool {
    /// A tool of which only the name is known.
    pub fn named(name: &str) -> Tool {
        Tool {
            name: name.into(),
            annotations: Annotations::default(),
            properties: Box::default(),
            definition: "{}".into(),
            declares_action: false,
        }
    }

    /// Reads a definition under the given name; the definition's own `name` is ignored.
    pub fn new(name: &str, definition: &Map<String, Value>) -> Tool {
        let properties = definition
            .get("inputSchema")
            .and_then(|schema| schema.get("properties"))
            .and_then(Value::as_object);
        Tool {
            name: name.into(),
            annotations: Annotations::of(definition.get("annotations")),
            properties: properties.into_iter().flatten().map(Property::of).collect(),
            // A map always serializes; the empty object is unreachable.
            definition: serde_json::to_string(definition).unwrap_or_else(|_| "{}".into()).into(),
            declares_action: false,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn annotations(&self) -> Annotations {
        self.annotations
    }

    /// The same tool with other annotations.
    pub fn with_annotations(mut self, annotations: Annotations) -> Tool {
        self.annotations = annotations;
        self
    }

    /// The same tool, treated as if its schema declared an action key.
    pub fn with_declared_action(mut self) -> Tool {
        self.declares_action = true;
        self
    }

    /// Whether the schema has one of these action keys.
    pub(crate) fn declares_action(&self, action_keys: &[Box<str>]) -> bool {
        self.declares_action || action_keys.iter().any(|key| self.property(key).is_some())
    }

    /// The definition as JSON text, shared.
    pub fn shared_definition(&self) -> Arc<str> {
        self.definition.clone()
    }

    /// The definition as JSON text.
    pub fn definition(&self) -> &str {
        &self.definition
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| *property.name == *name)
    }
}

impl Property {
    fn of((name, schema): (&String, &Value)) -> Property {
        let values = schema
            .get("enum")
            .and_then(Value::as_array)
            .filter(|values| !values.is_empty())
            .map(|values| values.iter().map(|value| value.as_str().map(Box::from)).collect());
        Property { name: name.as_str().into(), values }
    }
}

/// A server's tool list, with a hash of its content.
#[derive(Debug, Clone)]
pub struct ToolSet {
    tools: Arc<[Tool]>,
    ids: Arc<HashMap<Box<str>, u32>>,
    hash: [u8; 32],
}

/// An entry of a server's list that is not a usable tool, by its index in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    pub index: usize,
    pub why: DropReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropReason {
    NotAnObject,
    /// No `name`, an empty one, or one that is not a string.
    NoName,
    /// An earlier entry has this name.
    Repeats(String),
}

impl ToolSet {
    pub fn new(tools: Vec<Tool>) -> ToolSet {
        let mut hasher = Sha256::new();
        let mut ids = HashMap::with_capacity(tools.len());
        for (id, tool) in tools.iter().enumerate() {
            for part in [&*tool.name, &*tool.definition] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
            ids.entry(tool.name.clone()).or_insert(id as u32);
        }
        ToolSet { tools: tools.into(), ids: Arc::new(ids), hash: hasher.finalize().into() }
    }

    /// Reads the `tools` array of a server's response entry by entry: unusable entries are dropped
    /// and reported, all others are kept.
    pub fn read(entries: &[Value]) -> (ToolSet, Vec<Dropped>) {
        let mut tools: Vec<Tool> = Vec::with_capacity(entries.len());
        let mut seen = hashbrown::HashSet::new();
        let mut dropped = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let why = match entry.as_object() {
                None => DropReason::NotAnObject,
                Some(definition) => match definition.get("name").and_then(Value::as_str) {
                    None | Some("") => DropReason::NoName,
                    Some(name) if !seen.insert(name) => DropReason::Repeats(name.into()),
                    Some(name) => {
                        tools.push(Tool::new(name, definition));
                        continue;
                    }
                },
            };
            dropped.push(Dropped { index, why });
        }
        (ToolSet::new(tools), dropped)
    }

    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The id of a tool: its index in [`tools`](Self::tools).
    #[inline]
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The hash of names and definitions, in order.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}
