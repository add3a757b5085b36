//! Loads the policy that past calls are compared with.
//!
//! A whole configuration is evaluated on its own. A policy file alone replaces all layers of the current configuration, and is
//! evaluated with that configuration's servers: their exposure, hints and action keys.

use toolward_config::{Diagnostic, Env, Files, LoadFailure, Loader, Options};

use crate::load::Input;
use crate::reads::Reads;
use crate::server_settings::ServerSettings;

/// Loads a candidate. `servers`: the settings of the current configuration, for a policy alone.
pub(crate) fn load(
    loader: &Loader<impl Files, impl Env>,
    options: &Options,
    servers: Option<&ServerSettings>,
) -> Result<Input, Vec<Diagnostic>> {
    let mut loaded = loader.load(options).map_err(|LoadFailure { diagnostics, .. }| diagnostics)?;
    if let Some(current) = servers {
        current.join(&mut loaded.source);
    }
    Input::compile(loaded, Vec::new(), Reads::default())
}
