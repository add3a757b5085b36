//! Selectors as an agent may read them: none spells the name of a tool or server that it does not see.
//!
//! A selector spells a name if it is exact, or if its part before a dot has no wildcard: `secret_tool.*` and
//! `secret_tool.nav*` tell as much about `secret_tool` as the name itself. Patterns on the name (`secret_*`)
//! stay as they are: an agent learns from them what it could be given, not what exists.

use std::cell::OnceCell;

use hashbrown::HashMap;

use crate::fnmatch::Pattern;
use crate::hints::Hints;
use crate::selector::{Selector, fold};
use crate::source::Case;

/// A listed tool.
#[derive(Debug)]
pub(crate) struct Callable {
    /// The name that clients use.
    pub(crate) name: Box<str>,
    /// Index of the server.
    pub(crate) server: usize,
    pub(crate) original: Box<str>,
    /// The display name without the server's prefix, if the tool is renamed.
    pub(crate) renamed: Option<Box<str>>,
    /// Set only if an allowlist has a `hint:` entry.
    pub(crate) hints: Option<Hints>,
    /// The allowed actions, if some are not allowed.
    pub(crate) actions: Option<Box<[Box<str>]>>,
}

/// A selector as an agent may read it.
#[derive(Debug, Clone)]
pub(crate) enum Readable {
    /// It spells a listed tool, or an action of one.
    Named(Name),
    /// A pattern or a `hint:` selector, as written.
    Pattern(String),
    /// It spells something that the agent does not see.
    Hidden,
}

/// A selector that spells a listed tool, or an action of one.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    /// The selector with the name that clients use.
    pub(crate) text: String,
    /// A call that it covers can be allowed: another layer may deny the action.
    pub(crate) is_callable: bool,
}

impl Readable {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Readable::Named(name) => Some(&name.text),
            Readable::Pattern(text) => Some(text),
            Readable::Hidden => None,
        }
    }
}

impl Callable {
    /// Whether an action, by name or pattern, can be allowed.
    fn permits(&self, action: &str) -> bool {
        let overlap = |allowed: &str| {
            let (allowed, action) = (allowed.to_ascii_lowercase(), action.to_ascii_lowercase());
            Pattern::new(&allowed).matches(&action) || Pattern::new(&action).matches(&allowed)
        };
        self.actions.as_deref().is_none_or(|all| all.iter().any(|allowed| overlap(allowed)))
    }
}

/// Listed tools by their original names, folded. The map is made for the first selector that spells a
/// name: most policies have none.
pub(crate) struct Spelling<'a> {
    tools: &'a [Callable],
    servers: &'a [(Box<str>, Box<str>)],
    by_name: OnceCell<HashMap<String, Vec<&'a Callable>>>,
}

impl<'a> Spelling<'a> {
    pub(crate) fn new(tools: &'a [Callable], servers: &'a [(Box<str>, Box<str>)]) -> Spelling<'a> {
        Spelling { tools, servers, by_name: OnceCell::new() }
    }

    /// A selector of a list that applies to one server, by its place.
    pub(crate) fn on_server(&self, selector: &Selector, case: Case, at: usize) -> Readable {
        if is_pattern_on_names(selector) {
            return Readable::Pattern(selector.written().into());
        }
        match self.named(selector.written(), Some(at)) {
            Some(name) => Readable::Named(name),
            None => self.covering(selector, case, Some(at)),
        }
    }

    /// A selector of an allowlist, which may also begin with a server: `files.read_*`.
    pub(crate) fn anywhere(&self, selector: &Selector, case: Case) -> Readable {
        if is_pattern_on_names(selector) {
            return Readable::Pattern(selector.written().into());
        }
        if let Some(name) = self.named(selector.written(), None) {
            return Readable::Named(name);
        }
        let written = selector.written();
        let qualified = self.servers.iter().enumerate().find_map(|(at, (server, _))| {
            let (head, rest) = written.split_at_checked(server.len() + 1)?;
            let here = head.strip_suffix('.').is_some_and(|head| head.eq_ignore_ascii_case(server));
            match here && is_open(rest) {
                true => Some(Readable::Pattern(written.into())),
                false if here => {
                    let name = self.named(rest, Some(at))?;
                    Some(Readable::Named(Name { text: format!("{head}{}", name.text), ..name }))
                }
                false => None,
            }
        });
        qualified.unwrap_or_else(|| self.covering(selector, case, None))
    }

    /// A wildcard selector whose literal part has a dot can still be a pattern on listed names with dots.
    fn covering(&self, selector: &Selector, case: Case, at: Option<usize>) -> Readable {
        let covers = |tool: &Callable| {
            let server = self.servers.get(tool.server).map(|(server, _)| &**server);
            let server = server.filter(|_| at.is_none());
            at.is_none_or(|at| tool.server == at)
                && covers_name(selector, case, server, &tool.original, None)
        };
        match selector.is_wildcard() && self.tools.iter().any(covers) {
            true => Readable::Pattern(selector.written().into()),
            false => Readable::Hidden,
        }
    }

    /// A selector with the name that clients use, if it spells a listed tool or an action of one, on this
    /// server or on any.
    fn named(&self, written: &str, server: Option<usize>) -> Option<Name> {
        let folded = written.to_ascii_lowercase();
        // The longest reading first.
        let dots = folded.rmatch_indices('.').map(|(dot, _)| dot);
        [folded.len()].into_iter().chain(dots).find_map(|end| {
            let tools = self.by_name().get(folded.get(..end)?)?;
            let here = |tool: &&&Callable| server.is_none_or(|server| tool.server == server);
            let tool = tools.iter().find(here)?;
            let rest = written.get(end..)?;
            let text = match &tool.renamed {
                Some(shown) => format!("{shown}{rest}"),
                None => written.into(),
            };
            let action = rest.strip_prefix('.');
            let permits = |tool: &&Callable| action.is_none_or(|action| tool.permits(action));
            Some(Name { text, is_callable: tools.iter().filter(here).any(permits) })
        })
    }

    fn by_name(&self) -> &HashMap<String, Vec<&'a Callable>> {
        self.by_name.get_or_init(|| {
            let mut by_name: HashMap<String, Vec<&Callable>> = HashMap::new();
            by_name.reserve(self.tools.len());
            for tool in self.tools {
                by_name.entry(tool.original.to_ascii_lowercase()).or_default().push(tool);
            }
            by_name
        })
    }
}

/// Whether a selector covers a call by the name that was sent. Patterns are interpreted broadly: an
/// entry that could be read as covering the refused call is not listed as allowed.
pub(crate) fn covers_name(
    selector: &Selector,
    case: Case,
    server: Option<&str>,
    tool: &str,
    action: Option<&str>,
) -> bool {
    let name = fold(tool, case).into_owned();
    let qualified = server.map(|server| format!("{}.{name}", fold(server, case)));
    let action = action.map(|action| fold(action, case));
    [Some(name), qualified].iter().flatten().any(|name| {
        let mut actions = selector.actions_of(name, true);
        selector.names_tool(name)
            || action.as_deref().is_some_and(|action| actions.any(|glob| glob.matches(action)))
    })
}

/// Whether a selector spells no name: a `hint:`, or a pattern on names.
fn is_pattern_on_names(selector: &Selector) -> bool {
    selector.tags().is_some() || is_open(selector.written())
}

/// Whether there is a wildcard, and no dot before it.
fn is_open(written: &str) -> bool {
    written.find(['*', '?', '[']).is_some_and(|wildcard| !written[..wildcard].contains('.'))
}
