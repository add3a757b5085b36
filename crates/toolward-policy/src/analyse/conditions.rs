//! The inputs of conditions, and arguments that lead to every outcome of them.
//!
//! A condition made of comparisons of single arguments with constants has finitely many outcomes, and the
//! arguments built here reach all of them: a missing argument, each type of value, each class of texts that
//! the comparisons distinguish, each side of every number. The conditions themselves are evaluated by the
//! engine. Any other condition is *free*: it may have any outcome.

use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};
use serde_json::{Map, Value, json};

use crate::argument_path::ArgumentReads;
use crate::automaton::{Automaton, BUDGET, TooLarge};
use crate::condition::Condition;
use crate::testing::{TestArguments, WrittenNumber};

/// At most this many combinations of arguments are tried for one set of conditions.
const MAX_COMBINATIONS: usize = 6000;

/// A number that a condition cannot compare exactly, so that it fails as a whole.
const INEXACT: &str = "100.00000000000000001";

/// The variables whose comparisons with constants are decided, besides arguments.
pub(super) const NAMES: [&str; 4] = ["agent", "server", "tool", "action"];

/// The inputs that one condition reads.
#[derive(Debug, Default)]
pub(super) struct Reading {
    paths: Vec<(Vec<Box<str>>, Constants)>,
    /// By variable, as in [`NAMES`].
    names: [Constants; 4],
    /// It is more than comparisons with constants: any outcome is possible.
    pub(super) free: bool,
}

/// The constants that something is compared with.
#[derive(Debug, Default, Clone)]
pub(super) struct Constants {
    texts: Vec<(TextTest, String)>,
    numbers: Vec<i64>,
    /// Values that a list or a mapping is searched for.
    members: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextTest {
    Equals,
    Starts,
    Ends,
    Contains,
}

/// The left side of a comparison.
enum Operand {
    Argument(Vec<Box<str>>),
    Name(usize),
}

impl Reading {
    pub(super) fn of(condition: &Condition) -> Reading {
        let mut reading = Reading::default();
        let expression = condition.expression();
        reading.free = reading.walk(expression).is_none();
        if reading.free {
            // Its constants are still worth trying.
            for read in
                ArgumentReads::of(expression).paths.iter().filter(|read| !read.keys.is_empty())
            {
                reading.constants(&Operand::Argument(read.keys.to_vec()));
            }
        }
        reading
    }

    /// The constants that a variable is compared with.
    pub(super) fn of_name(&self, name: &str) -> &Constants {
        let at = NAMES.iter().position(|known| *known == name).unwrap_or_default();
        &self.names[at]
    }

    /// The constants that a top-level argument is compared with.
    pub(super) fn of_argument(&self, key: &str) -> Option<&Constants> {
        let is_key = |path: &[Box<str>]| matches!(path, [only] if **only == *key);
        self.paths.iter().find(|(path, _)| is_key(path)).map(|(_, constants)| constants)
    }

    fn constants(&mut self, operand: &Operand) -> &mut Constants {
        match operand {
            Operand::Name(at) => &mut self.names[*at],
            Operand::Argument(path) => {
                let known = self.paths.iter().position(|(known, _)| known == path);
                let at = known.unwrap_or_else(|| {
                    self.paths.push((path.clone(), Constants::default()));
                    self.paths.len() - 1
                });
                &mut self.paths[at].1
            }
        }
    }

    /// `None` if the expression is not made of decidable comparisons.
    fn walk(&mut self, node: &IdedExpr) -> Option<()> {
        match &node.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Some(()),
            Expr::Select(select) if select.test => {
                let path = argument_below(&select.operand, &select.field)?;
                self.constants(&Operand::Argument(path));
                Some(())
            }
            Expr::Call(call) => {
                let parts: Vec<&IdedExpr> =
                    call.target.as_deref().into_iter().chain(&call.args).collect();
                match (call.func_name.as_str(), parts.as_slice()) {
                    (operators::LOGICAL_AND | operators::LOGICAL_OR, [one, other]) => {
                        self.walk(one)?;
                        self.walk(other)
                    }
                    (operators::LOGICAL_NOT, [one]) => self.walk(one),
                    (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => {
                        self.equality(one, other).or_else(|| self.equality(other, one))
                    }
                    (
                        operators::LESS
                        | operators::LESS_EQUALS
                        | operators::GREATER
                        | operators::GREATER_EQUALS,
                        [one, other],
                    ) => self.order(one, other).or_else(|| self.order(other, one)),
                    (operators::IN, [one, other]) => self.membership(one, other),
                    ("startsWith", [one, other]) => self.text(one, other, TextTest::Starts),
                    ("endsWith", [one, other]) => self.text(one, other, TextTest::Ends),
                    ("contains", [one, other]) => self.text(one, other, TextTest::Contains),
                    (operators::INDEX, _) => self.truth(node),
                    _ => None,
                }
            }
            Expr::Select(_) => self.truth(node),
            _ => None,
        }
    }

    /// An argument as a condition of its own.
    fn truth(&mut self, node: &IdedExpr) -> Option<()> {
        let operand = operand(node)?;
        self.constants(&operand);
        Some(())
    }

    fn equality(&mut self, one: &IdedExpr, other: &IdedExpr) -> Option<()> {
        let (operand, constant) = (operand(one)?, constant(other)?);
        self.constants(&operand).equals(constant)
    }

    fn order(&mut self, one: &IdedExpr, other: &IdedExpr) -> Option<()> {
        let (operand, constant) = (operand(one)?, constant(other)?);
        match constant.as_i64() {
            Some(number) => self.constants(&operand).numbers.push(number),
            // Texts are ordered too; that is not decided.
            None => return None,
        }
        Some(())
    }

    fn text(&mut self, one: &IdedExpr, other: &IdedExpr, test: TextTest) -> Option<()> {
        let (operand, constant) = (operand(one)?, constant(other)?);
        let text = constant.as_str()?.to_owned();
        let constants = self.constants(&operand);
        if test == TextTest::Contains {
            constants.members.push(constant);
        }
        constants.texts.push((test, text));
        Some(())
    }

    fn membership(&mut self, one: &IdedExpr, other: &IdedExpr) -> Option<()> {
        if let Expr::List(list) = &other.expr {
            let operand = operand(one)?;
            for element in &list.elements {
                let constant = constant(element)?;
                self.constants(&operand).equals(constant)?;
            }
            return Some(());
        }
        let value = constant(one)?;
        match &other.expr {
            // The hints of a tool are known.
            Expr::Ident(name) if name == "hints" => Some(()),
            _ => {
                let operand = operand(other)?;
                self.constants(&operand).members.push(value);
                Some(())
            }
        }
    }
}

impl Constants {
    fn equals(&mut self, constant: Value) -> Option<()> {
        match constant {
            Value::String(text) => self.texts.push((TextTest::Equals, text)),
            Value::Number(number) => self.numbers.push(number.as_i64()?),
            _ => {}
        }
        Some(())
    }

    /// Adds the classes of texts that the comparisons distinguish.
    pub(super) fn add_to(&self, automaton: &mut Automaton) {
        for (test, text) in &self.texts {
            match test {
                TextTest::Equals => automaton.containing(false, text, false),
                TextTest::Starts => automaton.containing(false, text, true),
                TextTest::Ends => automaton.containing(true, text, false),
                TextTest::Contains => automaton.containing(true, text, true),
            };
        }
    }

    /// Values that lead to every outcome of the comparisons; `None` is a missing argument.
    fn values(&self, more_texts: &[String]) -> Result<Vec<Option<Given>>, TooLarge> {
        let mut texts = Automaton::default();
        self.add_to(&mut texts);
        let mut values: Vec<Value> =
            vec![json!(null), json!(true), json!(false), json!([]), json!({})];
        let mut strings = texts.combinations(BUDGET / 64)?;
        strings.extend_from_slice(more_texts);
        strings.sort();
        strings.dedup();
        values.extend(strings.into_iter().map(Value::from));
        let mut numbers: Vec<i64> = self
            .numbers
            .iter()
            .flat_map(|number| [number.saturating_sub(1), *number, number.saturating_add(1)])
            .collect();
        numbers.push(7);
        numbers.sort_unstable();
        numbers.dedup();
        values.extend(numbers.iter().map(|number| json!(number)));
        for number in self.numbers.iter().map(|number| *number as f64) {
            values.extend([json!(number - 0.5), json!(number), json!(number + 0.5)]);
        }
        if !self.numbers.is_empty() {
            values.push(json!(u64::MAX));
        }
        // Every subset of the members that are looked for.
        for chosen in 1..1_usize << self.members.len().min(3) {
            let is_chosen = |(at, _): &(usize, &Value)| chosen & (1 << at) != 0;
            let members = self.members.iter().enumerate().filter(is_chosen).map(|(_, value)| value);
            let members: Vec<Value> = members.cloned().collect();
            let keyed = members.iter().filter_map(Value::as_str);
            let keyed: Map<String, Value> = keyed.map(|key| (key.into(), json!(1))).collect();
            values.extend([Value::from(members), Value::from(keyed)]);
        }
        let given = values.into_iter().map(|value| Some(Given::Value(value)));
        Ok([None].into_iter().chain(given).chain([Some(Given::Inexact)]).collect())
    }
}

#[derive(Debug, Clone)]
enum Given {
    Value(Value),
    /// A number that has more digits than a condition can compare.
    Inexact,
}

/// Arguments for every outcome of some conditions, and whether they are known to be all.
pub(super) struct Tried {
    pub(super) arguments: Vec<TestArguments>,
    pub(super) complete: bool,
}

/// `texts` are further texts to try under an action key.
pub(super) fn arguments<'r>(
    readings: impl Iterator<Item = &'r Reading>,
    action_keys: &[Box<str>],
    texts: &[String],
) -> Result<Tried, TooLarge> {
    let mut paths: Vec<(&[Box<str>], Constants)> = Vec::new();
    for (path, constants) in readings.flat_map(|reading| &reading.paths) {
        match paths.iter_mut().find(|(known, _)| *known == path.as_slice()) {
            None => paths.push((path, constants.clone())),
            Some((_, known)) => {
                known.texts.extend(constants.texts.iter().cloned());
                known.numbers.extend(&constants.numbers);
                known.members.extend(constants.members.iter().cloned());
            }
        }
    }
    let within =
        |one: &[Box<str>], other: &[Box<str>]| one.len() < other.len() && other.starts_with(one);
    let nested = paths.iter().any(|(one, _)| paths.iter().any(|(other, _)| within(one, other)));
    let many = paths.iter().any(|(_, constants)| constants.members.len() > 3);
    let mut tried = Tried { arguments: vec![TestArguments::default()], complete: !nested && !many };
    for (path, constants) in &paths {
        let more =
            if action_keys.iter().any(|key| path.first() == Some(key)) { texts } else { &[] };
        let values = constants.values(more)?;
        // Something else, or nothing, in each of the mappings that lead to the argument.
        let outer = (1..path.len()).flat_map(|end| [(end, json!("x")), (end, json!({}))]);
        let outer: Vec<(usize, Value)> = outer.collect();
        let choices = values.len() + outer.len();
        if tried.arguments.len() * choices > MAX_COMBINATIONS {
            tried.complete = false;
            break;
        }
        let before = std::mem::take(&mut tried.arguments);
        for arguments in &before {
            for value in &values {
                let mut next = arguments.clone();
                if let Some(value) = value {
                    set(&mut next, path, value);
                }
                tried.arguments.push(next);
            }
            for (end, value) in &outer {
                let mut next = arguments.clone();
                set(&mut next, &path[..*end], &Given::Value(value.clone()));
                tried.arguments.push(next);
            }
        }
    }
    for arguments in &mut tried.arguments {
        let members = std::mem::take(&mut arguments.members);
        let inexact = std::mem::take(&mut arguments.numbers);
        numbers(&members, &mut Vec::new(), &mut arguments.numbers);
        arguments.numbers.retain(|number| !inexact.iter().any(|other| other.path == number.path));
        arguments.numbers.extend(inexact);
        arguments.members = members;
    }
    Ok(tried)
}

/// The numbers in arguments, as written.
fn numbers(
    members: &Map<String, Value>,
    path: &mut Vec<Option<Box<str>>>,
    found: &mut Vec<WrittenNumber>,
) {
    for (key, value) in members {
        path.push(Some(key.as_str().into()));
        match value {
            Value::Number(number) => {
                found.push(WrittenNumber { path: path.clone(), text: number.to_string().into() });
            }
            Value::Object(members) => numbers(members, path, found),
            _ => {}
        }
        path.pop();
    }
}

fn set(arguments: &mut TestArguments, path: &[Box<str>], value: &Given) {
    let Some((last, outer)) = path.split_last() else { return };
    let mut members = &mut arguments.members;
    for key in outer {
        let inner = members.entry(key.to_string()).or_insert_with(|| json!({}));
        if !inner.is_object() {
            *inner = json!({});
        }
        let Some(object) = inner.as_object_mut() else { return };
        members = object;
    }
    match value {
        Given::Value(value) => drop(members.insert(last.to_string(), value.clone())),
        Given::Inexact => {
            members.insert(last.to_string(), json!(100.0));
            let path = path.iter().map(|key| Some(key.clone())).collect();
            arguments.numbers.push(WrittenNumber { path, text: INEXACT.into() });
        }
    }
}

fn operand(node: &IdedExpr) -> Option<Operand> {
    if let Expr::Ident(name) = &node.expr
        && let Some(at) = NAMES.iter().position(|known| known == name)
    {
        return Some(Operand::Name(at));
    }
    let path = argument(node)?;
    (!path.is_empty()).then_some(Operand::Argument(path))
}

fn argument(node: &IdedExpr) -> Option<Vec<Box<str>>> {
    match &node.expr {
        Expr::Ident(name) if name == "args" => Some(Vec::new()),
        Expr::Select(select) if !select.test => argument_below(&select.operand, &select.field),
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let mut parts = call.target.as_deref().into_iter().chain(&call.args);
            let (of, key) = (parts.next()?, parts.next()?);
            argument_below(of, constant(key)?.as_str()?)
        }
        _ => None,
    }
}

fn argument_below(of: &IdedExpr, key: &str) -> Option<Vec<Box<str>>> {
    let mut path = argument(of)?;
    path.push(key.into());
    Some(path)
}

fn constant(node: &IdedExpr) -> Option<Value> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(json!(text.inner())),
        Expr::Literal(LiteralValue::Int(number)) => Some(json!(number.inner())),
        Expr::Literal(LiteralValue::Boolean(value)) => Some(json!(value.inner())),
        Expr::Literal(LiteralValue::Null) => Some(Value::Null),
        Expr::Call(call) if call.func_name == operators::NEGATE => {
            let number = constant(call.args.first()?)?.as_i64()?;
            Some(json!(number.checked_neg()?))
        }
        _ => None,
    }
}
