//! The README, the manual and the examples are correct: links resolve, files load, commands print what
//! is shown, and named tests exist.
#![allow(clippy::unwrap_used)]

#[path = "manual/blocks.rs"]
mod blocks;
#[path = "manual/links.rs"]
mod links;
#[path = "manual/pages.rs"]
mod pages;
mod program;
