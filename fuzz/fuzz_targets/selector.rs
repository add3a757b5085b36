//! Fuzzes selectors: any pattern against any name gives the result of a naive matcher, in bounded
//! time.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use toolward_fuzz::reference;
use toolward_policy::fnmatch::{fnmatch, is_pattern};
use toolward_policy::selector::{Glob, LONGEST_SELECTOR, Selector, fold};
use toolward_policy::source::Case;

// Input: one byte of options, the pattern, a line feed, and the name.
fuzz_target!(|data: &[u8]| {
    let Some((&options, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
    if pattern.len() > LONGEST_SELECTOR {
        return;
    }
    let case = if options & 1 == 0 { Case::Sensitive } else { Case::Insensitive };
    // Long texts are thousands of times slower than short ones, so they are tested rarely.
    if options != 0xff {
        agrees(pattern, name, case);
    } else {
        ends_soon(pattern, name, case);
    }
});

fn agrees(pattern: &str, name: &str, case: Case) {
    assert_eq!(fnmatch(pattern, name), reference::fnmatch(pattern, name), "{pattern:?} {name:?}");

    let selector = Selector::new(pattern, case);
    assert_eq!(selector.written(), pattern);
    assert_eq!(selector.is_wildcard(), reference::is_wildcard(pattern));
    assert_eq!(selector.tags().is_some(), reference::is_hint(pattern));
    assert_eq!(is_pattern(pattern), pattern.contains(['*', '?', '[']));

    let (folded, name) = match case {
        Case::Sensitive => (pattern.to_string(), name.to_string()),
        Case::Insensitive => (pattern.to_ascii_lowercase(), name.to_ascii_lowercase()),
    };
    assert_eq!(fold(pattern, case), folded);
    let glob = Glob::new(pattern, case);
    assert_eq!(glob.matches(&name), reference::glob(&folded, &name), "{pattern:?} {name:?}");
    assert!(glob.matches(&folded), "{pattern:?} does not match itself");
    // `hint:` is recognized before case folding.
    if !reference::is_hint(pattern) && reference::is_hint(&folded) {
        return;
    }
    let names = reference::names_tool(&folded, &name);
    assert_eq!(selector.names_tool(&name), names, "{pattern:?} {name:?}");
    for by_pattern in [false, true] {
        let actions: Vec<&str> = selector.actions_of(&name, by_pattern).map(Glob::text).collect();
        let wanted = reference::named_actions(&folded, &name, by_pattern);
        let spelled = wanted.iter().any(|(to_the_letter, _)| *to_the_letter);
        let wanted: Vec<&str> = wanted.into_iter().map(|(_, action)| action).collect();
        assert_eq!(actions, wanted, "{pattern:?} {name:?}");
        assert_eq!(selector.spells_action_of(&name), spelled, "{pattern:?} {name:?}");
    }
}

/// Repeats the pattern up to the maximum length of a selector, and the name up to four times that.
fn ends_soon(pattern: &str, name: &str, case: Case) {
    let pattern = repeated(pattern, LONGEST_SELECTOR);
    let name = repeated(name, 4 * LONGEST_SELECTOR);
    let start = Instant::now();
    fnmatch(&pattern, &name);
    Selector::new(&pattern, case).names_tool(&name);
    // The product of the lengths is about 16 million steps. A backtracking matcher would take
    // years.
    assert!(start.elapsed() < Duration::from_secs(3), "{pattern:?} took {:?}", start.elapsed());
}

fn repeated(text: &str, length: usize) -> String {
    text.repeat(length / text.len().max(1))
}
