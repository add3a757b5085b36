//! Reports that several commands and the admin UI share.

pub(crate) mod unlisted;
