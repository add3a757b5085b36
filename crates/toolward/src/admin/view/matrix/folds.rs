//! Collapsed groups. They are part of the URL, as filters are: `fold=SERVER` collapses the tools of a server and
//! `fold=SERVER/prompts` its prompts, `fold=*` all except `open=SERVER`.

use crate::admin::Query;
use crate::admin::query::encoded;

/// No group has this name.
const ALL: &str = "*";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folds {
    all: bool,
    /// The exceptions: collapsed ones, or expanded ones if `all` are collapsed.
    except: Vec<String>,
}

impl Folds {
    pub(super) fn read(query: &Query) -> Folds {
        let all = query.all("fold").any(|name| name == ALL);
        let field = if all { "open" } else { "fold" };
        let names = query.all(field).filter(|name| !name.is_empty());
        Folds { all, except: names.map(String::from).collect() }
    }

    pub(super) fn contains(&self, group: &str) -> bool {
        self.all != self.except.iter().any(|name| name == group)
    }

    /// The same with one group toggled.
    pub(super) fn toggled(&self, group: &str) -> Folds {
        let mut folds = self.clone();
        match folds.except.iter().position(|name| name == group) {
            Some(at) => drop(folds.except.remove(at)),
            None => folds.except.push(group.into()),
        }
        folds
    }

    /// All groups collapsed, or none.
    pub(super) fn everything(all: bool) -> Folds {
        Folds { all, except: Vec::new() }
    }

    /// This state as form fields.
    pub(super) fn fields(&self) -> Vec<(&'static str, &str)> {
        let field = if self.all { "open" } else { "fold" };
        let all = self.all.then_some(("fold", ALL));
        all.into_iter().chain(self.except.iter().map(|name| (field, name.as_str()))).collect()
    }

    /// A query string with this state and these filters.
    pub(super) fn address(&self, filter: &str) -> String {
        let fields = self.fields().into_iter();
        let folds = fields.map(|(field, name)| format!("{field}={}", encoded(name)));
        let filter = Some(filter).filter(|filter| !filter.is_empty()).map(String::from);
        filter.into_iter().chain(folds).collect::<Vec<_>>().join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_toggled_against_one_and_against_all() {
        let none = Folds::default();
        let one = none.toggled("a b");
        assert!(one.contains("a b") && !one.contains("c"));
        assert_eq!(one.address("q=x"), "q=x&fold=a%20b");
        assert_eq!(one.toggled("a b"), none);
        let all = Folds::everything(true);
        assert!(all.contains("c"));
        let but_one = all.toggled("c");
        assert!(!but_one.contains("c") && but_one.contains("a b"));
        assert_eq!(but_one.address(""), "fold=%2A&open=c");
    }
}
