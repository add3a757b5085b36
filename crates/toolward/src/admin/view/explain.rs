//! Explains a decision: every layer and step, and the response the agent would get. Shown as a panel beside
//! the matrix, or as a page that can be linked.

use std::sync::Arc;

use askama::Template;
use toolward_wire::list::ListKind;

use super::question::{ActiveQuestion, AnswerDetails};
use super::words::kind_of;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::arguments::ArgumentsText;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    layout: Layout,
    told: AnswerDetails,
}

#[derive(Template)]
#[template(path = "explain_part.html")]
struct ExplainPart {
    told: AnswerDetails,
    /// Whether the verdict is shown in large letters first.
    large: bool,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    if !query.rest.is_empty() {
        return ViewResponse::Missing;
    }
    let (Some(server), Some(tool)) = (query.word("server"), query.word("tool")) else {
        return ViewResponse::Wrong("The request must name a server and a tool.".into());
    };
    let kind = query.word("kind").map_or(Some(ListKind::Tools), kind_of);
    let Some(kind) = kind else {
        return ViewResponse::Wrong("There is no such kind.".into());
    };
    let arguments = match query.get("args").map(str::trim) {
        None => Ok(None),
        Some("") => Ok(Some(Default::default())),
        Some(text) => ArgumentsText::parse(text).map(Some),
    };
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(why) => {
            return ViewResponse::Wrong(format!("The arguments are not a JSON object: {why}"));
        }
    };
    let lists = match query.fragment {
        true => page.lists.now(page.gateway()),
        false => page.lists.ask(page.gateway()).await,
    };
    let agent = query.word("agent");
    let told = match ActiveQuestion::new(page, lists, agent, (kind, server, tool), arguments) {
        Ok(question) => question.answer(page),
        Err(why) => return ViewResponse::Wrong(why),
    };
    if query.fragment {
        return ViewResponse::of(&ExplainPart { told, large: query.word("large").is_some() });
    }
    ViewResponse::of(&ExplainPage { layout: Layout::new(page, "explain", "Why").await, told })
}
