//! `tests:` of a policy: expected verdicts for sample calls.

use toolward_policy::Family;
use toolward_policy::testing::{
    Expect, NeverCall, NeverTest, PolicyTest, TestArguments, TestCase, WrittenNumber,
};

use super::hint_names;
use crate::diagnostics::sanitize::quoted;
use crate::read::json;
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;

pub(crate) fn read(reader: &mut Reader<'_>, root: &Node<'_>) -> Vec<PolicyTest> {
    let items = root.get("tests").map(Node::items).unwrap_or_default();
    let mut tests = Vec::new();
    for item in items {
        let mut cases = Vec::new();
        for expect in [Expect::Allow, Expect::Deny, Expect::Ask, Expect::Hidden] {
            let calls = item.get(expect.as_str()).map(Node::items).unwrap_or_default();
            let scope = item.get("scope").and_then(Node::as_str);
            cases.extend(calls.iter().filter_map(|call| case(reader, call, expect, scope)));
        }
        let about_caller = |name: &str| name == "as" || name == "scope";
        if item.as_map().is_some_and(|map| map.iter().all(|(key, _)| about_caller(&key.name))) {
            reader.warning(
                item.span,
                "the test has no expectations",
                "add `allow`, `deny`, `ask`, `hidden` or `never`",
            );
        }
        let agent = item.get("as").and_then(Node::as_str).map(str::to_owned);
        let never = item.get("never").map(|never| never_test(reader, never));
        tests.push(PolicyTest { agent, cases, never });
    }
    tests
}

fn never_test(reader: &mut Reader<'_>, node: &Node<'_>) -> NeverTest {
    let calls = node.get("calls").map(Node::items).unwrap_or_default();
    NeverTest {
        agents: node.get("as").and_then(Node::as_str).map(str::to_owned),
        calls: calls.iter().filter_map(|call| never_call(reader, call)).collect(),
        unless_ask: node.get("unless").and_then(Node::as_str) == Some("ask"),
    }
}

fn never_call(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<NeverCall> {
    let written = node.as_str().filter(|written| !written.is_empty())?;
    let (family, _, name) = family(written);
    let Some((server, selector)) = server_and_name(name) else {
        let message = format!("{} does not name a server and tools", quoted(written));
        reader.error(node.span, message, NEVER_HELP);
        return None;
    };
    if selector.contains(char::is_whitespace) {
        let message = format!("{} has arguments, but `never` covers every call", quoted(written));
        reader.error(node.span, message, "leave them out, or write a test with `deny`");
        return None;
    }
    if family != Family::Tools && selector.starts_with("hint:") {
        let message = format!("{} has a hint, but only tools have hints", quoted(written));
        reader.error(node.span, message, NEVER_HELP);
        return None;
    }
    hint_names::check_selector(reader, selector, node.span);
    Some(NeverCall {
        family,
        server: server.to_owned(),
        selector: selector.to_owned(),
        written: written.to_owned(),
        place: reader.mark(node.span).place(),
    })
}

const NEVER_HELP: &str = "write `server/selector`, such as `tracker/delete_*` or `*/hint:destructive`, \
                          `prompt:server/name`, or `resource:server/uri`; each may be a pattern";

/// The family of a test's subject, its name in a sentence, and the rest of the text.
fn family(written: &str) -> (Family, &'static str, &str) {
    match written.split_once(':') {
        Some(("prompt", name)) => (Family::Prompts, "prompt", name),
        Some(("resource", name)) => (Family::Resources, "resource", name),
        _ => (Family::Tools, "tool", written),
    }
}

fn server_and_name(text: &str) -> Option<(&str, &str)> {
    text.split_once('/').filter(|(server, name)| !server.is_empty() && !name.is_empty())
}

fn case(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    expect: Expect,
    scope: Option<&str>,
) -> Option<TestCase> {
    let written = node.as_str()?;
    let (name, arguments) = match written.split_once(char::is_whitespace) {
        Some((name, arguments)) => (name, Some(arguments.trim())),
        None => (written, None),
    };
    let (family, noun, name) = family(name);
    let Some((server, name)) = server_and_name(name) else {
        if !written.is_empty() {
            let message = format!("{} does not name a server and a {noun}", quoted(written));
            let help = match family {
                Family::Tools => "write `server/tool`, or `server/tool {\"argument\": \"value\"}`",
                Family::Prompts => "write `prompt:server/name`",
                Family::Resources => "write `resource:server/uri`",
            };
            reader.error(node.span, message, help);
        }
        return None;
    };
    let arguments = match arguments.map(|text| (text, json::parse(text))) {
        None => None,
        Some((text, Ok(arguments))) if arguments.as_map().is_some() => {
            let members = arguments.to_json().as_object().cloned().unwrap_or_default();
            let mut numbers = Vec::new();
            written_numbers(&arguments, text, &mut Vec::new(), &mut numbers);
            Some(TestArguments { members, numbers })
        }
        Some((_, Ok(arguments))) => {
            let message = format!("the arguments of the call are {}", arguments.kind());
            reader.error(node.span, message, "the name must be followed by one JSON object");
            return None;
        }
        Some((_, Err(fault))) => {
            let message = format!("the arguments of the call are not JSON: {}", fault.message);
            reader.error(node.span, message, "the name must be followed by one JSON object");
            return None;
        }
    };
    Some(TestCase {
        expect,
        family,
        server: server.to_owned(),
        name: name.to_owned(),
        arguments,
        scope: scope.map(str::to_owned),
        written: written.to_owned(),
        place: reader.mark(node.span).place(),
    })
}

/// The numbers in a JSON text, as written.
fn written_numbers(
    node: &Node<'_>,
    text: &str,
    path: &mut Vec<Option<Box<str>>>,
    numbers: &mut Vec<WrittenNumber>,
) {
    match &node.value {
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
            let written = text.get(node.span.start as usize..node.span.end as usize);
            let text = written.unwrap_or_default().into();
            numbers.push(WrittenNumber { path: path.clone(), text });
        }
        Value::Seq(items) => {
            path.push(None);
            items.iter().for_each(|item| written_numbers(item, text, path, numbers));
            path.pop();
        }
        Value::Map(map) => {
            for (key, value) in map.iter() {
                path.push(Some(key.name.as_ref().into()));
                written_numbers(value, text, path, numbers);
                path.pop();
            }
        }
        _ => {}
    }
}
