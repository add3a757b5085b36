//! Diagnostics: source text, spans, errors and warnings with their location, and sanitized output.

pub mod diagnostic;
mod encoding;
pub mod fault;
pub mod sanitize;
pub(crate) mod secret_lines;
pub mod suggest;
pub mod text;
