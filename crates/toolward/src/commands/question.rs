//! One question to the policy, as `can-i` and `explain` put it.

use clap::ArgMatches;
use serde_json::{Map, Value, json};
use toolward_config::json as strict;
use toolward_config::neutral::neutralise;
use toolward_config::suggest;
use toolward_policy::call::stated_action;
use toolward_policy::explain::{Explanation, Query};
use toolward_policy::reason::About;
use toolward_policy::{Call, Caller, Decision, Hints, Step, Subject, Tool, Verdict};

use crate::cli::{Kind, QuestionArgs};
use crate::exit::Failure;
use crate::live;
use crate::policy_input::Input;

/// A question, with everything that answers it.
pub(crate) struct Question {
    pub(crate) input: Input,
    pub(crate) agent: Option<String>,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) arguments: Option<Map<String, Value>>,
    kind: Kind,
    list: bool,
    /// `None`: the server's list is known and lacks the tool.
    pub(crate) tool: Option<Tool>,
    pub(crate) hints: Hints,
}

impl Question {
    pub(crate) fn new(args: QuestionArgs, matches: Option<&ArgMatches>) -> Result<Self, Failure> {
        let (server, name) = match args.subject.split_once('/') {
            Some((server, name)) if !server.is_empty() && !name.is_empty() => (server, name),
            _ => {
                return Err(Failure::usage(format!(
                    "error: `{}` does not name a server and a tool: write SERVER/TOOL",
                    neutralise(&args.subject)
                )));
            }
        };
        let arguments = args.arguments.as_deref().map(parse_arguments).transpose()?;
        let mut input = Input::load(&args.policy, &args.tools, matches)?;
        if args.tools.lists.is_empty() && args.kind == Kind::Tool {
            live::ask(&mut input, Some(server))?;
        }
        let configured: Vec<&str> =
            input.loaded.config.servers.iter().map(|known| known.name.as_str()).collect();
        if !configured.is_empty() && !input.catalogue.has_server(server) {
            let help = match suggest::nearest(server, configured.iter().copied()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("there are {}", configured.join(", ")),
            };
            let server = neutralise(server);
            return Err(Failure::usage(format!(
                "error: no server is called `{server}`\n  help: {help}"
            )));
        }
        if let Some(original) = input.policy.exposure(server).and_then(|e| e.renamed_from(name)) {
            let (name, original) = (neutralise(name), neutralise(original));
            return Err(Failure::usage(format!(
                "error: `{name}` is what clients call `{original}`; rules speak of original names\n  \
                 help: ask about `{server}/{original}`"
            )));
        }
        let tool = match args.kind {
            Kind::Tool => input.catalogue.tool(server, name),
            _ => Some(Tool::named(name)),
        };
        let hints = match (&tool, args.kind) {
            (Some(tool), Kind::Tool) => input.policy.hints(server, tool),
            _ => Hints::default(),
        };
        Ok(Question {
            agent: args.agent,
            server: server.into(),
            name: name.into(),
            arguments,
            kind: args.kind,
            list: args.list,
            tool,
            hints,
            input,
        })
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { agent: self.agent.as_deref(), claims: None }
    }

    pub(crate) fn call(&self) -> Call<'_> {
        Call { action: None, arguments: self.arguments.as_ref().map(|arguments| arguments as _) }
    }

    pub(crate) fn subject(&self) -> Option<Subject<'_>> {
        match self.kind {
            Kind::Tool => self.tool.as_ref().map(|tool| Subject::Tool(tool, &self.hints)),
            Kind::Prompt => Some(Subject::Prompt(&self.name)),
            Kind::Resource => Some(Subject::Resource(&self.name)),
        }
    }

    pub(crate) fn is_about_a_tool(&self) -> bool {
        self.kind == Kind::Tool
    }

    /// The name under which clients see the tool.
    pub(crate) fn exposed(&self) -> String {
        let exposure = self.input.policy.exposure(&self.server);
        match exposure.and_then(|exposure| exposure.show(&self.name)) {
            Some(shown) => shown.name.into(),
            None => self.name.clone(),
        }
    }

    /// Whether the answer rests on the tool's name alone.
    pub(crate) fn list_unknown(&self) -> bool {
        self.kind == Kind::Tool && self.input.catalogue.tools(&self.server).is_none()
    }

    /// The way to the decision, in all layers.
    pub(crate) fn explain(&self) -> Explanation {
        let query = if self.list { Query::List } else { Query::Call(self.call()) };
        match self.subject() {
            Some(subject) => self.input.policy.explain(self.caller(), &self.server, subject, query),
            None => Explanation {
                decision: Decision {
                    verdict: Verdict::Deny,
                    layer: None,
                    step: Step::NoSuchTool,
                    rule: None,
                },
                layers: Vec::new(),
            },
        }
    }

    /// The decision, and whether it is the listing that denies: hidden means not callable, also with
    /// an action that the tool's schema does not name.
    pub(crate) fn decide(&self, explanation: &Explanation) -> (Decision, bool) {
        let decision = explanation.decision;
        let Some(subject) = self.subject().filter(|_| decision.verdict != Verdict::Deny) else {
            return (decision, false);
        };
        let cell = self.input.policy.cell(self.agent.as_deref(), &self.server, subject);
        let listed = cell.list(self.caller()).decision;
        if listed.verdict == Verdict::Deny { (listed, true) } else { (decision, false) }
    }

    /// Why, in a sentence.
    pub(crate) fn why(&self, decision: &Decision, hidden: bool) -> String {
        if hidden {
            return neutralise(&format!(
                "`{}/{}` is not in the agent's list, because no action of its schema is allowed; \
                 what is hidden cannot be called",
                self.server, self.name
            ))
            .into_owned();
        }
        self.reason(decision)
    }

    /// Whether the tool is in the agent's listing.
    pub(crate) fn is_listed(&self) -> bool {
        self.subject().is_some_and(|subject| {
            let cell = self.input.policy.cell(self.agent.as_deref(), &self.server, subject);
            cell.list(self.caller()).decision.verdict != Verdict::Deny
        })
    }

    pub(crate) fn action(&self) -> Option<String> {
        stated_action(&self.call())
    }

    pub(crate) fn reason(&self, decision: &Decision) -> String {
        let action = self.action();
        let about = About {
            agent: self.agent.as_deref(),
            server: &self.server,
            subject: &self.name,
            action: action.as_deref(),
        };
        neutralise(&self.input.policy.reason(decision, about)).into_owned()
    }
}

fn parse_arguments(text: &str) -> Result<Map<String, Value>, Failure> {
    let fail =
        |why: &str| Failure::usage(format!("error: the arguments are not a JSON object: {why}"));
    match strict::parse(text).map_err(|fault| fail(&fault.message))?.to_json() {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(fail("an object looks like '{\"path\": \"/a\"}'")),
    }
}

/// A decision as JSON, in the form that `decide` answers with.
pub(crate) fn decision_json(input: &Input, decision: &Decision, reason: &str) -> Value {
    let rule = input.policy.rule(decision);
    json!({
        "verdict": decision.verdict.as_str(),
        "step": decision.step.as_str(),
        "layer": decision.layer,
        "rule": rule.as_ref().map(|rule| &rule.path),
        "location": rule.as_ref().map(|rule| rule.location()),
        "reason": reason,
    })
}
