//! Errors and warnings about a file: location, cause, and help such as the nearest valid word.
//!
//! Rendered in the style of a compiler, as one line, or as JSON.

use std::sync::Arc;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{
    Annotation, AnnotationKind, Group, Level as SnippetLevel, Renderer, Snippet,
};

use crate::diagnostics::sanitize::{sanitize, sanitize_char};
use crate::diagnostics::text::{Mark, Place, Span, Text};

/// At most this many errors and warnings are shown; the rest is counted.
const MOST_SHOWN: usize = 50;

/// Locations at most this many lines apart are shown in one excerpt.
const NEARBY_LINES: u32 = 30;

/// Lines longer than this, e.g. a whole policy on one line, are cut around the marked span.
const LONG_LINE: u32 = 4000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
        }
    }
}

/// An error or warning. Its texts are sanitized for terminals.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    pub level: Level,
    message: String,
    mark: Option<Mark>,
    label: Option<String>,
    /// Related locations, with labels.
    related: Vec<(Mark, String)>,
    help: Vec<String>,
    /// The marked text is a secret and is printed as asterisks.
    hidden: bool,
}

impl Diagnostic {
    pub fn error(message: impl AsRef<str>) -> Self {
        Diagnostic::new(Level::Error, message)
    }

    pub fn warning(message: impl AsRef<str>) -> Self {
        Diagnostic::new(Level::Warning, message)
    }

    pub fn new(level: Level, message: impl AsRef<str>) -> Self {
        Diagnostic {
            level,
            message: sanitize(message.as_ref()).into_owned(),
            mark: None,
            label: None,
            related: Vec::new(),
            help: Vec::new(),
            hidden: false,
        }
    }

    #[must_use]
    pub fn at(self, text: &Arc<Text>, span: Span) -> Self {
        self.at_mark(Mark { text: Arc::clone(text), span })
    }

    #[must_use]
    pub fn at_mark(mut self, mark: Mark) -> Self {
        if self.hidden {
            mark.text.hide(mark.span);
        }
        self.mark = Some(mark);
        self
    }

    /// Labels the marked span.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(sanitize(label.as_ref()).into_owned());
        self
    }

    /// Adds help: how to fix the problem.
    #[must_use]
    pub fn help(mut self, help: impl AsRef<str>) -> Self {
        self.help.push(sanitize(help.as_ref()).into_owned());
        self
    }

    #[must_use]
    pub fn maybe_help(self, help: Option<impl AsRef<str>>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    /// Adds a related location, e.g. the first of two duplicates.
    #[must_use]
    pub fn related(mut self, mark: Mark, label: impl AsRef<str>) -> Self {
        self.related.push((mark, sanitize(label.as_ref()).into_owned()));
        self
    }

    /// Marks the span as secret: this and all other diagnostics print asterisks instead.
    #[must_use]
    pub fn hide_marked(mut self) -> Self {
        self.hidden = true;
        if let Some(mark) = &self.mark {
            mark.text.hide(mark.span);
        }
        self
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn help_text(&self) -> String {
        self.help.join("; ")
    }

    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    pub fn file(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.text.name())
    }

    pub fn place(&self) -> Option<Place> {
        self.mark.as_ref().map(Mark::place)
    }

    /// For programs: `level`, `message`, `file`, `line`, `column`, `help`; absent ones are null.
    pub fn to_json(&self) -> serde_json::Value {
        let place = self.place();
        serde_json::json!({
            "level": self.level.as_str(),
            "message": self.message,
            "file": self.file().map(sanitize),
            "line": place.map(|place| place.line),
            "column": place.map(|place| place.column),
            "help": (!self.help.is_empty()).then(|| self.help_text()),
        })
    }

    /// One line: `file:line:column: error: message (help)`.
    pub fn to_line(&self) -> String {
        let place = match (self.file(), self.place()) {
            (Some(file), Some(place)) => {
                format!("{}:{}:{}: ", sanitize(file), place.line, place.column)
            }
            _ => String::new(),
        };
        let help = match self.help.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.help_text()),
        };
        format!("{place}{}: {}{help}", self.level.as_str(), self.message)
    }

    /// Renders for terminals: file, line, column, the marked line, and help.
    pub fn render(&self, colours: bool) -> String {
        let level = match self.level {
            Level::Error => SnippetLevel::ERROR,
            Level::Warning => SnippetLevel::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        let mut columns = Vec::new();
        if let Some(mark) = &self.mark {
            let (near, far) =
                self.related.iter().partition::<Vec<_>, _>(|(other, _)| mark.is_near(other));
            let lines = near.iter().map(|(other, _)| other.place().line).chain([mark.place().line]);
            let excerpt = Excerpt::of(mark, lines);
            let primary =
                excerpt.annotation(mark.span, self.label.as_deref(), AnnotationKind::Primary);
            let context = near.into_iter().map(|(other, label)| {
                excerpt.annotation(other.span, Some(label), AnnotationKind::Context)
            });
            group = group.element(excerpt.snippet().annotation(primary).annotations(context));
            columns.extend(excerpt.columns(mark));
            for (other, label) in far {
                let excerpt = Excerpt::of(other, [other.place().line]);
                let context = excerpt.annotation(other.span, Some(label), AnnotationKind::Context);
                group = group.element(excerpt.snippet().annotation(context));
                columns.extend(excerpt.columns(other));
            }
        }
        let group = self
            .help
            .iter()
            .fold(group, |group, help| group.element(SnippetLevel::HELP.message(help.as_str())));
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let rendered = renderer.decor_style(DecorStyle::Ascii).render(&[group]);
        columns
            .into_iter()
            .fold(rendered, |rendered, (shown, real)| rendered.replacen(&shown, &real, 1))
    }
}

impl Mark {
    /// Whether another location is shown in the same excerpt.
    fn is_near(&self, other: &Mark) -> bool {
        let (here, there) = (self.place(), other.place());
        let lines = here.line.min(there.line)..=here.line.max(there.line);
        let short =
            |line: u32| self.text.line(line).is_none_or(|(start, end)| end - start < LONG_LINE);
        Arc::ptr_eq(&self.text, &other.text)
            && here.line.abs_diff(there.line) <= NEARBY_LINES
            && lines.into_iter().all(short)
    }
}

/// The displayed lines of a text, sanitized character by character.
struct Excerpt {
    name: String,
    first_line: u32,
    lines: String,
    /// The offset of each character in the text, and in `lines`.
    offsets: Vec<(u32, usize)>,
    cut: bool,
}

impl Excerpt {
    fn of(mark: &Mark, lines: impl IntoIterator<Item = u32> + Clone) -> Self {
        let hide = &mark.text.hidden();
        let first_line = lines.clone().into_iter().min().unwrap_or(1);
        let last_line = lines.into_iter().max().unwrap_or(1);
        let mut excerpt = Excerpt {
            name: sanitize(mark.text.name()).into_owned(),
            first_line,
            lines: String::new(),
            offsets: Vec::new(),
            cut: false,
        };
        for (start, end) in (first_line..=last_line).filter_map(|line| mark.text.line(line)) {
            if end - start < LONG_LINE {
                excerpt.line(mark, Span { start, end }, hide);
            } else {
                // Cut at any byte, then moved to the next character boundary.
                let content = mark.text.content();
                let near = |offset: u32| {
                    let offset = offset.clamp(start, end);
                    (offset..=end).find(|at| content.is_char_boundary(*at as usize)).unwrap_or(end)
                };
                let from = near(mark.span.start.saturating_sub(LONG_LINE / 2));
                let to = near(mark.span.start.saturating_add(LONG_LINE / 2));
                excerpt.cut = true;
                excerpt.line(mark, Span { start: from, end: to }, hide);
            }
        }
        excerpt
    }

    fn line(&mut self, mark: &Mark, line: Span, hide: &[Span]) {
        let shown = |span: &&Span| span.start < line.end && line.start < span.end;
        let hide: Vec<&Span> = hide.iter().filter(shown).collect();
        for (at, c) in mark.text.slice(line).char_indices() {
            let at = line.start + Span::new(at, at).start;
            self.offsets.push((at, self.lines.len()));
            self.lines.push(match c {
                _ if hide.iter().any(|span| (span.start..span.end).contains(&at)) => '*',
                // The renderer displays a tab as spaces but counts it as one column.
                '\t' => c,
                _ => sanitize_char(c),
            });
        }
        self.offsets.push((line.end, self.lines.len()));
        self.lines.push('\n');
    }

    /// The renderer counts columns in its input. For a cut line, returns the location it will print
    /// and the correct one.
    fn columns(&self, mark: &Mark) -> Option<(String, String)> {
        let place = mark.place();
        let before = self.lines.get(..self.shown(mark.span.start)).filter(|_| self.cut)?;
        let at = |column: usize| format!("{}:{}:{column}", self.name, place.line);
        Some((at(before.chars().count() + 1), at(place.column as usize)))
    }

    /// The position of an offset in the excerpt.
    fn shown(&self, offset: u32) -> usize {
        let at = self.offsets.partition_point(|(inside, _)| *inside < offset);
        self.offsets.get(at).map_or(self.lines.len().saturating_sub(1), |(_, shown)| *shown)
    }

    /// Marks a span; a span of several lines is marked up to the end of its first line.
    fn annotation<'a>(
        &self,
        span: Span,
        label: Option<&'a str>,
        kind: AnnotationKind,
    ) -> Annotation<'a> {
        let start = self.shown(span.start);
        let rest = self.lines.get(start..).unwrap_or_default();
        let line_end = start + rest.find('\n').unwrap_or(rest.len());
        kind.span(start..self.shown(span.end).clamp(start, line_end)).label(label)
    }

    fn snippet<'a>(&self) -> Snippet<'a, Annotation<'a>> {
        Snippet::source(self.lines.clone())
            .path(self.name.clone())
            .line_start(self.first_line as usize)
    }
}

/// Collected diagnostics, in the order they were reported.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Diagnostic>,
    errors: usize,
}

impl Findings {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let shown = match diagnostic.level {
            Level::Error => {
                self.errors += 1;
                self.errors <= MOST_SHOWN
            }
            Level::Warning => self.list.len() - self.errors.min(MOST_SHOWN) < MOST_SHOWN,
        };
        if shown {
            self.list.push(diagnostic);
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All diagnostics, errors first, otherwise in order.
    pub(crate) fn into_list(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|diagnostic| diagnostic.level);
        if let Some(more) = self.errors.checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
            let note = format!("{more} more errors are not shown");
            self.list.insert(MOST_SHOWN.min(self.list.len()), Diagnostic::error(note));
        }
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_harmless_and_still_marked() {
        let text = Text::new("a\u{1b}.yaml", "k: \u{1b}[2J\u{202e}x\n");
        let shown =
            Diagnostic::error("bad \u{7}").at(&text, Span::new(3, 11)).label("here").render(false);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(!shown.contains('\u{202e}'));
        assert!(shown.contains("^^^^^^"), "{shown}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text =
            Text::new("one.json", format!("{{\"a\": \"{}\", \"é\": 1}}", "x".repeat(5_000_000)));
        let at = text.content().len() - 7;
        let shown = Diagnostic::error("wrong").at(&text, Span::new(at, at + 4)).render(false);
        assert!(shown.len() < 1000, "{}", shown.len());
        assert!(shown.contains("--> one.json:1:5000012"), "{shown}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let text = Text::new("c.yaml", "tokens: [hunter2]\n");
        let shown =
            Diagnostic::error("plain").at(&text, Span::new(9, 16)).hide_marked().render(false);
        assert!(!shown.contains("hunter2"));
        assert!(shown.contains("[*******]"), "{shown}");
    }

    #[test]
    fn no_finding_shows_the_secret_of_another() {
        let text = Text::new("c.yaml", "tokens: [hunter2, hunter3, ${X}]\n");
        let secret = |start| Diagnostic::error("plain").at(&text, Span::new(start, start + 7));
        let (one, other) = (secret(9).hide_marked(), secret(18).hide_marked());
        let about = Diagnostic::error("something else").at(&text, Span::new(0, 6));
        for shown in [one.render(false), other.render(false), about.render(false)] {
            assert!(
                !shown.contains("hunter") && shown.contains("[*******, *******, ${X}]"),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_span_over_lines_marks_the_first_line() {
        let text = Text::new("c.yaml", "a:\n  b: 1\n  c: 2\n");
        let shown = Diagnostic::error("wrong").at(&text, Span::new(5, 17)).render(false);
        assert_eq!(shown.matches('^').count(), 4, "{shown}");
    }

    #[test]
    fn findings_are_counted_beyond_what_is_shown() {
        let mut findings = Findings::default();
        for _ in 0..MOST_SHOWN + 7 {
            findings.push(Diagnostic::error("e"));
        }
        findings.push(Diagnostic::warning("w"));
        let list = findings.into_list();
        assert_eq!(list.len(), MOST_SHOWN + 2);
        assert_eq!(list[MOST_SHOWN].message(), "7 more errors are not shown");
    }
}
