//! Full-text search for tools. The index is built from an agent's view alone, so hidden tools can neither
//! be found nor affect the ranking.
//!
//! Ranking is BM25 over the fields of a definition: a name counts more than a description, which counts
//! more than parameters. Words are stemmed, synonyms count a little less, and a word that no tool has
//! matches words with one typo.

mod parts;
mod words;

use hashbrown::HashMap;
use serde_json::Value;

use self::parts::parts;
pub(crate) use self::parts::summary;
use self::words::{alike, is_empty, nearly, split, stem};

/// Maximum number of results.
const MAX_RESULTS: usize = 10;
/// Maximum number of query words; further ones are ignored.
const MAX_QUERY_WORDS: usize = 24;

/// BM25 term frequency saturation.
const K1: f64 = 1.2;
/// Weight of a synonym, and of a synonym if no tool has the word itself.
const SYNONYM: f64 = 0.45;
const INSTEAD: f64 = 0.9;
/// Weight of each of two query words that match as one word.
const HALF: f64 = 0.5;
/// Weight of a prefix match, and of a match with a typo.
const PREFIX: f64 = 0.5;
const TYPO: f64 = 0.7;
/// Minimum length for prefix and typo matches: shorter words are close to too many others.
const MIN_FUZZY_LENGTH: usize = 5;

/// The fields of a definition, with their weights and BM25 length normalization.
const FIELDS: [SearchField; 6] = [
    SearchField { word: "its name", weight: 4.0, length: 0.5 },
    SearchField { word: "its title", weight: 2.0, length: 0.5 },
    SearchField { word: "its server's name", weight: 1.2, length: 0.0 },
    SearchField { word: "its description", weight: 2.0, length: 0.6 },
    SearchField { word: "its parameters", weight: 0.6, length: 0.6 },
    SearchField { word: "its parameters' descriptions", weight: 0.25, length: 0.8 },
];
const NAME: usize = 0;
/// Words in names of read-only tools, and the score factor of such tools.
const LOOKING: &[&str] = &["list", "get", "read", "search", "find", "show", "query", "describe"];
const LOOKS: f64 = 1.15;

struct SearchField {
    /// Its name in explanations.
    word: &'static str,
    weight: f64,
    length: f64,
}

/// The words of an agent's tools.
#[derive(Debug)]
pub(crate) struct Index {
    tools: Vec<IndexedTool>,
    /// By stem.
    terms: HashMap<String, Term>,
}

/// A word and the tools that have it.
#[derive(Debug, Default)]
struct Term {
    /// Its shortest form, for display.
    shown: String,
    tools: Vec<Posting>,
}

#[derive(Debug)]
struct IndexedTool {
    /// The tool's position in the view.
    at: ToolPosition,
    /// The number of distinct words in its name.
    name_words: usize,
    /// Its name suggests that it is read-only. A query that names a thing without an action most likely
    /// wants to see it.
    looks: bool,
}

/// A tool's position in a view: the index of its server, and its index among the server's tools.
pub(crate) type ToolPosition = (usize, usize);

/// A word in a tool.
#[derive(Debug)]
struct Posting {
    tool: usize,
    weight: f64,
    /// The first field that has it.
    part: usize,
}

/// A tool to be indexed.
pub(crate) struct ToolDocument<'a> {
    pub(crate) at: ToolPosition,
    pub(crate) server: &'a str,
    /// The definition as the agent gets it.
    pub(crate) definition: &'a Value,
}

/// A search result, and why it matched.
#[derive(Debug, PartialEq)]
pub(crate) struct SearchResult {
    pub(crate) at: ToolPosition,
    pub(crate) why: String,
}

impl Index {
    pub(crate) fn new<'a>(tools: impl Iterator<Item = ToolDocument<'a>>) -> Index {
        let mut index = Index { tools: Vec::new(), terms: HashMap::<String, Term>::new() };
        let mut lengths: Vec<[usize; FIELDS.len()]> = Vec::new();
        let mut counted: Vec<HashMap<String, [u32; FIELDS.len()]>> = Vec::new();
        for tool in tools {
            let mut length = [0; FIELDS.len()];
            let mut counts: HashMap<String, [u32; FIELDS.len()]> = HashMap::new();
            for (part, words) in parts(&tool).into_iter().enumerate() {
                if let Some(length) = length.get_mut(part) {
                    *length = words.len();
                }
                for word in words {
                    let stem = stem(&word);
                    let term = index.terms.entry_ref(stem.as_str()).or_default();
                    let shorter = (word.len(), &word) < (term.shown.len(), &term.shown);
                    if term.shown.is_empty() || shorter {
                        term.shown = word;
                    }
                    let counts = counts.entry(stem).or_default();
                    if let Some(count) = counts.get_mut(part) {
                        *count += 1;
                    }
                }
            }
            let in_name = |counts: &&[u32; FIELDS.len()]| counts.get(NAME).is_some_and(|n| *n > 0);
            let name_words = counts.values().filter(in_name).count();
            let name = split(tool.definition["name"].as_str().unwrap_or_default());
            let looks = name.iter().any(|word| LOOKING.contains(&word.as_str()));
            index.tools.push(IndexedTool { at: tool.at, name_words, looks });
            lengths.push(length);
            counted.push(counts);
        }
        let mean = means(&lengths);
        for (tool, (counts, length)) in counted.into_iter().zip(&lengths).enumerate() {
            for (word, counts) in counts {
                let mut weight = 0.0;
                let each = counts.iter().zip(&FIELDS).zip(length.iter().zip(&mean));
                for ((count, part), (length, mean)) in each {
                    let relative = 1.0 - part.length + part.length * *length as f64 / mean;
                    weight += part.weight * f64::from(*count) / relative;
                }
                let part = counts.iter().position(|count| *count > 0).unwrap_or(0);
                let term = index.terms.entry(word).or_default();
                term.tools.push(Posting { tool, weight, part });
            }
        }
        // Sorted, because the order of a hash map is random.
        index.terms.values_mut().for_each(|term| term.tools.sort_by_key(|one| one.tool));
        index
    }

    /// The tools that match a query, best first.
    pub(crate) fn search(&self, query: &str) -> Vec<SearchResult> {
        let wanted = self.wanted(query);
        let rarest =
            |words: &Vec<Candidate<'_>>| words.iter().map(|one| one.factor).fold(0.0, f64::max);
        let whole: f64 = wanted.iter().map(rarest).sum();
        let mut matches: Vec<Match> = self.tools.iter().map(|_| Match::default()).collect();
        for (asked, words) in wanted.iter().enumerate() {
            for (tool, word) in self.best(words) {
                if let Some(found) = matches.get_mut(tool) {
                    found.add(asked, word);
                }
            }
        }
        let mut ranked: Vec<(f64, usize)> = matches
            .iter()
            .zip(&self.tools)
            .enumerate()
            .map(|(at, (found, tool))| (found.score(whole, tool), at))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        // Ties keep the order of the list.
        ranked.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
        let found = |(_, at): &(f64, usize)| {
            Some(SearchResult { at: self.tools.get(*at)?.at, why: matches.get(*at)?.why() })
        };
        ranked.iter().take(MAX_RESULTS).filter_map(found).collect()
    }

    /// The words of a query, each with the indexed words that it could match.
    fn wanted(&self, query: &str) -> Vec<Vec<Candidate<'_>>> {
        let all = split(query);
        let mut asked: Vec<&String> = all.iter().filter(|word| !is_empty(word)).collect();
        // A query that has only stop words searches for those.
        if asked.is_empty() {
            asked = all.iter().collect();
        }
        asked.truncate(MAX_QUERY_WORDS);
        let mut wanted: Vec<Vec<Candidate<'_>>> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for (at, word) in asked.iter().enumerate() {
            let own = stem(word);
            if seen.contains(&own) {
                continue;
            }
            let mut meant = self.meant(word, &own);
            // `heap snapshot` also matches `heapsnapshot`.
            let neighbors = [at.checked_sub(1).map(|at| (at, at + 1)), Some((at, at + 1))];
            for (first, second) in neighbors.into_iter().flatten() {
                if let (Some(first), Some(second)) = (asked.get(first), asked.get(second)) {
                    let joined = stem(&format!("{first}{second}"));
                    meant.extend(self.term(&joined, HALF, word, false));
                }
            }
            seen.push(own);
            wanted.push(meant);
        }
        wanted
    }

    fn meant(&self, word: &str, own: &str) -> Vec<Candidate<'_>> {
        let mut meant: Vec<Candidate<'_>> = self.term(own, 1.0, word, false).into_iter().collect();
        let share = if meant.is_empty() { INSTEAD } else { SYNONYM };
        for other in alike(word) {
            meant.extend(self.term(&other, share, word, true));
        }
        if !meant.is_empty() || word.chars().count() < MIN_FUZZY_LENGTH {
            return meant;
        }
        // No tool has the word: fall back to prefixes and typos.
        let near = |(stem, term): (&'_ String, &Term)| match () {
            () if nearly(own, stem) || nearly(word, &term.shown) => Some(TYPO),
            () if stem.starts_with(own) => Some(PREFIX),
            () => None,
        };
        let near = self.terms.iter().filter_map(|one| Some((one.0.as_str(), near(one)?)));
        let mut near: Vec<(&str, f64)> = near.collect();
        near.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        let near = near.into_iter();
        near.filter_map(|(term, share)| self.term(term, share, word, true)).collect()
    }

    /// A term that matches a query word; `guessed` if it is not the word itself.
    fn term(&self, term: &str, share: f64, word: &str, guessed: bool) -> Option<Candidate<'_>> {
        let term = self.terms.get(term)?;
        let (all, having) = (self.tools.len() as f64, term.tools.len() as f64);
        let rare = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
        Some(Candidate { term, factor: rare * share, word: word.into(), guessed })
    }

    /// The best candidate for each tool that has any of them.
    fn best<'i>(&self, words: &'i [Candidate<'i>]) -> Vec<(usize, Word<'i>)> {
        let mut best: HashMap<usize, Word<'i>> = HashMap::new();
        for meant in words {
            for posting in &meant.term.tools {
                let score = meant.factor * posting.weight / (K1 + posting.weight);
                let word = Word { score, part: posting.part, meant };
                let best = best.entry(posting.tool).or_insert(word);
                if best.score < score {
                    *best = word;
                }
            }
        }
        best.into_iter().collect()
    }
}

/// An indexed word that a query word could match.
struct Candidate<'i> {
    term: &'i Term,
    factor: f64,
    /// The query word.
    word: String,
    guessed: bool,
}

#[derive(Clone, Copy)]
struct Word<'i> {
    score: f64,
    part: usize,
    meant: &'i Candidate<'i>,
}

/// The query words that a tool matches.
#[derive(Default)]
struct Match<'i> {
    /// With the word's position in the query.
    words: Vec<(usize, Word<'i>)>,
}

impl<'i> Match<'i> {
    fn add(&mut self, asked: usize, word: Word<'i>) {
        self.words.push((asked, word));
    }

    /// Ranks tools higher that match more of the query, above all its rare words, and whose name has few
    /// other words.
    fn score(&self, whole: f64, tool: &IndexedTool) -> f64 {
        if self.words.is_empty() {
            return 0.0;
        }
        let sum: f64 = self.words.iter().map(|(_, word)| word.score).sum();
        let had: f64 = self.words.iter().map(|(_, word)| word.meant.factor).sum();
        let named = self.words.iter().filter(|(_, word)| word.part == NAME).count();
        let of_name = (named as f64 / tool.name_words.max(1) as f64).min(1.0);
        let looks = if tool.looks { LOOKS } else { 1.0 };
        sum * (0.4 + 0.6 * had / whole) * (1.0 + 0.5 * of_name) * looks
    }

    fn why(&self) -> String {
        let mut why = Vec::new();
        for (at, part) in FIELDS.iter().enumerate() {
            let in_part = self.words.iter().filter(|(_, word)| word.part == at);
            let words: Vec<String> = in_part.map(|(_, word)| word.meant.shown()).collect();
            if !words.is_empty() {
                why.push(format!("{} in {}", words.join(", "), part.word));
            }
        }
        why.join("; ")
    }
}

impl Candidate<'_> {
    fn shown(&self) -> String {
        match self.guessed {
            true => format!("`{}` (read as `{}`)", self.word, self.term.shown),
            false => format!("`{}`", self.word),
        }
    }
}

/// The mean length of each field, at least 1.
fn means(lengths: &[[usize; FIELDS.len()]]) -> [f64; FIELDS.len()] {
    std::array::from_fn(|part| {
        let sum: usize = lengths.iter().filter_map(|one| one.get(part)).sum();
        (sum as f64 / lengths.len().max(1) as f64).max(1.0)
    })
}

#[cfg(test)]
mod tests;
