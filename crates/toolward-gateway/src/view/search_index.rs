//! Finding tools by what they do. What is searched is what an agent sees: the index is made of its
//! view alone, so that nothing else can be found, counted or weighed.
//!
//! The ranking is BM25 over the parts of a definition, a name above a description above parameters.
//! Words count without their endings, for their synonyms a little less, and with one slip of the hand
//! where nothing has the word as it is written.

mod parts;
mod words;

use hashbrown::HashMap;
use serde_json::Value;

use self::parts::parts;
pub(crate) use self::parts::summary;
use self::words::{alike, is_empty, nearly, split, stem};

/// So many tools are found at most.
const MOST: usize = 10;
/// No more words of a question are looked at.
const MOST_WORDS: usize = 24;

/// How soon more of the same word stops to matter.
const K1: f64 = 1.2;
/// A synonym counts less than the word, more where no tool has the word itself.
const SYNONYM: f64 = 0.45;
const INSTEAD: f64 = 0.9;
/// Each of two words that are written as one.
const HALF: f64 = 0.5;
/// A word that begins as it should, and one that is misspelt.
const BEGINNING: f64 = 0.5;
const MISSPELT: f64 = 0.7;
/// A shorter word is near to too many others.
const SHORTEST: usize = 5;

/// The parts of a definition: how much a word in one counts, and how much a long one loses by it.
const PARTS: [Part; 6] = [
    Part { word: "its name", weight: 4.0, length: 0.5 },
    Part { word: "its title", weight: 2.0, length: 0.5 },
    Part { word: "its server's name", weight: 1.2, length: 0.0 },
    Part { word: "its description", weight: 2.0, length: 0.6 },
    Part { word: "its parameters", weight: 0.6, length: 0.6 },
    Part { word: "its parameters' descriptions", weight: 0.25, length: 0.8 },
];
const NAME: usize = 0;
/// Words of names that say that nothing changes, and how much that is worth.
const LOOKING: &[&str] = &["list", "get", "read", "search", "find", "show", "query", "describe"];
const LOOKS: f64 = 1.15;

struct Part {
    /// As a reason names it.
    word: &'static str,
    weight: f64,
    length: f64,
}

/// What is known of the words of an agent's tools.
#[derive(Debug)]
pub(crate) struct Index {
    tools: Vec<Indexed>,
    /// By what is left of words without their endings.
    terms: HashMap<String, Term>,
}

/// A word and the tools that have it.
#[derive(Debug, Default)]
struct Term {
    /// Its shortest form, for people.
    shown: String,
    tools: Vec<Posting>,
}

#[derive(Debug)]
struct Indexed {
    /// The tool's place in the view.
    at: Place,
    /// How many different words its name has.
    name_words: usize,
    /// Its name says that it only looks: who names a thing and nothing to be done wants to see it.
    looks: bool,
}

/// A tool's place in a view: its server's, and its own among the server's.
pub(crate) type Place = (usize, usize);

/// A word in a tool.
#[derive(Debug)]
struct Posting {
    tool: usize,
    weight: f64,
    /// The first part that has it.
    part: usize,
}

/// A tool to be indexed.
pub(crate) struct Described<'a> {
    pub(crate) at: Place,
    pub(crate) server: &'a str,
    /// The definition as the agent gets it.
    pub(crate) definition: &'a Value,
}

/// A tool that was found, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) at: Place,
    pub(crate) why: String,
}

impl Index {
    pub(crate) fn new<'a>(tools: impl Iterator<Item = Described<'a>>) -> Index {
        let mut index = Index { tools: Vec::new(), terms: HashMap::<String, Term>::new() };
        let mut lengths: Vec<[usize; PARTS.len()]> = Vec::new();
        let mut counted: Vec<HashMap<String, [u32; PARTS.len()]>> = Vec::new();
        for tool in tools {
            let mut length = [0; PARTS.len()];
            let mut counts: HashMap<String, [u32; PARTS.len()]> = HashMap::new();
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
            let in_name = |counts: &&[u32; PARTS.len()]| counts.get(NAME).is_some_and(|n| *n > 0);
            let name_words = counts.values().filter(in_name).count();
            let name = split(tool.definition["name"].as_str().unwrap_or_default());
            let looks = name.iter().any(|word| LOOKING.contains(&word.as_str()));
            index.tools.push(Indexed { at: tool.at, name_words, looks });
            lengths.push(length);
            counted.push(counts);
        }
        let mean = means(&lengths);
        for (tool, (counts, length)) in counted.into_iter().zip(&lengths).enumerate() {
            for (word, counts) in counts {
                let mut weight = 0.0;
                let each = counts.iter().zip(&PARTS).zip(length.iter().zip(&mean));
                for ((count, part), (length, mean)) in each {
                    let relative = 1.0 - part.length + part.length * *length as f64 / mean;
                    weight += part.weight * f64::from(*count) / relative;
                }
                let part = counts.iter().position(|count| *count > 0).unwrap_or(0);
                let term = index.terms.entry(word).or_default();
                term.tools.push(Posting { tool, weight, part });
            }
        }
        // What a map gives in any order is put in one.
        index.terms.values_mut().for_each(|term| term.tools.sort_by_key(|one| one.tool));
        index
    }

    /// The tools that a question is about, the likeliest first.
    pub(crate) fn search(&self, question: &str) -> Vec<Found> {
        let wanted = self.wanted(question);
        let rarest =
            |words: &Vec<Meant<'_>>| words.iter().map(|one| one.factor).fold(0.0, f64::max);
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
        // Those that are alike stay in the order of the list.
        ranked.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
        let found = |(_, at): &(f64, usize)| {
            Some(Found { at: self.tools.get(*at)?.at, why: matches.get(*at)?.why() })
        };
        ranked.iter().take(MOST).filter_map(found).collect()
    }

    /// The words of a question, and for each those of the index that could be meant.
    fn wanted(&self, question: &str) -> Vec<Vec<Meant<'_>>> {
        let all = split(question);
        let mut asked: Vec<&String> = all.iter().filter(|word| !is_empty(word)).collect();
        // A question of empty words alone is about them.
        if asked.is_empty() {
            asked = all.iter().collect();
        }
        asked.truncate(MOST_WORDS);
        let mut wanted: Vec<Vec<Meant<'_>>> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for (at, word) in asked.iter().enumerate() {
            let own = stem(word);
            if seen.contains(&own) {
                continue;
            }
            let mut meant = self.meant(word, &own);
            // `heap snapshot` is also `heapsnapshot`.
            let neighbours = [at.checked_sub(1).map(|at| (at, at + 1)), Some((at, at + 1))];
            for (first, second) in neighbours.into_iter().flatten() {
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

    fn meant(&self, word: &str, own: &str) -> Vec<Meant<'_>> {
        let mut meant: Vec<Meant<'_>> = self.term(own, 1.0, word, false).into_iter().collect();
        let share = if meant.is_empty() { INSTEAD } else { SYNONYM };
        for other in alike(word) {
            meant.extend(self.term(&other, share, word, true));
        }
        if !meant.is_empty() || word.chars().count() < SHORTEST {
            return meant;
        }
        // Nothing has the word: what is nearest to it is meant.
        let near = |(stem, term): (&'_ String, &Term)| match () {
            () if nearly(own, stem) || nearly(word, &term.shown) => Some(MISSPELT),
            () if stem.starts_with(own) => Some(BEGINNING),
            () => None,
        };
        let near = self.terms.iter().filter_map(|one| Some((one.0.as_str(), near(one)?)));
        let mut near: Vec<(&str, f64)> = near.collect();
        near.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        let near = near.into_iter();
        near.filter_map(|(term, share)| self.term(term, share, word, true)).collect()
    }

    /// A term that a word of the question means; `guessed` where that is not plain.
    fn term(&self, term: &str, share: f64, word: &str, guessed: bool) -> Option<Meant<'_>> {
        let term = self.terms.get(term)?;
        let (all, having) = (self.tools.len() as f64, term.tools.len() as f64);
        let rare = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
        Some(Meant { term, factor: rare * share, word: word.into(), guessed })
    }

    /// The best of what could be meant, for each tool that has some of it.
    fn best<'i>(&self, words: &'i [Meant<'i>]) -> Vec<(usize, Word<'i>)> {
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

/// A word of the index that a word of a question could mean.
struct Meant<'i> {
    term: &'i Term,
    factor: f64,
    /// The word of the question.
    word: String,
    guessed: bool,
}

#[derive(Clone, Copy)]
struct Word<'i> {
    score: f64,
    part: usize,
    meant: &'i Meant<'i>,
}

/// What a tool has of a question.
#[derive(Default)]
struct Match<'i> {
    /// By the place of the word in the question.
    words: Vec<(usize, Word<'i>)>,
}

impl<'i> Match<'i> {
    fn add(&mut self, asked: usize, word: Word<'i>) {
        self.words.push((asked, word));
    }

    /// Who has more of the question, of its rare words above all, and whose name has little else,
    /// comes first.
    fn score(&self, whole: f64, tool: &Indexed) -> f64 {
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
        for (at, part) in PARTS.iter().enumerate() {
            let in_part = self.words.iter().filter(|(_, word)| word.part == at);
            let words: Vec<String> = in_part.map(|(_, word)| word.meant.shown()).collect();
            if !words.is_empty() {
                why.push(format!("{} in {}", words.join(", "), part.word));
            }
        }
        why.join("; ")
    }
}

impl Meant<'_> {
    fn shown(&self) -> String {
        match self.guessed {
            true => format!("`{}` (read as `{}`)", self.word, self.term.shown),
            false => format!("`{}`", self.word),
        }
    }
}

/// The mean length of each part; never nothing.
fn means(lengths: &[[usize; PARTS.len()]]) -> [f64; PARTS.len()] {
    std::array::from_fn(|part| {
        let sum: usize = lengths.iter().filter_map(|one| one.get(part)).sum();
        (sum as f64 / lengths.len().max(1) as f64).max(1.0)
    })
}

#[cfg(test)]
mod tests;
