//! Why: every layer and step, and what the agent would see. A panel beside the table, or a page of its
//! own that can be linked.

use std::sync::Arc;

use askama::Template;

use super::question::{Question, Told};
use crate::admin::{Layout, Page, Query, Shown};
use crate::arguments::Given;

#[derive(Template)]
#[template(path = "explain.html")]
struct Whole {
    layout: Layout,
    told: Told,
}

#[derive(Template)]
#[template(path = "explain_part.html")]
struct Part {
    told: Told,
    /// With the verdict in large letters before it.
    large: bool,
}

pub(crate) async fn show(page: &Arc<Page>, query: &Query) -> Shown {
    if !query.rest.is_empty() {
        return Shown::Missing;
    }
    let (Some(server), Some(tool)) = (query.word("server"), query.word("tool")) else {
        return Shown::Wrong("A question names a server and a tool.".into());
    };
    let arguments = match query.get("args").map(str::trim) {
        None => Ok(None),
        Some("") => Ok(Some(Default::default())),
        Some(text) => Given::parse(text).map(Some),
    };
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(why) => return Shown::Wrong(format!("The arguments are not a JSON object: {why}")),
    };
    let lists = match query.fragment {
        true => page.lists.now(page.gateway()),
        false => page.lists.ask(page.gateway()).await,
    };
    let agent = query.word("agent");
    let told = match Question::new(page, lists, agent, (server, tool), arguments) {
        Ok(question) => question.answer(page),
        Err(why) => return Shown::Wrong(why),
    };
    if query.fragment {
        return Shown::of(&Part { told, large: query.word("large").is_some() });
    }
    Shown::of(&Whole { layout: Layout::new(page, "explain", "Why").await, told })
}
