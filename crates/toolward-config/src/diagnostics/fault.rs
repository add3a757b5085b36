//! Parse errors before the file is known: a span and a message, without the text.

use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::text::{Mark, Span, Text};

/// A parse error in a text whose file is not known yet.
#[derive(Debug, Clone)]
pub struct Fault {
    pub span: Span,
    pub message: String,
    label: Option<String>,
    help: Option<String>,
    related: Option<(Span, String)>,
}

impl Fault {
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Fault { span, message: message.into(), label: None, help: None, related: None }
    }

    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related = Some((span, label.into()));
        self
    }

    /// Removes quoted text if the span overlaps a secret.
    #[must_use]
    pub(crate) fn discreet(mut self, text: &Text) -> Self {
        if text.hides(self.span) {
            self.message = unquoted(&self.message);
            self.label = self.label.as_deref().map(unquoted);
            self.help = self.help.as_deref().map(unquoted);
        }
        self
    }

    /// Converts the fault to a diagnostic of its file.
    pub fn in_text(self, text: &Arc<Text>) -> Diagnostic {
        let mut diagnostic =
            Diagnostic::error(self.message).at(text, self.span).maybe_help(self.help);
        if let Some(label) = self.label {
            diagnostic = diagnostic.label(label);
        }
        match self.related {
            Some((span, label)) => diagnostic.related(Mark { text: Arc::clone(text), span }, label),
            None => diagnostic,
        }
    }
}

/// Removes quoted parts of a message.
fn unquoted(said: &str) -> String {
    let pieces = said.split('`').enumerate();
    let kept = pieces.map(|(at, piece)| {
        // Fixed parts of such texts are short: `:`, `"`, `${`.
        let fixed = at % 2 == 0 || piece.chars().count() <= 2;
        if fixed { piece } else { "…" }
    });
    kept.collect::<Vec<_>>().join("`")
}
