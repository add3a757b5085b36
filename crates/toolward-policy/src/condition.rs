//! `when`: a CEL expression on an entry.
//!
//! An expression is checked at load (syntax, unknown variables, unknown functions) and evaluated
//! only when its entry is reached. It has three outcomes: true, false, and "failed to evaluate",
//! which never allows.

use std::sync::{Arc, LazyLock, OnceLock};

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue};
use cel::common::types::CelString;
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Env, IdedExpr, Program, Value};
use serde_json::Value as Json;

use crate::argument_path::ArgumentReads;
use crate::call::{Arguments, Caller};
use crate::exactness::NumbersRead;
use crate::hints::Hints;
use crate::mention::Mention;
use crate::scope::{self, RequiredScopes};

/// The variables that an expression may read.
pub const VARIABLES: [&str; 9] =
    ["args", "agent", "server", "tool", "action", "hints", "claims", "scopes", "definition"];

/// The functions that an expression may call, in addition to operators and the macros `has`, `all`,
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

/// Type names, for `type(args.n) == int`.
const TYPES: [&str; 9] =
    ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"];

static ENV: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(false)));

/// The maximum length of an expression in characters, and the maximum depth of its tree. The parser
/// and the evaluator recurse, and a file must not be able to crash the program.
const LONGEST: usize = 2000;
const DEEPEST: usize = 48;
/// Parsing the longest expression needs a fraction of this stack, even in a debug build.
const PARSER_STACK: usize = 64 << 20;
/// An expression that loops over more argument values than this fails to evaluate: a caller must
/// not control how long a decision takes.
const MOST_LOOPED: usize = 2000;

/// A checked expression.
#[derive(Debug)]
pub struct Condition {
    program: Program,
    source: Box<str>,
    reads: Reads,
    loops: bool,
    /// It reads only `args` and `action`, which the caller chose itself.
    reads_call_alone: bool,
    mentions: Box<[Mention]>,
    numbers: NumbersRead,
    /// The entry's `scope`, which is a part of the condition.
    scopes: Option<RequiredScopes>,
}

/// Which variables that are unknown during listing an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    pub args: bool,
    pub action: bool,
    /// Known during listing, but not to everyone who queries on behalf of an agent.
    pub claims: bool,
    /// Known if the server's list is.
    pub definition: bool,
}

impl Reads {
    /// The union of two expressions' reads.
    pub(crate) fn or(self, other: Reads) -> Reads {
        Reads {
            args: self.args || other.args,
            action: self.action || other.action,
            claims: self.claims || other.claims,
            definition: self.definition || other.definition,
        }
    }
}

/// Why an expression is rejected at load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionError {
    /// The parser's message, and the offset in characters where it stopped.
    Syntax {
        message: String,
        at: usize,
    },
    UnknownVariable(String),
    UnknownFunction(String),
    /// It is too long or nests too deeply.
    TooComplex,
    /// `all`, `exists`, `map` or `filter` inside another one.
    NestedLoops,
    /// It has the same value for every call, and that value is not a boolean.
    NotACondition(String),
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
            Self::TooComplex => write!(
                f,
                "the condition is longer than {LONGEST} characters or nests deeper than {DEEPEST} \
                    levels"
            ),
            Self::NestedLoops => {
                write!(
                    f,
                    "the condition has a loop (`all`, `exists`, `map`, `filter`) inside \
                    another loop"
                )
            }
            Self::NotACondition(why) => write!(f, "the condition is never true or false: it {why}"),
        }
    }
}

/// The values that an expression can read.
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
        if source.chars().count() > LONGEST {
            return Err(ConditionError::TooComplex);
        }
        let program = parse(source)?;
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
        let reads = Reads {
            args: reads("args"),
            action: reads("action"),
            claims: reads("claims") || reads("scopes"),
            definition: reads("definition"),
        };
        if names.nested_loops {
            return Err(ConditionError::NestedLoops);
        }
        for regex in &names.regexes {
            let literal = serde_json::Value::from(regex.as_str()).to_string();
            check_constant(&parse(&format!("''.matches({literal})"))?)?;
        }
        if names.variables.is_empty() {
            check_constant(&program)?;
        }
        let of_arguments = ArgumentReads::of(program.expression());
        let of_call = |name: &String| ["args", "action"].contains(&name.as_str());
        let of_type = |name: &String| TYPES.contains(&name.as_str());
        Ok(Condition {
            reads_call_alone: names.variables.iter().all(|name| of_call(name) || of_type(name)),
            mentions: Mention::all(&of_arguments),
            numbers: NumbersRead::of(&of_arguments),
            program,
            source: source.into(),
            reads,
            loops: names.loops > 0,
            scopes: None,
        })
    }

    /// The condition of an entry with `when` and `scope`; `None` if it has neither.
    pub(crate) fn of_entry(
        when: Option<&str>,
        scopes: Option<RequiredScopes>,
    ) -> Result<Option<Condition>, ConditionError> {
        // An error in `when` is located in its own text.
        let own = when.map(Condition::new).transpose()?;
        let Some(scopes) = scopes else { return Ok(own) };
        let condition = Condition::new(&scopes.as_condition(when))?;
        Ok(Some(Condition { scopes: Some(scopes), ..condition }))
    }

    /// The entry's `scope`.
    pub(crate) fn scopes(&self) -> Option<&RequiredScopes> {
        self.scopes.as_ref()
    }

    /// Whether a listing leaves the outcome open: it depends on arguments, on an action that is not known,
    /// or on scopes that the caller could still ask for.
    pub(crate) fn is_open_in_listing(&self, caller: Caller<'_>, has_action: bool) -> bool {
        let lacks = |scopes: &RequiredScopes| !scopes.held_by(caller);
        self.reads.args
            || (self.reads.action && !has_action)
            || self.scopes.as_ref().is_some_and(lacks)
    }

    /// The outcome for a caller that has all scopes which the entry requires.
    pub(crate) fn holds_with_scopes(&self, facts: &Facts<'_>) -> Result<bool, String> {
        let Some(scopes) = self.scopes.as_ref().filter(|one| !one.held_by(facts.caller)) else {
            return self.holds(facts);
        };
        let mut claims = facts.caller.claims.cloned().unwrap_or_default();
        let mut all = scope::granted(facts.caller.claims);
        all.extend(scopes.iter());
        let all = all.join(" ");
        claims.insert("scope".into(), all.into());
        let caller = Caller { claims: Some(&claims), ..facts.caller };
        self.holds(&Facts { caller, ..*facts })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// Whether it reads only `args` and `action`: then its text may be shown to a caller.
    pub fn reads_call_alone(&self) -> bool {
        self.reads_call_alone
    }

    pub(crate) fn expression(&self) -> &IdedExpr {
        self.program.expression()
    }

    /// The arguments that it mentions by name.
    pub(crate) fn mentions(&self) -> &[Mention] {
        &self.mentions
    }

    /// Evaluates to true, false, or the reason why evaluation failed.
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> Result<bool, String> {
        let scope = Scope::new(facts);
        if self.loops
            && let Some(arguments) = facts.arguments
            && count(&arguments.to_json()) > MOST_LOOPED
        {
            return Err(format!("loops over more than {MOST_LOOPED} values"));
        }
        if let Some(arguments) = facts.arguments {
            self.numbers.check(arguments)?;
        }
        let mut context = Context::with_env(ENV.clone());
        context.set_variable_resolver(&scope);
        truth(self.program.execute(&context))
    }
}

fn truth(result: cel::ResolveResult) -> Result<bool, String> {
    match result {
        Ok(Value::Bool(answer)) => Ok(answer),
        Ok(other) => Err(format!("evaluates to {} instead of true or false", other.type_of())),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses on a separate stack, because the parser recurses. A tree that is too deep is also dropped
/// there.
pub(crate) fn parse(source: &str) -> Result<Program, ConditionError> {
    let parse = || {
        let program = ENV.compile(source).map_err(|errors| syntax_error(source, &errors))?;
        match depth(program.expression()) > DEEPEST {
            true => Err(ConditionError::TooComplex),
            false => Ok(program),
        }
    };
    let failed = || ConditionError::Syntax { message: "it could not be parsed".into(), at: 0 };
    std::thread::scope(|scope| {
        let parser =
            std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, parse);
        match parser.map(|parser| parser.join()) {
            Ok(Ok(parsed)) => parsed,
            _ => Err(failed()),
        }
    })
}

/// The nesting depth of an expression.
fn depth(node: &IdedExpr) -> usize {
    let deepest = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(depth).max().unwrap_or(0);
    let entries = |entries: &[IdedEntryExpr]| {
        let depth_of = |entry: &IdedEntryExpr| match &entry.expr {
            EntryExpr::StructField(field) => depth(&field.value),
            EntryExpr::MapEntry(member) => depth(&member.key).max(depth(&member.value)),
        };
        entries.iter().map(depth_of).max().unwrap_or(0)
    };
    1 + match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Call(call) => deepest(&mut call.target.as_deref().into_iter().chain(&call.args)),
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Select(select) => depth(&select.operand),
        Expr::Map(map) => entries(&map.entries),
        Expr::Struct(message) => entries(&message.entries),
        Expr::Comprehension(one) => deepest(
            &mut [&one.iter_range, &one.accu_init, &one.loop_cond, &one.loop_step, &one.result]
                .into_iter(),
        ),
    }
}

/// A constant expression must be a boolean.
fn check_constant(program: &Program) -> Result<(), ConditionError> {
    let context = Context::with_env(ENV.clone());
    truth(program.execute(&context)).map(|_| ()).map_err(ConditionError::NotACondition)
}

fn count(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Json::Object(members) => 1 + members.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

fn is_function(name: &str) -> bool {
    // Operators are spelled with punctuation: `_&&_`, `!_`, `@in`, `_?_:_`.
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
    // The parser lists every token it would have accepted, which does not help.
    let words = first.msg.trim_start_matches("Syntax error: ");
    let words = words.split(" expecting ").next().unwrap_or(words);
    let message = if words.contains("<EOF>") || at >= source.chars().count() {
        "unexpected end of the expression".into()
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
    /// Literal patterns that are passed to `matches`.
    regexes: Vec<String>,
    loops: usize,
    nested_loops: bool,
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
                if call.func_name == "matches"
                    && let Some(Expr::Literal(LiteralValue::String(regex))) =
                        call.args.last().map(|argument| &argument.expr)
                {
                    self.regexes.push(regex.inner().to_string());
                }
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
                // The accumulator of a loop is bound in its body and nowhere else.
                self.nested_loops |= bound[..depth].contains(&comprehension.accu_var);
                self.loops += 1;
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

/// The variables of one evaluation. Each is created at most once, when an expression reads it: most
/// calls never convert their arguments to CEL values.
struct Scope<'a> {
    facts: &'a Facts<'a>,
    args: OnceLock<Option<Box<dyn Val>>>,
    claims: OnceLock<Option<Box<dyn Val>>>,
    definition: OnceLock<Option<Box<dyn Val>>>,
}

impl<'a> Scope<'a> {
    fn new(facts: &'a Facts<'a>) -> Scope<'a> {
        Scope { facts, args: OnceLock::new(), claims: OnceLock::new(), definition: OnceLock::new() }
    }
}

impl VariableResolver for Scope<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let facts = self.facts;
        let text = |text: &'b str| Some(CowVal::owned(CelString::from(text)));
        let empty = || Json::Object(Default::default());
        match variable {
            "server" => text(facts.server),
            "tool" => text(facts.tool),
            "agent" => facts.caller.agent.map_or_else(|| owned(Value::Null), text),
            "action" => facts.action.map_or_else(|| owned(Value::Null), text),
            "hints" => owned(Value::from(facts.hints.iter().map(String::from).collect::<Vec<_>>())),
            "args" => kept(&self.args, || facts.arguments.map_or_else(empty, |a| a.to_json())),
            "claims" => kept(&self.claims, || match facts.caller.claims {
                Some(claims) => Json::Object(claims.clone()),
                None => empty(),
            }),
            "scopes" => {
                let scopes = scope::granted(facts.caller.claims).into_iter().map(String::from);
                owned(Value::from(scopes.collect::<Vec<_>>()))
            }
            "definition" => kept(&self.definition, || {
                serde_json::from_str(facts.definition).unwrap_or(Json::Null)
            }),
            _ => None,
        }
    }
}

fn kept<'b>(
    cell: &'b OnceLock<Option<Box<dyn Val>>>,
    make: impl FnOnce() -> Json,
) -> Option<CowVal<'b, 'b>> {
    let value = cell.get_or_init(|| from_json(make()).try_into().ok());
    value.as_ref().map(|value| CowVal::Borrowed(value.as_ref()))
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
