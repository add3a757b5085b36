//! `toolward decide`: answers one decision request per line.

use std::io::{BufRead, Write};
use std::sync::Arc;

use clap::ArgMatches;
use serde_json::{Map, Value, json};
use toolward_config::node::{Node, Value as NodeValue};
use toolward_config::text::Text;
use toolward_config::{Diagnostic, Inline, json as strict, load_inline};
use toolward_policy::reason::About;
use toolward_policy::scope::claims_with;
use toolward_policy::{
    Annotations, Call, Caller, Decision, Hints, Policy, Step, Subject, Tool, Verdict,
};

use crate::arguments::ArgumentsText;
use crate::cli::{DecideArgs, Kind};
use crate::exit::{self, Failure};
use crate::load::Input;
use crate::reads::Reads;

pub(crate) fn run(mut args: DecideArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    args.policy.whole_configurations = true;
    let mut decider = Decider { args, matches, base: None, inline: None };
    // Files given by flags are checked at once; default files only when a line needs them.
    let named = &decider.args.policy;
    if named.config.is_some() || !named.policy.is_empty() || !named.allowlist_config.is_empty() {
        decider.base()?;
    }
    let mut stdin = std::io::BufReader::new(std::io::stdin().lock());
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    let mut failed = false;
    loop {
        line.clear();
        let read = stdin.read_until(b'\n', &mut line);
        let read = read.map_err(|error| Failure::usage(format!("error: cannot read: {error}")))?;
        if read == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = match decider.answer(&line)? {
            Ok(answer) => answer,
            Err(error) => {
                failed = true;
                json!({ "error": error })
            }
        };
        writeln!(stdout, "{answer}")?;
        // An interactive caller gets each answer at once.
        if stdin.buffer().is_empty() {
            stdout.flush()?;
        }
    }
    stdout.flush()?;
    Ok(if failed { exit::INVALID } else { exit::OK })
}

/// The loaded policies: that of the flags, and the latest inline one.
struct Decider<'m> {
    args: DecideArgs,
    matches: Option<&'m ArgMatches>,
    base: Option<Input>,
    inline: Option<(String, Arc<Policy>)>,
}

impl Decider<'_> {
    fn base(&mut self) -> Result<&Input, Failure> {
        if self.base.is_none() {
            self.base = Some(Input::load(&self.args.policy, &self.args.tools, self.matches)?);
        }
        self.base.as_ref().ok_or_else(|| Failure::invalid("error: no policy"))
    }

    /// The answer to one line. The outer error ends the run, the inner one is the line's own.
    fn answer(&mut self, line: &[u8]) -> Result<Result<Value, String>, Failure> {
        let Ok(line) = std::str::from_utf8(line) else {
            return Ok(Err("the line is not valid UTF-8".into()));
        };
        let line = line.trim();
        let node = match strict::parse(line) {
            Ok(node) => node,
            Err(fault) => return Ok(Err(format!("the line is not JSON: {}", fault.message))),
        };
        let request = match Request::read(&node, line) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        match present(&node, "policy") {
            Some(policy) => {
                Ok(self.inline(line, policy).map(|policy| request.answer(&policy, None)))
            }
            None => {
                let base = self.base()?;
                Ok(Ok(request.answer(&base.policy, Some(base))))
            }
        }
    }

    fn inline(&mut self, line: &str, node: &Node<'_>) -> Result<Arc<Policy>, String> {
        let written = line.get(node.span.start as usize..node.span.end as usize).unwrap_or(line);
        if let Some((text, policy)) = &self.inline
            && text == written
        {
            return Ok(policy.clone());
        }
        let loaded = match &node.value {
            NodeValue::Str(text) => load_inline(Inline::Text(text)),
            _ => load_inline(Inline::Node(node, &Text::new("policy", line))),
        };
        let input = loaded
            .map_err(|failed| failed.diagnostics)
            .and_then(|loaded| Input::compile(loaded, Vec::new(), Reads::default()))
            .map_err(|findings| {
                findings.iter().map(Diagnostic::to_line).collect::<Vec<_>>().join("; ")
            })?;
        let policy = Arc::new(input.policy);
        self.inline = Some((written.into(), policy.clone()));
        Ok(policy)
    }
}

/// One request.
struct Request {
    agent: Option<String>,
    server: String,
    kind: Kind,
    /// The name of the tool or prompt, or the resource's URI.
    name: String,
    action: Option<String>,
    arguments: Option<ArgumentsText>,
    definition: Option<Map<String, Value>>,
    annotations: Option<Value>,
    hints: Option<Hints>,
    /// The claims of the caller's token: its scopes.
    claims: Option<Map<String, Value>>,
    query: QueryKind,
}

#[derive(PartialEq)]
enum QueryKind {
    Call,
    List,
    Server,
}

impl Request {
    fn read(node: &Node<'_>, line: &str) -> Result<Request, String> {
        if !matches!(node.value, NodeValue::Map(_)) {
            return Err("a request must be a JSON object".into());
        }
        let query = match text(node, "query")?.as_deref() {
            None | Some("call") => QueryKind::Call,
            Some("list") => QueryKind::List,
            Some("server") => QueryKind::Server,
            Some(other) => {
                return Err(format!("`query` is `call`, `list` or `server`, not `{other}`"));
            }
        };
        let (kind, name) = subject(node, query == QueryKind::Server)?;
        let hints = match present(node, "hints").map(Node::to_json) {
            None => None,
            Some(Value::Array(tags)) => {
                let tags: Option<Vec<&str>> = tags.iter().map(Value::as_str).collect();
                Some(Hints::new(tags.ok_or("`hints` must be a list of strings")?))
            }
            Some(_) => return Err("`hints` must be a list of strings".into()),
        };
        Ok(Request {
            agent: text(node, "agent")?,
            server: text(node, "server")?.ok_or("`server` is missing")?,
            kind,
            name,
            action: text(node, "action")?,
            arguments: present(node, "arguments")
                .map(|given| ArgumentsText::of(given, line).ok_or("`arguments` must be an object"))
                .transpose()?,
            definition: object(node, "definition")?,
            annotations: present(node, "annotations").map(Node::to_json),
            hints,
            claims: text(node, "scope")?.as_deref().map(claims_with),
            query,
        })
    }

    fn answer(&self, policy: &Policy, base: Option<&Input>) -> Value {
        let decision = self.decide(policy, base);
        let rule = policy.rule(&decision);
        let call = self.call();
        let action = toolward_policy::call::stated_action(&call);
        let about = About {
            agent: self.agent.as_deref(),
            server: &self.server,
            subject: &self.name,
            action: action.as_deref().filter(|_| self.kind == Kind::Tool),
        };
        json!({
            "verdict": decision.verdict.as_str(),
            "step": decision.step.as_str(),
            "layer": decision.layer,
            "rule": rule.map(|rule| rule.path),
            "reason": policy.reason(&decision, about),
        })
    }

    fn decide(&self, policy: &Policy, base: Option<&Input>) -> Decision {
        let agent = self.agent.as_deref();
        if self.query == QueryKind::Server {
            return policy.decide_server(agent, &self.server);
        }
        let caller = Caller { agent, claims: self.claims.as_ref() };
        let decide = |subject: Subject<'_>| {
            let cell = policy.cell(agent, &self.server, subject);
            match self.query {
                QueryKind::List => cell.list(caller).decision,
                _ => cell.decide(caller, &self.call()),
            }
        };
        match self.kind {
            Kind::Tool => {}
            Kind::Prompt => return decide(Subject::Prompt(&self.name)),
            Kind::Resource => return decide(Subject::Resource(&self.name)),
            Kind::Template => return decide(Subject::Template(&self.name)),
        }
        let Some(tool) = self.tool(base) else {
            return Decision {
                verdict: Verdict::Deny,
                layer: None,
                step: Step::NoSuchTool,
                rule: None,
            };
        };
        let hints = match &self.hints {
            Some(hints) => hints.clone(),
            None => policy.hints(&self.server, &tool),
        };
        decide(Subject::Tool(&tool, &hints))
    }

    fn call(&self) -> Call<'_> {
        Call {
            action: self.action.as_deref(),
            arguments: self.arguments.as_ref().map(|arguments| arguments as _),
        }
    }

    /// The tool as the request describes it, else as a saved list does.
    fn tool(&self, base: Option<&Input>) -> Option<Tool> {
        let mut tool = match (&self.definition, base) {
            (Some(definition), _) => Tool::new(&self.name, definition),
            (None, Some(base)) => base.catalogue.tool(&self.server, &self.name)?,
            (None, None) => Tool::named(&self.name),
        };
        if self.annotations.is_some() {
            tool = tool.with_annotations(Annotations::of(self.annotations.as_ref()));
        }
        // A given action counts as the value of an action key that the schema declares.
        if self.action.is_some() {
            tool = tool.with_declared_action();
        }
        Some(tool)
    }
}

/// The subject of a request: exactly one of `tool`, `prompt` and `resource`. A query about a server has none.
fn subject(node: &Node<'_>, of_server: bool) -> Result<(Kind, String), String> {
    let members = [("tool", Kind::Tool), ("prompt", Kind::Prompt), ("resource", Kind::Resource)];
    let mut found = None;
    for (member, kind) in members {
        let Some(name) = text(node, member)? else { continue };
        if found.replace((kind, name)).is_some() {
            return Err("a request is about one of `tool`, `prompt` and `resource`".into());
        }
    }
    match found {
        Some(found) => Ok(found),
        None if of_server => Ok((Kind::Tool, String::new())),
        None => Err("`tool`, `prompt` or `resource` is missing".into()),
    }
}

/// A member that exists and is not null.
fn present<'n, 't>(node: &'n Node<'t>, key: &str) -> Option<&'n Node<'t>> {
    node.get(key).filter(|value| !matches!(value.value, NodeValue::Null))
}

fn text(node: &Node<'_>, key: &str) -> Result<Option<String>, String> {
    match present(node, key) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.into())),
            None => Err(format!("`{key}` must be a string")),
        },
    }
}

fn object(node: &Node<'_>, key: &str) -> Result<Option<Map<String, Value>>, String> {
    match present(node, key).map(Node::to_json) {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(_) => Err(format!("`{key}` must be an object")),
    }
}
