//! Commands that analyze policies: `diff`, `equal`, `can-ever`, `who-can`.

pub(crate) mod can_ever;
pub(crate) mod diff;
pub(crate) mod equal;
mod unanalyzed;
pub(crate) mod who_can;

use std::path::Path;

use toolward_config::is_configuration;

use crate::cli::{PolicyArgs, ToolsArgs};
use crate::exit::Failure;
use crate::load::Input;

/// Loads one of the files that are compared: a whole configuration with its `policies`, or a policy alone.
fn load(path: &Path, lists: &[String]) -> Result<Input, Failure> {
    let content = std::fs::read_to_string(path).unwrap_or_default();
    let is_whole = is_configuration(path, &content);
    let file = || Some(path.to_owned());
    let policy = PolicyArgs {
        config: file().filter(|_| is_whole),
        policy: file().filter(|_| !is_whole).into_iter().collect(),
        allowlist_config: Vec::new(),
        format: None,
        read_only: false,
        whole_configurations: false,
        search: false,
    };
    Input::load(&policy, &ToolsArgs { lists: lists.to_vec() }, None)
}
