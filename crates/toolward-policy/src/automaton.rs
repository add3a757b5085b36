//! Patterns as automata: which combinations of patterns one name can match.
//!
//! Several patterns are read side by side, one character at a time. A state is the set of positions that
//! the patterns have reached; characters that no position distinguishes are tried once. The search visits
//! every reachable state, shortest names first, and gives up when it exceeds its budget.
//!
//! A pattern that begins with `*` can start at every character. Its first two positions are part of every state, so they
//! are not stored: a state is as small as what the text read so far has in common with patterns.

mod seek;

use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};

use crate::fnmatch::{Pattern, Token};
use crate::selector::Glob;
use crate::source::Case;

pub(crate) use self::seek::Wanted;

/// The memory that one search may use, in bytes. A search that needs more is not decided.
pub(crate) const BUDGET: usize = 256 << 20;

/// Patterns that are matched at once.
#[derive(Default)]
pub(crate) struct Automaton {
    tokens: Vec<Token>,
    patterns: Vec<Span>,
    /// The pattern that a position belongs to.
    owners: Vec<u32>,
    by_text: HashMap<(Box<str>, bool, bool, Space), u32>,
    /// By what may be before and after the text.
    by_part: HashMap<(bool, Box<str>, bool), u32>,
    floating: Floating,
    /// The space of the patterns that are added next. Equal patterns of other spaces are kept apart.
    pub(crate) space: Space,
}

/// A key of `by_text`, borrowed.
#[derive(Hash)]
struct TextKey<'a>(&'a str, bool, bool, Space);

impl hashbrown::Equivalent<(Box<str>, bool, bool, Space)> for TextKey<'_> {
    fn equivalent(&self, key: &(Box<str>, bool, bool, Space)) -> bool {
        *self.0 == *key.0 && (self.1, self.2, self.3) == (key.1, key.2, key.3)
    }
}

/// The kind of text that a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Space {
    #[default]
    Names,
    /// A name, or `SERVER.NAME`.
    Qualified,
    /// `SERVER/NAME`, of what admins may approve.
    Approvals,
}

/// Patterns that begin with `*` and contain more: the positions of their second tokens.
#[derive(Default)]
struct Floating {
    /// By a character, and whether it is compared in lower case.
    by_char: HashMap<(char, bool), Vec<u32>>,
    /// Those that begin with a class or `?`.
    others: Vec<u32>,
}

struct Span {
    start: u32,
    /// The position after the last token: the pattern matches.
    end: u32,
    /// Compare with characters in lower case.
    folds: bool,
    space: Space,
    /// One of [`Floating`].
    floats: bool,
}

/// Positions that the patterns have reached, sorted; without those that are part of every state.
pub(crate) type State = Box<[u32]>;

/// The search needed more memory than it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Automaton {
    /// Adds a pattern and returns its number; equal patterns have the same number. `text` is folded like
    /// the names it is compared with.
    pub(crate) fn pattern(&mut self, text: &str, case: Case) -> u32 {
        self.add(text, case, false)
    }

    /// Adds a text that is matched to the letter.
    pub(crate) fn literal(&mut self, text: &str, case: Case) -> u32 {
        self.add(text, case, true)
    }

    /// Adds a glob: its pattern, and its text if a name also matches it by being equal to it.
    pub(crate) fn glob(&mut self, glob: &Glob, case: Case) -> [u32; 2] {
        [self.pattern(glob.text(), case), self.literal(glob.text(), case)]
    }

    /// Adds the texts that contain another one, at their start or end if nothing may be `before` or `after`.
    pub(crate) fn containing(&mut self, before: bool, text: &str, after: bool) -> u32 {
        let key = (before, Box::from(text), after);
        if let Some(known) = self.by_part.get(&key) {
            return *known;
        }
        let mut tokens: Vec<Token> = Vec::new();
        tokens.extend(before.then_some(Token::Run));
        tokens.extend(text.chars().map(Token::Char));
        if after && tokens.last() != Some(&Token::Run) {
            tokens.push(Token::Run);
        }
        let number = self.push(tokens, false);
        self.by_part.insert(key, number);
        number
    }

    /// The numbers of a glob that was added.
    pub(crate) fn find(&self, glob: &Glob, case: Case, space: Space) -> impl Iterator<Item = u32> {
        let folds = case == Case::Insensitive;
        let plain = !crate::fnmatch::is_pattern(glob.text());
        let number = move |literal: bool| {
            self.by_text.get(&TextKey(glob.text(), folds, literal || plain, space)).copied()
        };
        [number(false), number(true).filter(|_| !plain)].into_iter().flatten()
    }

    fn add(&mut self, text: &str, case: Case, literal: bool) -> u32 {
        let literal = literal || !crate::fnmatch::is_pattern(text);
        let folds = case == Case::Insensitive;
        let text = crate::selector::fold(text, case);
        let key = (text.as_ref().into(), folds, literal, self.space);
        if let Some(known) = self.by_text.get(&key) {
            return *known;
        }
        let number = self.push(
            match literal {
                true => text.chars().map(Token::Char).collect(),
                false => Pattern::new(&text).into_tokens(),
            },
            folds,
        );
        self.by_text.insert(key, number);
        number
    }

    fn push(&mut self, tokens: Vec<Token>, folds: bool) -> u32 {
        let number = self.patterns.len() as u32;
        let start = self.tokens.len() as u32;
        self.tokens.extend(tokens);
        let end = self.tokens.len() as u32;
        // The position after the last token needs a place of its own; its token is never read.
        self.tokens.push(Token::One);
        self.owners.resize(self.tokens.len(), number);
        let second = start + 1;
        let is_run = |at: u32| self.tokens[at as usize] == Token::Run;
        let floats = second < end && is_run(start) && !is_run(second);
        if floats {
            match &self.tokens[second as usize] {
                Token::Char(c) => {
                    self.floating.by_char.entry((*c, folds)).or_default().push(second);
                }
                _ => self.floating.others.push(second),
            }
        }
        self.patterns.push(Span { start, end, folds, space: self.space, floats });
        number
    }

    /// The number of patterns.
    pub(crate) fn len(&self) -> usize {
        self.patterns.len()
    }

    pub(crate) fn space_of(&self, number: u32) -> Space {
        self.patterns[number as usize].space
    }

    /// The state before the first character.
    pub(crate) fn start(&self) -> State {
        self.start_of(|_| true)
    }

    /// The same, of some patterns only.
    pub(crate) fn start_of(&self, which: impl Fn(u32) -> bool) -> State {
        let mut next = Vec::new();
        for (number, pattern) in (0..).zip(&self.patterns) {
            if which(number) && !pattern.floats {
                self.reach(pattern.start, pattern.end, &mut next);
            }
        }
        self.settle(next)
    }

    /// The union of two states.
    pub(crate) fn join(&self, one: &State, other: &State) -> State {
        self.settle(one.iter().chain(other).copied().collect())
    }

    /// The state after a character.
    pub(crate) fn step(&self, state: &[u32], c: char) -> State {
        let folded = c.to_ascii_lowercase();
        let mut next = Vec::with_capacity(state.len());
        let Floating { by_char, others } = &self.floating;
        let begun = [(c, false), (folded, true)].into_iter().filter_map(|key| by_char.get(&key));
        for &at in state.iter().chain(others).chain(begun.flatten()) {
            let owner = &self.patterns[self.owners[at as usize] as usize];
            if at == owner.end {
                continue;
            }
            match &self.tokens[at as usize] {
                Token::Run => self.reach(at, owner.end, &mut next),
                token if token.accepts(if owner.folds { folded } else { c }) => {
                    self.reach(at + 1, owner.end, &mut next);
                }
                _ => {}
            }
        }
        self.settle(next)
    }

    /// The state after a text that only the patterns of one space read.
    pub(crate) fn read(&self, space: Space, text: &str) -> State {
        let start = self.start_of(|number| self.space_of(number) == space);
        let state = text.chars().fold(start, |state, c| self.step(&state, c));
        let is_own = |at: &u32| self.space_of(self.owner(*at)) == space;
        state.iter().copied().filter(is_own).collect()
    }

    /// The pattern that a position belongs to.
    pub(crate) fn owner(&self, at: u32) -> u32 {
        self.owners[at as usize]
    }

    /// The patterns that match the text read so far, in order.
    pub(crate) fn matched<'a>(&'a self, state: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let owner = |at: &u32| self.owners[*at as usize];
        state.iter().map(move |at| (at, owner(at))).filter_map(move |(at, number)| {
            (*at == self.patterns[number as usize].end).then_some(number)
        })
    }

    /// The patterns that match whatever follows: they end in `*`, which has been reached.
    pub(crate) fn settled<'a>(&'a self, state: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        state.iter().filter_map(move |at| {
            let number = self.owners[*at as usize];
            let is_last = *at + 1 == self.patterns[number as usize].end;
            (is_last && self.tokens[*at as usize] == Token::Run).then_some(number)
        })
    }

    /// Whether a pattern of the group matches, or may still match if more characters follow.
    pub(crate) fn is_alive(&self, state: &[u32], group: &Group) -> bool {
        let floats = |number: &u32| self.patterns[*number as usize].floats;
        state.iter().any(|at| group.contains(&self.owners[*at as usize]))
            || group.iter().any(floats)
    }

    fn reach(&self, at: u32, end: u32, next: &mut Vec<u32>) {
        next.push(at);
        if at < end && self.tokens[at as usize] == Token::Run {
            self.reach(at + 1, end, next);
        }
    }

    /// Sorts positions, and drops those before the latest `*` that a pattern has reached: every name that
    /// they accept is accepted from there too.
    fn settle(&self, mut positions: Vec<u32>) -> State {
        // Most of them are in order already.
        positions.sort();
        positions.dedup();
        let mut kept: Vec<u32> = Vec::with_capacity(positions.len());
        for at in positions {
            let number = self.owners[at as usize];
            let pattern = &self.patterns[number as usize];
            if at < pattern.end && self.tokens[at as usize] == Token::Run {
                while kept.last().is_some_and(|last| *last >= pattern.start) {
                    kept.pop();
                }
            }
            kept.push(at);
        }
        kept.into()
    }

    /// One character of each class that the state distinguishes.
    fn characters(&self, state: &[u32]) -> Vec<char> {
        let mut cuts: Vec<u32> = vec![0];
        let mut folds = false;
        let Floating { by_char, others } = &self.floating;
        let begun = by_char.values().filter_map(|positions| positions.first());
        for &at in state.iter().chain(others).chain(begun) {
            let owner = &self.patterns[self.owners[at as usize] as usize];
            if at == owner.end {
                continue;
            }
            let mut cut = |low: char, high: char| {
                cuts.extend([low as u32, high as u32 + 1]);
                if owner.folds {
                    folds = true;
                    let upper = |c: u32| (0x61..=0x7b).contains(&c).then(|| c - 32);
                    cuts.extend([low as u32, high as u32 + 1].into_iter().filter_map(upper));
                }
            };
            match &self.tokens[at as usize] {
                Token::Char(c) => cut(*c, *c),
                Token::Class(class) => {
                    class.ranges().iter().for_each(|(low, high)| cut(*low, *high))
                }
                Token::One | Token::Run => {}
            }
        }
        if folds {
            cuts.extend([0x41, 0x5b, 0x61, 0x7b]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let ends = cuts.iter().skip(1).copied().chain([0x11_0000]);
        let mut found: Vec<char> =
            cuts.iter().zip(ends).filter_map(|(low, end)| readable(*low, end)).collect();
        // Of several shortest texts, the first is taken: plain letters come first.
        found.sort_by_key(|c| COMMON.find(*c).unwrap_or(usize::MAX));
        found
    }

    /// Visits every state that can be reached from `start` through states that are kept, with a shortest
    /// text for each. Returns the memory that was used, too.
    pub(crate) fn explore<B>(
        &self,
        start: State,
        budget: usize,
        mut keep: impl FnMut(&State) -> bool,
        mut visit: impl FnMut(&State, &dyn Fn() -> String) -> ControlFlow<B>,
    ) -> Result<(Option<B>, usize), TooLarge> {
        // Each state with the number of the state before it, and the character between them.
        // The start is not known yet: a text that leads back to it is not empty, and is visited too.
        let mut known: HashSet<State> = HashSet::new();
        let mut order: Vec<(State, u32, char)> = vec![(start, 0, '\0')];
        let mut used = 0;
        let mut at = 0;
        while at < order.len() {
            let text = || written(&order, at);
            let state = order[at].0.clone();
            if let ControlFlow::Break(found) = visit(&state, &text) {
                return Ok((Some(found), used));
            }
            for c in self.characters(&state) {
                let next = self.step(&state, c);
                if known.contains(&next) || !keep(&next) {
                    continue;
                }
                used += 2 * size_of_val(&*next) + 96;
                if used > budget {
                    return Err(TooLarge);
                }
                known.insert(next.clone());
                order.push((next, at as u32, c));
            }
            at += 1;
        }
        Ok((None, used))
    }
}

/// A set of patterns.
pub(crate) type Group = HashSet<u32>;

impl Automaton {
    /// A shortest text for each combination of patterns that texts can match.
    pub(crate) fn combinations(&self, budget: usize) -> Result<Vec<String>, TooLarge> {
        let mut seen: HashSet<Box<[u32]>> = HashSet::new();
        let mut found = Vec::new();
        self.explore(
            self.start(),
            budget,
            |_| true,
            |state, text| {
                if seen.insert(self.matched(state).collect()) {
                    found.push(text());
                }
                ControlFlow::<()>::Continue(())
            },
        )?;
        Ok(found)
    }
}

/// The text that leads to a state: each one has the number of the state before it, and the character between them.
fn written(order: &[(State, u32, char)], at: usize) -> String {
    let mut text = Vec::new();
    let mut from = at;
    while from != 0 {
        text.push(order[from].2);
        from = order[from].1 as usize;
    }
    text.iter().rev().collect()
}

/// A name that two patterns both match. If that cannot be determined, any name, so that the caller reports a
/// conflict.
pub fn common_name(one: &str, other: &str) -> Option<String> {
    let mut both = Automaton::default();
    let numbers = [one, other].map(|text| both.pattern(text, Case::Sensitive));
    if numbers[0] == numbers[1] {
        return Some(one.into());
    }
    let found = both.explore(
        both.start(),
        BUDGET / 16,
        |state| numbers.iter().all(|number| both.is_alive(state, &[*number].into())),
        |state, text| match both.matched(state).count() == numbers.len() {
            true => ControlFlow::Break(text()),
            false => ControlFlow::Continue(()),
        },
    );
    found.map_or_else(|TooLarge| Some(other.into()), |(found, _)| found)
}

/// A shortest text that a pattern matches, with plain letters.
pub(crate) fn shortest_match(text: &str) -> String {
    let letter = |token: &Token| match token {
        Token::Char(c) => Some(*c),
        Token::Run => None,
        Token::One | Token::Class(_) => COMMON.chars().find(|c| token.accepts(*c)),
    };
    let shortest: String = Pattern::new(text).into_tokens().iter().filter_map(letter).collect();
    if shortest.is_empty() { "a".into() } else { shortest }
}

/// Characters that people can read, the plainest first.
const COMMON: &str = "abcdefghijklmnopqrstuvwxyz_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-./é中";

/// A character between two code points, one that people can read if there is one.
fn readable(low: u32, end: u32) -> Option<char> {
    let inside = |c: &char| (low..end).contains(&(*c as u32));
    let printable = || (low.max(0x21)..end.min(0x7f)).find_map(char::from_u32);
    COMMON.chars().find(inside).or_else(printable).or_else(|| (low..end).find_map(char::from_u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations of patterns that names can match, with the shortest name of each.
    fn combinations(patterns: &[(&str, Case)]) -> Vec<(Vec<u32>, String)> {
        let mut all = Automaton::default();
        for (text, case) in patterns {
            all.pattern(text, *case);
        }
        let mut found: Vec<(Vec<u32>, String)> = Vec::new();
        let explored = all.explore(
            all.start(),
            BUDGET,
            |_| true,
            |state, text| -> ControlFlow<()> {
                let matched: Vec<u32> = all.matched(state).collect();
                if !found.iter().any(|(known, _)| *known == matched) {
                    found.push((matched, text()));
                }
                ControlFlow::Continue(())
            },
        );
        assert!(explored.is_ok());
        found.sort();
        found
    }

    #[test]
    fn every_combination_of_patterns_has_a_shortest_name() {
        use Case::{Insensitive, Sensitive};
        let found = combinations(&[("get_*", Sensitive), ("*_all", Sensitive)]);
        let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["", "get_", "get_all", "_all"]);
        // `A` is `a` for one of them only.
        let found = combinations(&[("a", Sensitive), ("a", Insensitive)]);
        assert_eq!(found, [(vec![], "".into()), (vec![0, 1], "a".into()), (vec![1], "A".into())]);
        let found = combinations(&[("[!a-f]", Insensitive), ("?", Sensitive)]);
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn two_patterns_have_a_common_name_or_none() {
        for (one, other, common) in [
            ("ci-*", "*-prod", Some("ci--prod")),
            ("ci-*", "cd-*", None),
            ("a?", "[!a]*", None),
            ("*a*b", "b*a*", Some("bab")),
            ("x[0-9]", "x[5-z]", Some("xa")),
            ("[z-a]", "*", None),
        ] {
            let found = common_name(one, other);
            match common {
                None => assert_eq!(found, None, "{one} {other}"),
                Some(_) => {
                    let name = found.unwrap();
                    assert!(crate::fnmatch::fnmatch(one, &name), "{name}");
                    assert!(crate::fnmatch::fnmatch(other, &name), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_search_beyond_its_budget_is_given_up() {
        let mut all = Automaton::default();
        for c in 'a'..='t' {
            all.pattern(&format!("*{c}*{c}{c}*"), Case::Sensitive);
        }
        let explored =
            all.explore(all.start(), 1 << 20, |_| true, |_, _| ControlFlow::<()>::Continue(()));
        assert!(matches!(explored, Err(TooLarge)));
    }
}
