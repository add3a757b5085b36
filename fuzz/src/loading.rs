//! Loads any bytes as the main file, as a policy, and as an allowlist.

use std::collections::HashMap;
use std::path::PathBuf;

use toolward_config::{Level, Loader, Options, PolicyFile, PolicyFlag};
use toolward_policy::Policy;

/// Loads the bytes in every role a file can have.
///
/// Nothing fails silently: a file that does not load has an error that can be rendered, and a
/// loaded file compiles or has errors with places.
pub fn load(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(name);
    let as_policy = |flag| Options {
        policies: vec![PolicyFile { path: path.clone(), flag, format: None }],
        ..Options::default()
    };
    let main = Options { main: Some(path.clone()), ..Options::default() };
    let policy = as_policy(PolicyFlag::Policy);
    let allowlist = as_policy(PolicyFlag::AllowlistConfig);
    for options in [main, policy, allowlist] {
        let files = HashMap::from([(path.clone(), bytes)]);
        let loader = Loader { files, env: HashMap::<String, String>::new() };
        match loader.load(&options) {
            Err(failed) => {
                assert!(failed.diagnostics.iter().any(|d| d.level == Level::Error));
                // Garbage can have hundreds of errors, and rendering them would dominate the run
                // time.
                for diagnostic in failed.diagnostics.iter().take(5) {
                    assert!(!diagnostic.render(false).is_empty());
                }
            }
            Ok(loaded) => {
                for diagnostic in &loaded.warnings {
                    assert!(!diagnostic.render(false).is_empty());
                }
                let Err(errors) = Policy::compile(loaded.source.clone()) else { continue };
                assert!(!errors.is_empty());
                for error in errors {
                    let message = error.problem.to_string();
                    loaded.diagnostic_at(Level::Error, name, error.place, &message).render(false);
                }
            }
        }
    }
}
