//! Whether one selector covers another, without a search.

use crate::decision::Side;
use crate::fnmatch::Pattern;
use crate::layer::List;
use crate::selector::Selector;

/// An earlier entry of the same step that covers this one.
pub(super) fn covered_earlier(list: &List, entry: usize, side: Side) -> Option<usize> {
    let rule = &list.rules[entry];
    let mut found = Vec::new();
    candidates_covering(list, &rule.selector, &mut found);
    found.sort_unstable();
    found.into_iter().map(|at| at as usize).find(|&at| {
        let other = &list.rules[at];
        let earlier = match side {
            // An allowlist is evaluated in file order; in other lists, exact entries come first.
            Side::Allowlist => at < entry,
            _ => (other.selector.is_wildcard(), at) < (rule.selector.is_wildcard(), entry),
        };
        earlier
            && other.when.is_none()
            && other.ask.is_none()
            && covers(&other.selector, &rule.selector)
    })
}

/// Entries of a list that may cover a selector, found by the text that every match must contain.
pub(super) fn candidates_covering(list: &List, selector: &Selector, found: &mut Vec<u32>) {
    match selector.name_form().map(|form| form.whole.pattern()) {
        None => {
            found.extend_from_slice(list.index.hints());
            list.index.by_name("", found);
        }
        Some(Pattern::Exact(text) | Pattern::Prefix(text) | Pattern::Suffix(text)) => {
            list.index.by_name(text, found);
            list.index.by_name(selector.written(), found);
        }
        Some(Pattern::Any | Pattern::Tokens(_)) => list.index.by_name(selector.written(), found),
    }
    found.sort_unstable();
    found.dedup();
}

/// Whether `wide` matches everything that `narrow` matches. `false` may also mean "not sure".
pub(super) fn covers(wide: &Selector, narrow: &Selector) -> bool {
    if wide.written() == narrow.written() || wide.written() == "*" {
        return true;
    }
    if let Some(narrow) = narrow.tags() {
        return wide.tags().is_some_and(|wide| wide.iter().all(|tag| narrow.contains(tag)));
    }
    let (Some(wide_form), Some(form)) = (wide.name_form(), narrow.name_form()) else {
        return false;
    };
    let names = |pattern: &Pattern| match (wide_form.whole.pattern(), pattern) {
        (_, Pattern::Exact(text)) => wide.names_tool(text),
        (Pattern::Prefix(wide), Pattern::Prefix(text)) => text.starts_with(&**wide),
        (Pattern::Suffix(wide), Pattern::Suffix(text)) => text.ends_with(&**wide),
        _ => false,
    };
    names(form.whole.pattern())
        && form.every_action.iter().all(|tool| names(tool.pattern()))
        && form.splits.iter().all(|split| names(split.tool.pattern()))
}
