//! From files, flags and environment to one configuration and one policy source.

mod approvals;
pub(crate) mod builtin;
mod bundle_source;
mod bundles;
pub(crate) mod environment;
pub(crate) mod guards;
mod hints;
pub(crate) mod identities;
pub(crate) mod inline;
pub(crate) mod issuers;
pub(crate) mod load;
pub(crate) mod loaded;
mod logins;
pub(crate) mod main_file;
pub(crate) mod merge;
mod observe;
mod process;
mod replicas;
mod resources;
pub(crate) mod servers;
mod values;
