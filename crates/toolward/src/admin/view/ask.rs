//! Decides a call without making it.

use std::sync::Arc;

use askama::Template;
use toolward_wire::list::ListKind;

use super::question::{ActiveQuestion, AnswerDetails};
use crate::admin::lists::List;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::arguments::ArgumentsText;

/// The maximum number of suggestions while a name is typed.
const MAX_SUGGESTIONS: usize = 50;

#[derive(Template)]
#[template(path = "ask.html")]
struct AskPage {
    layout: Layout,
    form: Form,
    answer: Option<AnswerDetails>,
}

#[derive(Template)]
#[template(path = "ask_part.html")]
struct AskPart {
    form: Form,
    answer: Option<AnswerDetails>,
}

#[derive(Template)]
#[template(path = "ask_tools.html")]
struct Tools {
    tools: Vec<String>,
}

/// The values of the fields, and errors in them.
#[derive(Default)]
struct Form {
    agents: Vec<String>,
    /// Unnamed callers are accepted.
    nameless: bool,
    /// The chosen agent; empty for unnamed callers.
    agent: String,
    /// The policy does not name it.
    other: bool,
    tool: String,
    arguments: String,
    tools: Vec<String>,
    wrong_agent: Option<String>,
    wrong_tool: Option<String>,
    wrong_arguments: Option<String>,
}

/// The form, filled in from the URL; or tool names as suggestions.
pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    match &*query.rest {
        "" => {}
        "tools" => {
            let lists = page.lists.now(page.gateway());
            return ViewResponse::of(&Tools {
                tools: proposed(&lists, query.get("tool").unwrap_or("")),
            });
        }
        _ => return ViewResponse::Missing,
    }
    let lists = page.lists.ask(page.gateway()).await;
    let mut form = form(page, query, &lists);
    if let (Some(server), Some(tool)) = (query.word("server"), query.word("tool")) {
        form.tool = format!("{server}/{tool}");
    }
    let layout = Layout::new(page, "ask", "Ask").await;
    ViewResponse::of(&AskPage { layout, form, answer: None })
}

/// The decision on the submitted form.
pub(crate) async fn answer(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let lists = page.lists.ask(page.gateway()).await;
    let mut form = form(page, query, &lists);
    if query.get("agent") == Some("other") && form.agent.is_empty() {
        form.wrong_agent = Some("Enter the agent’s name.".into());
    } else if form.agent.is_empty() && !form.nameless {
        form.wrong_agent =
            Some("Callers without a name get 401 before any rule is evaluated.".into());
    }
    let arguments = match form.arguments.trim() {
        "" => Ok(Default::default()),
        text => ArgumentsText::parse(text),
    };
    let address = form.tool.trim().split_once('/');
    let address = address.filter(|(server, tool)| !server.is_empty() && !tool.is_empty());
    if address.is_none() {
        form.wrong_tool = Some("Enter SERVER/TOOL, with the server’s own name of the tool.".into());
    }
    let answer = match (&arguments, address) {
        (Ok(arguments), Some(address)) if form.wrong_agent.is_none() => {
            let agent = Some(form.agent.as_str()).filter(|agent| !agent.is_empty());
            let about = (ListKind::Tools, address.0, address.1);
            match ActiveQuestion::new(page, lists, agent, about, Some(arguments.clone())) {
                Ok(question) => Some(question.answer(page)),
                Err(why) => {
                    form.wrong_tool = Some(why);
                    None
                }
            }
        }
        _ => None,
    };
    form.wrong_arguments = arguments.err().map(|why| format!("Not a JSON object: {why}"));
    if query.fragment {
        return ViewResponse::of(&AskPart { form, answer });
    }
    let layout = Layout::new(page, "ask", "Ask").await;
    ViewResponse::of(&AskPage { layout, form, answer })
}

fn form(page: &AdminUi, query: &Query, lists: &[List]) -> Form {
    let callers = page.reloader.callers();
    let agents: Vec<String> = callers.iter().flatten().cloned().collect();
    // In the form, agent names have a prefix, so that no name can be mistaken for another choice.
    let chosen = query.get("agent").unwrap_or_default();
    let agent = match chosen {
        "other" => query.get("name").unwrap_or_default().trim(),
        chosen => chosen.strip_prefix('=').unwrap_or_default(),
    };
    let tool = query.get("tool").unwrap_or_default().to_string();
    Form {
        other: chosen == "other" || !(agent.is_empty() || agents.iter().any(|a| a == agent)),
        agent: agent.into(),
        tools: proposed(lists, &tool),
        tool,
        // A tab would be rendered as a symbol.
        arguments: query.get("args").unwrap_or_default().replace('\t', "  "),
        agents,
        nameless: callers.contains(&None),
        ..Form::default()
    }
}

/// Tools whose `SERVER/TOOL` contains the typed text.
fn proposed(lists: &[List], typed: &str) -> Vec<String> {
    let typed = typed.trim().to_lowercase();
    let known =
        lists.iter().filter_map(|list| Some((list.server.name(), list.tools.as_ref().ok()?)));
    let tools = known.flat_map(|(server, catalogue)| {
        let tools = catalogue.tools().tools().iter();
        tools.map(move |tool| format!("{server}/{}", tool.name()))
    });
    tools.filter(|tool| tool.to_lowercase().contains(&typed)).take(MAX_SUGGESTIONS).collect()
}
