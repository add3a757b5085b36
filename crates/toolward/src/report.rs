//! Reports that several commands and the admin UI share.

pub(crate) mod findings;
pub(crate) mod hint_sets;
pub(crate) mod points;
pub(crate) mod policy_tests;
pub(crate) mod programs;
pub(crate) mod shared_resources;
pub(crate) mod unlisted;
