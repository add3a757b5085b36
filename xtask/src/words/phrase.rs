//! Phrases, and where they occur in a text.
//!
//! A phrase is words with one space between them. `/` separates alternatives: `turn/turned away`. A
//! leading `^` matches only at the start of a sentence that is not a question: `^what` finds "What was
//! sent is logged." and not "What was sent?".

use std::fmt;

/// A word of a text, or a mark that ends a phrase.
#[derive(Debug, PartialEq)]
pub enum Token {
    /// In lower case, with the line it is in.
    Word(String, usize),
    /// Punctuation inside a sentence.
    Mark,
    /// The end of a sentence, and whether it was a question.
    End(bool),
}

#[derive(Debug)]
pub struct Phrase {
    starts_sentence: bool,
    words: Vec<Vec<String>>,
}

impl Phrase {
    pub fn parse(text: &str) -> Phrase {
        let words = text.trim_start_matches('^').split_whitespace();
        let words = words.map(|word| word.split('/').map(str::to_string).collect()).collect();
        Phrase { starts_sentence: text.starts_with('^'), words }
    }

    /// The lines in which the phrase occurs.
    pub fn lines(&self, text: &[Token]) -> Vec<usize> {
        (0..text.len()).filter_map(|start| self.at(text, start)).collect()
    }

    fn at(&self, text: &[Token], start: usize) -> Option<usize> {
        let tokens = text.get(start..start + self.words.len())?;
        let same = |(token, words): (&Token, &Vec<String>)| match token {
            Token::Word(word, _) => words.contains(word),
            _ => false,
        };
        if !tokens.iter().zip(&self.words).all(same) {
            return None;
        }
        if self.starts_sentence && !starts_statement(text, start) {
            return None;
        }
        match tokens.first() {
            Some(Token::Word(_, line)) => Some(*line),
            _ => None,
        }
    }
}

fn starts_statement(text: &[Token], start: usize) -> bool {
    let first = start == 0 || matches!(text.get(start - 1), Some(Token::End(_)));
    let end = text[start..].iter().find(|token| matches!(token, Token::End(_)));
    first && !matches!(end, Some(Token::End(true)))
}

impl fmt::Display for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words.iter().map(|words| words.join("/")).collect();
        write!(f, "{}{}", if self.starts_sentence { "^" } else { "" }, words.join(" "))
    }
}

/// Splits prose that begins in the given line. Words between backticks are names and do not count.
pub fn tokens(text: &str, first_line: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let mut line = first_line;
    let mut code = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let inside = c.is_alphanumeric() || matches!(c, '\'' | '’' | '_' | '-');
        if inside && !code {
            word.extend(c.to_lowercase());
            continue;
        }
        push(&mut tokens, &mut word, line);
        line += usize::from(c == '\n');
        match c {
            '`' => {
                code = !code;
                tokens.push(Token::Mark);
            }
            _ if code || c.is_whitespace() || c == '*' => {}
            '.' | '?' | '!' if characters.peek().is_none_or(|next| next.is_whitespace()) => {
                tokens.push(Token::End(c == '?'));
            }
            _ => tokens.push(Token::Mark),
        }
    }
    push(&mut tokens, &mut word, line);
    tokens
}

fn push(tokens: &mut Vec<Token>, word: &mut String, line: usize) {
    let whole = word.trim_matches(['-', '\'', '’', '_']);
    if !whole.is_empty() {
        tokens.push(Token::Word(whole.into(), line));
    }
    word.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(phrase: &str, text: &str) -> usize {
        Phrase::parse(phrase).lines(&tokens(text, 1)).len()
    }

    #[test]
    fn words_match_whole_and_in_any_case() {
        assert_eq!(
            count("turn/turned away", "Turned away, or\nturned\naway. Turnedaway, turn it away."),
            2
        );
        assert_eq!(count("anew", "anew anewed renew"), 1);
    }

    #[test]
    fn punctuation_and_code_end_a_phrase() {
        assert_eq!(count("is none", "It is. None; is `x` none; `is none`; it is none"), 1);
    }

    #[test]
    fn a_clause_as_the_subject_is_not_a_question() {
        assert_eq!(
            count("^what/who", "What was sent is logged. Who asked? Now what is it. Who left."),
            2
        );
        assert_eq!(Phrase::parse("^what").lines(&tokens("Why.\n\nWhat for", 3)), [5]);
    }
}
