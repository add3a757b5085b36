//! A change of a definition, and its class.

/// The meaning of a change for an agent. The order is from harmless to dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It accepts less, or claims to be less safe.
    Narrowing,
    /// Texts and icons.
    Neutral,
    /// It accepts more, claims to be safer, or gains a text that could steer a model.
    Widening,
}

impl Class {
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Narrowing => "narrowing",
            Class::Neutral => "neutral",
            Class::Widening => "widening",
        }
    }
}

/// A difference between an approved and a current definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// A JSON Pointer into the definition; empty for the whole of it.
    pub at: String,
    pub class: Class,
    pub what: String,
}
