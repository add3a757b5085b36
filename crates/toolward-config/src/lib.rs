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

mod diagnostics;
mod formats;
mod io;
mod keys;
mod output;
mod read;
mod resolve;

pub use config::Config;
pub use diagnostics::diagnostic::{Diagnostic, Level};
pub use diagnostics::sanitize::sanitize;
pub use diagnostics::{suggest, text};
pub use formats::Format;
pub use io::{Disk, Env, Files, ProcessEnv};
pub use output::import::{ImportedPolicy, import};
pub use output::redacted_view::ShownFile;
pub use output::reference::{layer_schema, reference, schema};
pub use read::{json, node};
pub use resolve::environment::{ALLOWED_TOOLS_VARIABLE, READ_ONLY_VARIABLE};
pub use resolve::inline::{Inline, load_inline};
pub use resolve::load::{CONFIG_VARIABLE, Loader, Options, PolicyFile, PolicyFlag};
pub use resolve::loaded::{LoadFailure, LoadedConfig};

/// A size as it is written in the configuration, such as `4 MiB`, in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    keys::value_syntax::size(text).map_err(|error| error.message)
}
