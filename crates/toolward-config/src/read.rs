//! Parsers: JSON, YAML and TOML to one tree, with the span of every value.

pub mod json;
pub mod node;
pub(crate) mod reader;
pub(crate) mod syntax;
pub mod toml;
pub mod yaml;
