//! Loads the configuration of the gateway and its policy, strictly.
//!
//! All user-written input enters through this crate: the main file, policy layers in native and foreign
//! formats, flags and environment variables. It parses, validates and explains errors; it makes no policy
//! decisions.
//!
//! | module | purpose |
//! |---|---|
//! | [`bundle`] | signed policy bundles |
//! | [`splice`] | lossless edits of one entry in a file that belongs to others |
//! | [`hint_sets`] | reviewed hints for the tools of well-known servers |
//! | `output` | JSON Schema, reference page, redacted files, import |
//! | `resolve` | from files, flags and environment to one configuration and one policy source |
//! | `formats` | native rules and foreign policy formats |
//! | [`config`] | the resolved configuration |
//! | `keys` | the key table, validation against it, value syntaxes |
//! | `read` | parsers: JSON, YAML and TOML to one tree with spans |
//! | `diagnostics` | source text, errors and warnings, sanitizing |
//!
//! ```
//! use std::collections::HashMap;
//! use std::path::PathBuf;
//! use toolward_config::{Loader, Options};
//!
//! let files = HashMap::from([(PathBuf::from("toolward.yaml"), "agents: {dev: {alow: {}}}")]);
//! let loader = Loader { files, env: HashMap::<String, String>::new() };
//! let options = Options { main: Some("toolward.yaml".into()), ..Options::default() };
//! let failed = loader.load(&options).unwrap_err();
//! assert!(failed.diagnostics[0].render(false).contains("did you mean `allow`?"));
//! ```

pub mod bundle;
pub mod config;

mod diagnostics;
mod formats;
pub mod hint_sets;
mod io;
mod keys;
mod output;
mod read;
mod resolve;
pub mod splice;

pub use config::Config;
pub use diagnostics::diagnostic::{Diagnostic, Level};
pub use diagnostics::sanitize::sanitize;
pub use diagnostics::{suggest, text};
pub use formats::Format;
pub use io::{Disk, Env, Files, ProcessEnv};
pub use output::import::{ImportedPolicy, escape_pattern, import, scalar as yaml_scalar};
pub use output::redacted_view::ShownFile;
pub use output::reference::{layer_schema, reference, schema};
pub use read::{json, node};
pub use resolve::environment::{ALLOWED_TOOLS_VARIABLE, READ_ONLY_VARIABLE};
pub use resolve::inline::{Inline, load_inline};
pub use resolve::load::{
    CONFIG_VARIABLE, Loader, Options, PolicyFile, PolicyFlag, USER_CONFIGURATION,
};
pub use resolve::loaded::{LoadFailure, LoadedConfig};
pub use resolve::merge::is_configuration;

/// A size as it is written in the configuration, such as `4 MiB`, in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    keys::value_syntax::size(text).map_err(|error| error.message)
}

/// A duration as it is written in the configuration, such as `10min`.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    keys::value_syntax::duration(text).map_err(|error| error.message)
}
