//! Layers of a policy bundle, from the state directory.

use std::path::Path;
use std::sync::Arc;

use crate::bundle::Bundle;
use crate::config::BundleSource;
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Text;
use crate::formats::is_script;
use crate::io::{Env, Files, reason};
use crate::read::syntax::Syntax;
use crate::resolve::load::Loader;
use crate::resolve::merge::{Assembly, LayerOptions};

impl<F: Files, E: Env> Loader<F, E> {
    /// Adds the layers of the bundle that was activated last.
    pub(crate) fn bundle(
        &self,
        source: &BundleSource,
        given: LayerOptions,
        assembly: &mut Assembly,
    ) {
        if let Err(why) = self.bundle_layers(source, given, assembly) {
            assembly.report(why.at_mark(source.mark.clone()));
        }
    }

    fn bundle_layers(
        &self,
        source: &BundleSource,
        given: LayerOptions,
        assembly: &mut Assembly,
    ) -> Result<(), Diagnostic> {
        let Some(state) = assembly.config.state.clone() else {
            return Err(Diagnostic::error("a bundle needs a state directory")
                .help("set the state directory: `state: DIR`"));
        };
        let file = source.file(&state);
        assembly.watch(&file);
        let bytes = match self.files.read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Diagnostic::error("the bundle was never fetched")
                    .help("`toolward serve` fetches it when it starts; check its log"));
            }
            Err(error) => {
                let name = file.display().to_string();
                let why = reason(&error);
                return Err(Diagnostic::error(format!("{} cannot be read: {why}", quoted(&name))));
            }
        };
        let bundle = Bundle::open(&bytes, &source.key)
            .map_err(|why| Diagnostic::error(format!("the bundle is rejected: {why}")))?;
        let highest = self.files.read(&source.revision_file(&state)).ok();
        let highest = highest.and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse().ok());
        if highest.is_some_and(|highest: u64| bundle.revision < highest) {
            let (found, highest) = (bundle.revision, highest.unwrap_or(0));
            return Err(Diagnostic::error(format!(
                "the bundle has revision {found}, and {highest} was active already"
            )));
        }
        for (name, bytes) in bundle.files {
            if is_script(Path::new(&name), &bytes) {
                let message = format!("{} of the bundle is a program", quoted(&name));
                return Err(Diagnostic::error(message).help("a bundle has policies only"));
            }
            let text: Arc<Text> = Text::from_bytes(format!("{}#{name}", source.shown()), bytes)?;
            let syntax = Syntax::of_file(Path::new(&name), text.content());
            assembly.layer(&text, syntax, given);
        }
        Ok(())
    }
}
