//! The arguments that a condition mentions: what a refusal echoes, and what it reports as missing.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue, operators};
use serde_json::Value;

/// An argument by its path: `args.from.name` is `["from", "name"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    path: Box<[Box<str>]>,
    /// Only inside `has(…)`, where a missing argument is an answer and not a failure.
    tested: bool,
}

impl Mention {
    /// All arguments that an expression mentions by name, in order, each once.
    pub(crate) fn all(expression: &IdedExpr) -> Box<[Mention]> {
        let mut found = Vec::new();
        walk(expression, &mut found);
        found.into()
    }

    /// The path with dots: `from.name`.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }

    /// The last part of the path: the key under which the value is found.
    pub(crate) fn key(&self) -> &str {
        self.path.last().map_or("", |key| key)
    }

    /// The value in a call's arguments.
    pub(crate) fn value<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, key| value.get(&**key))
    }

    /// Whether the expression fails without this argument, and the arguments lack it.
    pub(crate) fn is_missing(&self, arguments: &Value) -> bool {
        !self.tested && self.value(arguments).is_none()
    }
}

fn walk(node: &IdedExpr, found: &mut Vec<Mention>) {
    let mention = match &node.expr {
        Expr::Select(select) if select.test => path(&select.operand).map(|mut path| {
            path.push(select.field.as_str().into());
            (path, true)
        }),
        _ => path(node).map(|path| (path, false)),
    };
    if let Some((path, tested)) = mention.filter(|(path, _)| !path.is_empty()) {
        return add(Mention { path: path.into(), tested }, found);
    }
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).for_each(|part| walk(part, found));
        }
        Expr::List(list) => list.elements.iter().for_each(|part| walk(part, found)),
        Expr::Select(select) => walk(&select.operand, found),
        Expr::Map(map) => walk_entries(&map.entries, found),
        Expr::Struct(message) => walk_entries(&message.entries, found),
        Expr::Comprehension(one) => {
            for part in
                [&one.iter_range, &one.accu_init, &one.loop_cond, &one.loop_step, &one.result]
            {
                walk(part, found);
            }
        }
    }
}

fn walk_entries(entries: &[IdedEntryExpr], found: &mut Vec<Mention>) {
    for entry in entries {
        match &entry.expr {
            EntryExpr::StructField(field) => walk(&field.value, found),
            EntryExpr::MapEntry(member) => {
                walk(&member.key, found);
                walk(&member.value, found);
            }
        }
    }
}

fn add(mention: Mention, found: &mut Vec<Mention>) {
    match found.iter_mut().find(|known| known.path == mention.path) {
        Some(known) => known.tested &= mention.tested,
        None => found.push(mention),
    }
}

/// The path that a node reads from `args`; empty for `args` itself.
fn path(node: &IdedExpr) -> Option<Vec<Box<str>>> {
    match &node.expr {
        Expr::Ident(name) if name.trim_start_matches('.') == "args" => Some(Vec::new()),
        Expr::Select(select) if !select.test => {
            let mut path = path(&select.operand)?;
            path.push(select.field.as_str().into());
            Some(path)
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [operand, key] = call.args.as_slice() else { return None };
            let Expr::Literal(LiteralValue::String(key)) = &key.expr else { return None };
            let mut path = path(operand)?;
            path.push(key.inner().into());
            Some(path)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::condition::Condition;

    fn names(condition: &str) -> Vec<String> {
        Condition::new(condition).unwrap().mentions().iter().map(|one| one.name()).collect()
    }

    #[test]
    fn arguments_are_found_wherever_a_condition_names_them() {
        assert_eq!(names(r#"args.path.startsWith("drafts/")"#), ["path"]);
        assert_eq!(
            names(r#"args["path"] == "a" && args.from.name != args.path"#),
            ["path", "from.name"]
        );
        assert_eq!(names("args.list.all(x, x < args.most)"), ["list", "most"]);
        assert_eq!(names("!has(args.force) || args.force == false"), ["force"]);
        assert_eq!(names("size(args) < 3 && action == 'go'"), Vec::<String>::new());
    }

    #[test]
    fn an_argument_that_is_only_tested_is_never_missing() {
        let tested = Condition::new("!has(args.force)").unwrap();
        assert!(!tested.mentions()[0].is_missing(&json!({})));
        let read = Condition::new("has(args.a) && args.a.b == 1").unwrap();
        let missing: Vec<bool> =
            read.mentions().iter().map(|one| one.is_missing(&json!({"a": {}}))).collect();
        assert_eq!(missing, [false, true]);
    }
}
