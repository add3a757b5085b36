//! The arguments that an expression reads.
//!
//! One walk over the expression has two users: [`crate::mention`] names arguments in refusals, and
//! [`crate::exactness`] checks the numbers below them.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue, operators};

/// The arguments that an expression reads, in source order.
#[derive(Debug, Default)]
pub(crate) struct ArgumentReads {
    pub(crate) paths: Vec<ArgumentPath>,
    /// The expression contains doubles, so integers are compared as doubles.
    pub(crate) has_doubles: bool,
}

/// The keys by which an expression reads one argument: `args.a["b"]` is `[a, b]`, and `args` alone the
/// empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentPath {
    pub(crate) keys: Box<[Box<str>]>,
    /// Inside `has(…)`.
    pub(crate) tested: bool,
}

impl ArgumentReads {
    pub(crate) fn of(expression: &IdedExpr) -> ArgumentReads {
        let mut reads = ArgumentReads::default();
        reads.walk(expression, &mut Vec::new());
        reads
    }

    fn walk(&mut self, node: &IdedExpr, bound: &mut Vec<String>) {
        if let Some(keys) = keys(node, bound) {
            let tested = matches!(&node.expr, Expr::Select(select) if select.test);
            self.paths.push(ArgumentPath { keys: keys.into(), tested });
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

/// The keys of a node that is `args` or a member of it. `bound` are the variables of loops, which can
/// hide `args`.
fn keys(node: &IdedExpr, bound: &[String]) -> Option<Vec<Box<str>>> {
    let below = |of: &IdedExpr, key: &str| {
        let mut path = keys(of, bound)?;
        path.push(key.into());
        Some(path)
    };
    match &node.expr {
        // A leading dot means the outermost scope.
        Expr::Ident(name) if name == ".args" => Some(Vec::new()),
        Expr::Ident(name) if name == "args" && !bound.contains(name) => Some(Vec::new()),
        Expr::Select(select) => below(&select.operand, &select.field),
        Expr::Call(call) if call.func_name == operators::INDEX => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::parse;

    fn paths(source: &str) -> Vec<String> {
        let reads = ArgumentReads::of(parse(source).unwrap().expression());
        let text = |path: &ArgumentPath| {
            format!("{}{}", path.keys.join("."), if path.tested { "?" } else { "" })
        };
        reads.paths.iter().map(text).collect()
    }

    #[test]
    fn paths_are_found_in_every_form() {
        assert_eq!(paths(r#"args.a["b"].c == .args["d"]"#), ["a.b.c", "d"]);
        assert_eq!(paths("has(args.a.b) && args.a.b > 1"), ["a.b?", "a.b"]);
        assert_eq!(paths("size(args) < 3 && args[action] == 1"), ["", ""]);
        assert_eq!(paths("args.list[0] == args.list[args.n]"), ["list", "list", "n"]);
    }

    #[test]
    fn a_variable_of_a_loop_hides_the_arguments() {
        assert_eq!(paths("args.list.all(args, args.x == 1)"), ["list"]);
        assert_eq!(paths("args.list.all(args, .args.x == 1)"), ["list", "x"]);
        assert_eq!(paths("args.list.all(x, x < args.most)"), ["list", "most"]);
    }
}
