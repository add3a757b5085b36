//! The reader's context: the text of the file being read, its diagnostics, and locations of entries.

use std::sync::Arc;

use crate::diagnostics::diagnostic::{Diagnostic, Findings};
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Mark, Place, Places, Span, Text};
use crate::read::node::Node;

pub(crate) struct Reader<'a> {
    pub(crate) text: &'a Arc<Text>,
    pub(crate) findings: &'a mut Findings,
    places: Places<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a Arc<Text>, findings: &'a mut Findings) -> Self {
        Reader { text, findings, places: Places::new(text) }
    }

    pub(crate) fn place(&mut self, span: Span) -> Place {
        self.places.of(span.start)
    }

    pub(crate) fn mark(&self, span: Span) -> Mark {
        Mark { text: Arc::clone(self.text), span }
    }

    pub(crate) fn report(&mut self, span: Span, diagnostic: Diagnostic) {
        self.findings.push(diagnostic.at(self.text, span));
    }

    pub(crate) fn error(&mut self, span: Span, message: impl AsRef<str>, help: &str) {
        self.report(span, Diagnostic::error(message).help(help));
    }

    pub(crate) fn warning(&mut self, span: Span, message: impl AsRef<str>, help: &str) {
        self.report(span, Diagnostic::warning(message).help(help));
    }

    /// Reports keys that are not valid here.
    pub(crate) fn reject_keys(&mut self, node: &Node<'_>, keys: &[&str], why: &str) {
        for key in keys.iter().filter_map(|key| node.as_map()?.entry(key)).map(|(key, _)| key) {
            let message = format!("{} is not allowed here: {why}", quoted(&key.name));
            self.error(key.span, message, "remove it");
        }
    }
}
