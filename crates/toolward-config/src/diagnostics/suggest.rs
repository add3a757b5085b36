//! Finds the nearest valid word, for "did you mean".

/// The nearest word of `valid`, if one is near enough.
pub fn nearest<'w>(word: &str, valid: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let folded = fold(word);
    // Longer words are not typos, and the table would only cost time.
    if folded.is_empty() || folded.len() > 64 {
        return None;
    }
    let most = match folded.len() {
        1 | 2 => 0,
        3 | 4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    let begins = |candidate: &[char]| {
        let len = candidate.len().min(folded.len());
        len >= 3 && candidate[..len] == folded[..len]
    };
    valid
        .into_iter()
        .filter_map(|candidate| {
            let word = fold(candidate);
            let distance = distance(&folded, &word);
            // Prefixes and extensions of a word rank after typos.
            let rank = if distance <= most { distance } else { most + 1 };
            (distance <= most || begins(&word)).then_some((rank, candidate))
        })
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, candidate)| candidate)
}

/// Whether two words differ only in case, hyphens and underscores.
pub(crate) fn same_word(one: &str, other: &str) -> bool {
    fold(one) == fold(other)
}

/// `allowedTools`, `allowed-tools` and `ALLOWED_TOOLS` are all spellings of `allowed_tools`.
fn fold(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| !matches!(c, '-' | '_' | ' ' | '.'))
        .flat_map(char::to_lowercase)
        .take(80)
        .collect()
}

/// Optimal string alignment: insertions, deletions, substitutions, and transpositions.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let keys = ["agents", "allowed_tools", "servers", "case", "url"];
        assert_eq!(nearest("agnets", keys), Some("agents"));
        assert_eq!(nearest("allowedTools", keys), Some("allowed_tools"));
        assert_eq!(nearest("allow-tools", keys), Some("allowed_tools"));
        assert_eq!(nearest("server", keys), Some("servers"));
        assert_eq!(nearest("URL", keys), Some("url"));
        assert_eq!(nearest("uri", keys), Some("url"));
        assert_eq!(nearest("allowed", keys), Some("allowed_tools"));
        assert_eq!(nearest("plugins", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"a".repeat(10_000), keys), None);
    }

    #[test]
    fn swapped_neighbours_cost_one() {
        let chars = |word: &str| word.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("alolw"), &chars("allow")), 1);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
