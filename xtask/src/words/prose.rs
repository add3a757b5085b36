//! The prose of a file: comments, messages, paragraphs.

mod rust;

use super::area::Area;
use super::phrase::{Token, tokens};

pub use rust::rust;

/// One paragraph, comment or message.
pub struct Text {
    pub file: String,
    pub area: Area,
    pub tokens: Vec<Token>,
}

impl Text {
    fn new(file: &str, area: Area, text: &str, line: usize) -> Text {
        Text { file: file.into(), area, tokens: tokens(text, line) }
    }
}

/// Paragraphs of Markdown, without headings, fenced code and the targets of links.
pub fn markdown(file: &str, content: &str, texts: &mut Vec<Text>) {
    let mut paragraph = Paragraph::new(file, Area::Docs);
    let mut fenced = false;
    for (index, line) in content.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
        }
        let apart = fenced || trimmed.starts_with("```") || trimmed.starts_with('#');
        let begins = ["- ", "* ", "| ", "> "].iter().any(|mark| trimmed.starts_with(mark));
        if apart || begins || trimmed.is_empty() {
            paragraph.end(texts);
        }
        if !apart {
            paragraph.line(&without(line, "](", ")"), index + 1);
        }
    }
    paragraph.end(texts);
}

/// Comments of a script or a YAML file.
pub fn script(file: &str, content: &str, texts: &mut Vec<Text>) {
    let area = if file.starts_with("examples/") { Area::Docs } else { Area::Comments };
    let mut paragraph = Paragraph::new(file, area);
    for (index, line) in content.lines().enumerate() {
        match line.trim_start().strip_prefix('#').or(line.trim_start().strip_prefix("--")) {
            Some(comment) => paragraph.line(comment, index + 1),
            None => paragraph.end(texts),
        }
    }
    paragraph.end(texts);
}

/// The texts of a template, without tags and expressions.
pub fn html(file: &str, content: &str, texts: &mut Vec<Text>) {
    let content = without(&without(content, "{%", "%}"), "{{", "}}");
    let content = without(&without(&content, "{#", "#}"), "<", ">");
    let mut paragraph = Paragraph::new(file, Area::Admin);
    for (index, line) in content.lines().enumerate() {
        paragraph.line(line, index + 1);
    }
    paragraph.end(texts);
}

/// Comments of a script in the browser.
pub fn javascript(file: &str, content: &str, texts: &mut Vec<Text>) {
    let mut paragraph = Paragraph::new(file, Area::Admin);
    for (index, line) in content.lines().enumerate() {
        match line.split_once("//") {
            Some((_, comment)) => paragraph.line(comment, index + 1),
            None => paragraph.end(texts),
        }
    }
    paragraph.end(texts);
}

/// Lines that are read together.
struct Paragraph<'a> {
    file: &'a str,
    area: Area,
    first: usize,
    text: String,
}

impl<'a> Paragraph<'a> {
    fn new(file: &'a str, area: Area) -> Paragraph<'a> {
        Paragraph { file, area, first: 1, text: String::new() }
    }

    fn line(&mut self, line: &str, number: usize) {
        if self.text.is_empty() {
            self.first = number;
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn end(&mut self, texts: &mut Vec<Text>) {
        if !self.text.is_empty() {
            texts.push(Text::new(self.file, self.area, &self.text, self.first));
            self.text.clear();
        }
    }
}

/// A text with everything between two marks removed, except for line ends.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        kept.push_str(before);
        kept.push(' ');
        let (removed, after) = after.split_once(close).unwrap_or((after, ""));
        kept.extend(removed.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[Text]) -> Vec<String> {
        let text = |text: &Text| {
            let words = text.tokens.iter().filter_map(|token| match token {
                Token::Word(word, line) => Some(format!("{word}:{line}")),
                _ => None,
            });
            words.collect::<Vec<_>>().join(" ")
        };
        texts.iter().map(text).collect()
    }

    #[test]
    fn code_headings_and_links_of_markdown_do_not_count() {
        let mut texts = Vec::new();
        let page = "# Head\n\none [two](three.md)\nfour\n- five\n```sh\nsix\n```\nseven `eight`\n";
        markdown("README.md", page, &mut texts);
        assert_eq!(words(&texts), ["one:3 two:3 four:4", "five:5", "seven:9"]);
    }

    #[test]
    fn tags_and_expressions_of_templates_do_not_count() {
        let mut texts = Vec::new();
        html("x.html", "<p class=\"one\">two {{ three\n}}\n{% if four %}five</p>", &mut texts);
        assert_eq!(words(&texts), ["two:1 five:3"]);
    }
}
