//! Generated output: JSON Schema, the reference page, redacted files, and imported policies.

pub(crate) mod import;
pub(crate) mod redacted_view;
pub(crate) mod reference;
