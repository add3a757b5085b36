//! The file that is being read: its text, its findings, and the place of each entry.

use std::sync::Arc;

use crate::config::secret::Secret;
use crate::diagnostics::diagnostic::{Diagnostic, Findings};
use crate::diagnostics::text::{Mark, Place, Places, Span, Text};
use crate::keys::check::Check;
use crate::keys::shape::Shape;
use crate::read::node::Node;
use crate::resolve::main_file::Folders;

pub(crate) struct Reader<'a> {
    pub(crate) text: &'a Arc<Text>,
    pub(crate) findings: &'a mut Findings,
    places: Places<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a Arc<Text>, findings: &'a mut Findings) -> Self {
        Reader { text, findings, places: Places::new(text) }
    }

    pub(crate) fn check(&mut self, node: &Node<'_>, shape: &Shape, key: &str, main: bool) {
        Check::new(self.text, self.findings, main).run(node, shape, key);
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

    pub(crate) fn secret(&self, node: &Node<'_>, folders: &Folders<'_>) -> Option<Secret> {
        Secret::new(node.as_str()?, self.mark(node.span), folders)
    }
}
