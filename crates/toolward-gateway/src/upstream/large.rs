//! How large an answer may be, and one that is larger.

use std::io;

use toolward_policy::selector::Glob;

/// The largest results of a server's tools, in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caps {
    /// By tool, first match.
    pub by_tool: Vec<(Glob, usize)>,
    /// Otherwise; `None`: as large as any answer.
    pub otherwise: Option<usize>,
}

impl Caps {
    pub(super) fn of(&self, tool: &str) -> Option<usize> {
        let named = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        named.map(|(_, most)| *most).or(self.otherwise)
    }
}

/// An answer with more bytes than may pass: so many, where that is known. Nothing more of it is read.
#[derive(Debug)]
pub(super) struct TooLarge {
    pub(super) size: Option<u64>,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its answer is too large")
    }
}

impl std::error::Error for TooLarge {}

impl TooLarge {
    pub(super) fn error(size: Option<u64>) -> io::Error {
        io::Error::other(TooLarge { size })
    }

    /// Whether that is what went wrong.
    pub(super) fn of(error: &io::Error) -> Option<&TooLarge> {
        error.get_ref()?.downcast_ref()
    }
}
