//! The areas that phrases are counted in.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Comments of Rust sources.
    Comments,
    /// String literals of Rust sources: messages, help, log lines.
    Strings,
    /// Comments and string literals of tests.
    Tests,
    /// README, manual, examples, the unreleased part of the changelog.
    Docs,
    /// Templates and scripts of the admin UI.
    Admin,
}

impl Area {
    pub const ALL: &[Area] = &[Area::Comments, Area::Strings, Area::Tests, Area::Docs, Area::Admin];
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Area::Comments => "comments",
            Area::Strings => "strings",
            Area::Tests => "tests",
            Area::Docs => "docs",
            Area::Admin => "admin",
        })
    }
}
