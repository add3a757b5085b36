//! Which numbers of a call a condition reads, and whether it can decide on them: see [`crate::number`].

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue};

use crate::call::Arguments;
use crate::number::Precision;
use crate::refusal::cut;

/// So much of a number is repeated in a message.
const LONGEST_NUMBER: usize = 40;
/// How the parser calls `a[b]`.
const INDEX: &str = "_[_]";

/// The arguments that an expression reads, by the keys that are written in it.
#[derive(Debug, Default)]
pub(crate) struct NumbersRead {
    /// Paths of keys; each stands for everything below it, and the empty one for all arguments.
    paths: Vec<Vec<Box<str>>>,
    /// The expression has doubles of its own, with which integers are compared as doubles.
    has_doubles: bool,
}

impl NumbersRead {
    pub(crate) fn of(expression: &IdedExpr) -> NumbersRead {
        let mut found = NumbersRead::default();
        found.walk(expression, &mut Vec::new());
        found
    }

    /// Fails on a number that the server may read more precisely than the condition evaluates it.
    pub(crate) fn check(&self, arguments: &dyn Arguments) -> Result<(), String> {
        let (mut inexact, mut wide, mut doubles) = (None, None, self.has_doubles);
        for path in &self.paths {
            arguments.numbers(path, &mut |text| match Precision::of(text) {
                Precision::Integer => {}
                Precision::Double => doubles = true,
                Precision::WideInteger => drop(wide.get_or_insert_with(|| shown(text))),
                Precision::Inexact => drop(inexact.get_or_insert_with(|| shown(text))),
            });
        }
        match inexact.or(wide.filter(|_| doubles)) {
            Some(number) => Err(format!("reads {number}, which cannot be compared exactly")),
            None => Ok(()),
        }
    }

    fn walk(&mut self, node: &IdedExpr, bound: &mut Vec<String>) {
        if let Some(path) = argument_path(node, bound) {
            self.paths.push(path);
            return;
        }
        match &node.expr {
            Expr::Literal(LiteralValue::Double(_)) => self.has_doubles = true,
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Call(call) => {
                self.has_doubles |= call.func_name == "double";
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(part, bound);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|part| self.walk(part, bound)),
            Expr::Select(select) => self.walk(&select.operand, bound),
            Expr::Map(map) => self.walk_entries(&map.entries, bound),
            Expr::Struct(message) => self.walk_entries(&message.entries, bound),
            Expr::Comprehension(comprehension) => {
                self.walk(&comprehension.iter_range, bound);
                self.walk(&comprehension.accu_init, bound);
                let depth = bound.len();
                bound.push(comprehension.accu_var.clone());
                bound.push(comprehension.iter_var.clone());
                bound.extend(comprehension.iter_var2.clone());
                self.walk(&comprehension.loop_cond, bound);
                self.walk(&comprehension.loop_step, bound);
                self.walk(&comprehension.result, bound);
                bound.truncate(depth);
            }
        }
    }

    fn walk_entries(&mut self, entries: &[IdedEntryExpr], bound: &mut Vec<String>) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => self.walk(&field.value, bound),
                EntryExpr::MapEntry(member) => {
                    self.walk(&member.key, bound);
                    self.walk(&member.value, bound);
                }
            }
        }
    }
}

/// The keys by which an expression reads one argument: `args.a["b"]` is `[a, b]`, `args` the empty path.
fn argument_path(node: &IdedExpr, bound: &[String]) -> Option<Vec<Box<str>>> {
    let below = |of: &IdedExpr, key: &str| {
        let mut path = argument_path(of, bound)?;
        path.push(key.into());
        Some(path)
    };
    match &node.expr {
        // A leading dot means the outermost scope.
        Expr::Ident(name) if name == ".args" => Some(Vec::new()),
        Expr::Ident(name) if name == "args" && !bound.contains(name) => Some(Vec::new()),
        Expr::Select(select) => below(&select.operand, &select.field),
        Expr::Call(call) if call.func_name == INDEX => {
            let mut parts = call.target.as_deref().into_iter().chain(&call.args);
            let (of, key) = (parts.next()?, parts.next()?);
            match &key.expr {
                Expr::Literal(LiteralValue::String(key)) => below(of, key.inner()),
                _ => None,
            }
        }
        _ => None,
    }
}

fn shown(number: &str) -> String {
    cut(number, LONGEST_NUMBER).into_owned()
}
