//! What the README, the manual and the examples say is so: links lead somewhere, files load, commands print
//! what is shown, and tests that are named exist.
#![allow(clippy::unwrap_used)]

#[path = "manual/blocks.rs"]
mod blocks;
#[path = "manual/links.rs"]
mod links;
#[path = "manual/pages.rs"]
mod pages;
mod program;
