//! Selectors: the entries of a rule list, exactly as the contract defines them.
//!
//! A selector matches a tool's original name, an action (`interact.navigate`), or hints
//! (`hint:read-only+closed-world`). This file is the reference matcher: [`index`](crate::index)
//! gives the same results for many selectors at once, and a property test compares the two.

use crate::fnmatch::{Pattern, is_pattern};
use crate::hints::Hints;
use crate::source::Case;

/// The maximum length of a selector in bytes. Tool names have at most 128 characters in the
/// protocol; the limit bounds the work for a selector with many dots.
pub const LONGEST_SELECTOR: usize = 2048;

/// The maximum number of dots in a selector: each is stored as a way to split it into
/// `tool.action`.
pub const MOST_DOTS: usize = 32;

/// A compiled selector.
#[derive(Debug, Clone)]
pub struct Selector {
    written: Box<str>,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// Tags that a tool must have, all of them.
    Hints(Box<[Box<str>]>),
    Name(NameForm),
}

/// A selector that is not a `hint:`.
#[derive(Debug, Clone)]
pub(crate) struct NameForm {
    /// The selector as a pattern on a tool's name.
    pub(crate) whole: Glob,
    /// `X` of a selector `X.*`, which also covers the tool `X` with any action or none.
    pub(crate) every_action: Option<Glob>,
    /// The ways to split the selector into `tool.action`.
    pub(crate) splits: Box<[Split]>,
}

/// A dotted selector split into a tool and one of its actions.
#[derive(Debug, Clone)]
pub(crate) struct Split {
    pub(crate) tool: Glob,
    pub(crate) action: Glob,
}

/// A pattern that a name also matches by being identical to it (`a[b]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: Box<str>,
    pattern: Pattern,
}

impl Glob {
    /// Compiles `text`, folded to lower case if `case` requires it; names must be folded the same
    /// way.
    pub fn new(text: &str, case: Case) -> Glob {
        let text = fold(text, case);
        Glob { pattern: Pattern::new(&text), text: text.into() }
    }

    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name) || self.equals(name)
    }

    pub fn equals(&self, name: &str) -> bool {
        *self.text == *name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn pattern(&self) -> &Pattern {
        &self.pattern
    }
}

/// ASCII folding, if the list uses it. Agents, hints and argument names are never folded.
pub fn fold(text: &str, case: Case) -> std::borrow::Cow<'_, str> {
    match case {
        Case::Insensitive if text.bytes().any(|b| b.is_ascii_uppercase()) => {
            text.to_ascii_lowercase().into()
        }
        _ => text.into(),
    }
}

impl Selector {
    pub fn new(text: &str, case: Case) -> Selector {
        let form = match text.strip_prefix("hint:") {
            Some(tags) => Form::Hints(tags.split('+').map(Box::from).collect()),
            None => Form::Name(NameForm::new(text, case)),
        };
        Selector { written: text.into(), form }
    }

    /// The selector as written in the file.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Wildcard selectors are evaluated after exact ones: `hint:`, and everything with `*`, `?` or
    /// `[`.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.form, Form::Hints(_)) || is_pattern(&self.written)
    }

    /// The tags of a `hint:` selector.
    pub fn tags(&self) -> Option<&[Box<str>]> {
        match &self.form {
            Form::Hints(tags) => Some(tags),
            Form::Name(_) => None,
        }
    }

    /// Whether this is a `hint:` selector whose tags the tool has.
    pub fn carried_by(&self, hints: &Hints) -> bool {
        self.tags().is_some_and(|tags| tags.iter().all(|tag| hints.contains(tag)))
    }

    /// Whether the selector covers the tool regardless of its action. `name` must be folded like
    /// the selector.
    pub fn names_tool(&self, name: &str) -> bool {
        self.name_form().is_some_and(|form| {
            form.whole.matches(name)
                || form.every_action.as_ref().is_some_and(|tool| tool.matches(name))
        })
    }

    /// Whether an entry of a server list covers the server. In such a list, every entry is a name
    /// or a pattern.
    pub(crate) fn matches_server(&self, server: &str) -> bool {
        match &self.form {
            Form::Hints(_) => *self.written == *server,
            Form::Name(form) => form.whole.matches(server),
        }
    }

    /// The action patterns of this selector, read as `tool.action`, for a tool of that name. A
    /// pattern on the left counts only with `by_pattern`: in a deny list, or if the tool's schema
    /// declares an action key.
    pub fn actions_of<'a>(
        &'a self,
        name: &'a str,
        by_pattern: bool,
    ) -> impl Iterator<Item = &'a Glob> {
        self.splits()
            .iter()
            .filter(move |split| {
                split.tool.equals(name) || (by_pattern && split.tool.matches(name))
            })
            .map(|split| &split.action)
    }

    /// Whether the left part of a split is exactly this name.
    pub fn spells_action_of(&self, name: &str) -> bool {
        self.splits().iter().any(|split| split.tool.equals(name))
    }

    pub(crate) fn name_form(&self) -> Option<&NameForm> {
        match &self.form {
            Form::Hints(_) => None,
            Form::Name(form) => Some(form),
        }
    }

    fn splits(&self) -> &[Split] {
        self.name_form().map_or(&[], |form| &form.splits)
    }
}

impl NameForm {
    fn new(text: &str, case: Case) -> NameForm {
        let splits = text
            .match_indices('.')
            .map(|(dot, _)| (&text[..dot], &text[dot + 1..]))
            .filter(|(_, action)| *action != "*")
            .map(|(tool, action)| Split {
                tool: Glob::new(tool, case),
                action: Glob::new(action, case),
            })
            .collect();
        NameForm {
            whole: Glob::new(text, case),
            every_action: text.strip_suffix(".*").map(|tool| Glob::new(tool, case)),
            splits,
        }
    }
}
