//! Files to values: the configuration of the gateway and its policy, strictly loaded.
//!
//! Everything that a person writes comes in through this crate: the main file, policy layers in
//! the project's own format and in those of other systems, and the layers of flags and
//! environment. It reads, checks and explains what is wrong; it never decides anything.
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

pub mod config;
pub mod diagnostic;
pub mod json;
pub mod neutral;
pub mod node;
pub mod suggest;
pub mod text;
pub mod toml;
pub mod yaml;

mod assemble;
mod builtin;
mod check;
mod client;
mod decode;
mod env_file;
mod environment;
mod expose;
mod formats;
mod forms;
mod guards;
mod hints;
mod identities;
mod import;
mod inline;
mod keys;
mod load;
mod outside;
mod page;
mod policy_tests;
mod reference;
mod remedy;
mod rules;
mod secret;
mod servers;
mod shape;
mod shown;
mod veil;

pub use config::Config;
pub use diagnostic::{Diagnostic, Level};
pub use environment::{ALLOWED_TOOLS_VARIABLE, READ_ONLY_VARIABLE};
pub use formats::Format;
pub use import::{Imported, import};
pub use inline::{Inline, load_inline};
pub use load::{CONFIG_VARIABLE, Failed, Loaded, Loader, Options, PolicyFile, PolicyFlag};
pub use outside::{Disk, Env, Files, ProcessEnv};
pub use reference::{layer_schema, reference, schema};
pub use shown::{MASK, ShownFile};

/// A size as it is written in the configuration, such as `4 MiB`, in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    forms::size(text).map_err(|misform| misform.message)
}
