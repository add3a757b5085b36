//! `toolward lock`, `changes` and `accept`: approved definitions of servers.

pub(crate) mod accept;
pub(crate) mod changes;
pub(crate) mod diff;
pub(crate) mod lock;

use std::time::Duration;

use clap::ArgMatches;

use crate::cli::{PolicyArgs, ToolsArgs};
use crate::exit::Failure;
use crate::load::Input;
use crate::pin_review::Pinned;

/// Loads a configuration with its pins. `servers` are those that are looked at; none: all.
fn load(
    policy: &PolicyArgs,
    matches: Option<&ArgMatches>,
    (servers, seconds): (&[String], u64),
) -> Result<Pinned, Failure> {
    let input = Input::load(policy, &ToolsArgs { lists: Vec::new() }, matches)?;
    Pinned::of(input, (servers, Duration::from_secs(seconds)))
}
