//! Diagnostics: source text, spans, errors and warnings with their location, and sanitized output.

pub mod diagnostic;
pub mod sanitize;
pub mod suggest;
pub mod text;
