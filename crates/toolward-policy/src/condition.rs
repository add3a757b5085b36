//! `when`: a CEL expression on an entry.
//!
//! An expression is checked at load (syntax, unknown variables, unknown functions) and evaluated
//! only when its entry is reached. It has three outcomes: true, false, and "failed to evaluate",
//! which never allows.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr};
use cel::common::types::CelString;
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Env, IdedExpr, Program, Value};
use serde_json::Value as Json;

use crate::call::{Arguments, Caller};
use crate::hints::Hints;

/// The variables that an expression may read.
pub const VARIABLES: [&str; 8] =
    ["args", "agent", "server", "tool", "action", "hints", "claims", "definition"];

/// The functions that an expression may call, beside operators and the macros `has`, `all`,
/// `exists`, `exists_one`, `map` and `filter`.
pub const FUNCTIONS: [&str; 12] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "type",
    "dyn",
];

/// Names of types, for `type(args.n) == int`.
const TYPES: [&str; 9] =
    ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"];

static ENV: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(false)));

/// A checked expression.
#[derive(Debug)]
pub struct Condition {
    program: Program,
    source: Box<str>,
    reads: Reads,
}

/// Which of the variables that are not known while listing an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    pub args: bool,
    pub action: bool,
}

/// Why an expression is refused at load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionError {
    /// The parser's words, and the offset in characters where it stopped.
    Syntax {
        message: String,
        at: usize,
    },
    UnknownVariable(String),
    UnknownFunction(String),
}

impl std::fmt::Display for ConditionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax { message, .. } => write!(f, "the condition is not valid CEL: {message}"),
            Self::UnknownVariable(name) => {
                write!(f, "the condition reads `{name}`, which is not a variable here")
            }
            Self::UnknownFunction(name) => {
                write!(f, "the condition calls `{name}`, which is not a function here")
            }
        }
    }
}

/// What an expression can see.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) server: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) action: Option<&'a str>,
    pub(crate) arguments: Option<&'a dyn Arguments>,
    pub(crate) hints: &'a Hints,
    pub(crate) definition: &'a str,
}

impl Condition {
    pub fn new(source: &str) -> Result<Condition, ConditionError> {
        let program = ENV.compile(source).map_err(|errors| syntax_error(source, &errors))?;
        let mut names = Names::default();
        names.walk(program.expression(), &mut Vec::new());
        let known = |name: &str| VARIABLES.contains(&name) || TYPES.contains(&name);
        if let Some(name) = names.variables.iter().find(|name| !known(name)) {
            return Err(ConditionError::UnknownVariable(name.clone()));
        }
        if let Some(name) = names.functions.iter().find(|name| !is_function(name)) {
            return Err(ConditionError::UnknownFunction(name.clone()));
        }
        let reads = |name: &str| names.variables.iter().any(|own| own == name);
        let reads = Reads { args: reads("args"), action: reads("action") };
        Ok(Condition { program, source: source.into(), reads })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// True, false, or why the expression has no answer.
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> Result<bool, String> {
        let mut context = Context::with_env(ENV.clone());
        context.set_variable_resolver(facts);
        match self.program.execute(&context) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("gives {} instead of true or false", other.type_of())),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_function(name: &str) -> bool {
    // Operators are spelled with signs: `_&&_`, `!_`, `@in`, `_?_:_`.
    FUNCTIONS.contains(&name) || !name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn syntax_error(source: &str, errors: &cel::ParseErrors) -> ConditionError {
    let Some(first) = errors.errors.first() else {
        return ConditionError::Syntax { message: errors.to_string(), at: 0 };
    };
    let (line, column) = (first.pos.0.max(1) as usize, first.pos.1.max(1) as usize);
    let before: usize =
        source.split_inclusive('\n').take(line - 1).map(|line| line.chars().count()).sum();
    let at = (before + column - 1).min(source.chars().count());
    // The parser lists every token it would have taken, which helps nobody.
    let words = first.msg.trim_start_matches("Syntax error: ");
    let words = words.split(" expecting ").next().unwrap_or(words);
    let message = if words.contains("<EOF>") || at >= source.chars().count() {
        "it ends where something more is expected".into()
    } else {
        words.to_lowercase()
    };
    ConditionError::Syntax { message, at }
}

/// Free variables and called functions of an expression.
#[derive(Default)]
struct Names {
    variables: Vec<String>,
    functions: Vec<String>,
}

impl Names {
    fn walk(&mut self, node: &IdedExpr, bound: &mut Vec<String>) {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                // A leading dot means the outermost scope.
                let plain = name.strip_prefix('.');
                if plain.is_some() || !bound.contains(name) {
                    self.variables.push(plain.unwrap_or(name).into());
                }
            }
            Expr::Call(call) => {
                self.functions.push(call.func_name.clone());
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(part, bound);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|part| self.walk(part, bound)),
            Expr::Select(select) => self.walk(&select.operand, bound),
            Expr::Map(map) => self.walk_entries(&map.entries, bound),
            // No struct type is declared, so its name can only be a mistake.
            Expr::Struct(message) => {
                self.functions.push(message.type_name.clone());
                self.walk_entries(&message.entries, bound);
            }
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

    fn walk_entries(
        &mut self,
        entries: &[cel::common::ast::IdedEntryExpr],
        bound: &mut Vec<String>,
    ) {
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

/// Variables are made when an expression reads them: most calls never turn their arguments into
/// CEL values.
impl VariableResolver for Facts<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let text = |text: &'b str| Some(CowVal::owned(CelString::from(text)));
        match variable {
            "server" => text(self.server),
            "tool" => text(self.tool),
            "agent" => self.caller.agent.map_or_else(|| owned(Value::Null), text),
            "action" => self.action.map_or_else(|| owned(Value::Null), text),
            "hints" => owned(Value::from(self.hints.iter().map(String::from).collect::<Vec<_>>())),
            "args" => owned(match self.arguments {
                Some(arguments) => from_json(arguments.to_json()),
                None => from_json(Json::Object(Default::default())),
            }),
            "claims" => owned(from_json(match self.caller.claims {
                Some(claims) => Json::Object(claims.clone()),
                None => Json::Object(Default::default()),
            })),
            "definition" => {
                owned(from_json(serde_json::from_str(self.definition).unwrap_or(Json::Null)))
            }
            _ => None,
        }
    }
}

fn owned<'b>(value: Value) -> Option<CowVal<'b, 'b>> {
    let value: Box<dyn Val> = value.try_into().ok()?;
    Some(CowVal::Owned(value))
}

fn from_json(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::UInt(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Arc::new(text)),
        Json::Array(items) => Value::List(Arc::new(items.into_iter().map(from_json).collect())),
        Json::Object(members) => Value::from(
            members
                .into_iter()
                .map(|(name, value)| (name, from_json(value)))
                .collect::<std::collections::HashMap<String, Value>>(),
        ),
    }
}
