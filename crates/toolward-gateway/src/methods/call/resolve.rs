//! Stage 1, resolve: finds the client's view, and makes the checks that need only the name of the tool, prompt or
//! resource.

use std::sync::Arc;

use toolward_wire::Message;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::list::ListKind;
use toolward_wire::method::PolicySubject;

use super::End;
use super::input_state::{self, StateError};
use super::tasks;
use crate::client::Scope;
use crate::context::Context;
use crate::methods::request::Envelope;
use crate::methods::{refusals, views};
use crate::responses;
use crate::upstream::Unavailable;
use crate::view::View;
use crate::view::resources::{INTERFACE_SCHEME, Owner, ResourceViews, ToolInterface};

/// A call with the view in which its name is looked up. The view contains nothing that is hidden from the agent.
pub(super) struct Resolved {
    pub(super) view: Arc<View>,
    pub(super) found: Found,
    pub(super) name: String,
    pub(super) message: Message,
    /// The server that asked for the input which the call brings, if it brings some.
    pub(super) asked_by: Option<String>,
}

/// How the policy decides about a name.
pub(super) enum Found {
    /// As a tool or prompt of the view.
    Name,
    /// As the prompt or template that a completion refers to.
    Reference,
    /// As a resource of the server with this index; `None` if no server owns it.
    Resource(ResourceViews, Option<usize>),
    /// As the user interface of a listed tool.
    Interface(ToolInterface),
    /// As a task of a listed tool, whose server knows it by this id.
    Task { tool: String, id: String },
}

pub(super) async fn resolve(
    context: &Context,
    envelope: &Envelope,
    message: Message,
) -> Result<Resolved, End> {
    // Validation ensured that a call has a name.
    let name = message.name(envelope.row.name_at).ok().flatten().ok_or(None)?.into_owned();
    check_case(envelope, &message)?;
    let (message, asked_by) = with_input(context, envelope, &name, message)?;
    let looked_up = tokio::select! {
        looked_up = look_up(context, envelope, &name, &message) => looked_up,
        () = envelope.cancel.cancelled() => return Err(None),
    };
    let (view, found) = match looked_up {
        Ok(found) => found,
        Err(unknown) => {
            let unknown = (&*unknown.0, &unknown.1);
            let refused = refusals::refuse_undecidable(context, envelope, &message, &name, unknown);
            return Err(Some(refused.await));
        }
    };
    check_headers(envelope, &view, &name, &message)?;
    Ok(Resolved { view, found, name, message, asked_by })
}

/// A server whose list is not known, so that nothing can be decided.
type UnknownList = Box<(Box<str>, Unavailable)>;

/// Looks up a name in the views of its kind.
async fn look_up(
    context: &Context,
    envelope: &Envelope,
    name: &str,
    message: &Message,
) -> Result<(Arc<View>, Found), UnknownList> {
    let (active, client) = (&*envelope.active, &envelope.client);
    let refers_to_resource = || message.param("ref").is_some_and(|raw| raw.member("uri").is_some());
    let (kind, found) = match envelope.row.subject {
        PolicySubject::Task => return Ok(Box::pin(look_up_task(context, envelope, name)).await),
        PolicySubject::Resource => {
            return Box::pin(look_up_resource(context, envelope, name)).await;
        }
        PolicySubject::Completion if refers_to_resource() => {
            let kind = (ListKind::ResourceTemplates, Some(name));
            let view = Box::pin(views::view(context, active, client, kind)).await;
            if view.has(name) {
                return Ok((view, Found::Reference));
            }
            let (view, found) = Box::pin(look_up_resource(context, envelope, name)).await?;
            // A template that is not listed is unknown, whether or not it exists.
            return Ok(match found {
                Found::Resource(views, Some(_)) if !views.lists(name) => {
                    (view, Found::Resource(views, None))
                }
                found => (view, found),
            });
        }
        PolicySubject::Completion => (ListKind::Prompts, Found::Reference),
        PolicySubject::Prompt => (ListKind::Prompts, Found::Name),
        _ => (ListKind::Tools, Found::Name),
    };
    let view = views::view_in_line(context, active, client, (kind, Some(name))).await;
    match views::undecidable(active, client, &view, name) {
        Some((server, why)) => Err(Box::new((server.into(), why.clone()))),
        None => Ok((view, found)),
    }
}

/// Finds the tool that made a task. A task of another agent, or of a tool that is no longer listed, is unknown.
async fn look_up_task(context: &Context, envelope: &Envelope, handle: &str) -> (Arc<View>, Found) {
    let (active, client) = (&*envelope.active, &envelope.client);
    let tools = views::view_in_line(context, active, client, (ListKind::Tools, None)).await;
    let found = tasks::open(context, client, handle).and_then(|task| {
        let tool = tools.exposed_name(&task.server, &task.tool)?.to_string();
        Some(Found::Task { tool, id: task.id })
    });
    (tools, found.unwrap_or(Found::Name))
}

/// Finds the server that owns a URI.
pub(super) async fn look_up_resource(
    context: &Context,
    envelope: &Envelope,
    uri: &str,
) -> Result<(Arc<View>, Found), UnknownList> {
    let (active, client) = (&*envelope.active, &envelope.client);
    let view = |kind| views::view(context, active, client, (kind, None));
    if uri.starts_with(INTERFACE_SCHEME) {
        let tools = Box::pin(view(ListKind::Tools)).await;
        if let Some(interface) = ToolInterface::find(tools, uri) {
            return Ok((interface.tools.clone(), Found::Interface(interface)));
        }
    }
    let is_alone = matches!(client.scope, Scope::One(_));
    let linked = context.links.server(&client.caller, uri);
    let known = |kind| views::known_view(context, active, client, kind);
    let known = known(ListKind::Resources).zip(known(ListKind::ResourceTemplates));
    if let Some((resources, templates)) = known {
        let views = ResourceViews { resources: resources.clone(), templates, is_alone };
        if let Owner::Server(at) = views.owner(uri, linked) {
            return Ok((resources, Found::Resource(views, Some(at))));
        }
    }
    // A resource that no list has may be new: the lists are fetched, whatever the URI.
    let resources = Box::pin(view(ListKind::Resources)).await;
    let templates = Box::pin(view(ListKind::ResourceTemplates)).await;
    let views = ResourceViews { resources: resources.clone(), templates, is_alone };
    let owner = match views.owner(uri, linked) {
        Owner::Server(at) => Some(at),
        Owner::None => None,
        Owner::Unknown(server, why) => return Err(Box::new((server.into(), why.clone()))),
    };
    Ok((resources, Found::Resource(views, owner)))
}

/// A call with the client's input for a server, as that server gets it.
#[expect(clippy::result_large_err, reason = "the error is the response itself, made once")]
fn with_input(
    context: &Context,
    envelope: &Envelope,
    name: &str,
    message: Message,
) -> Result<(Message, Option<String>), End> {
    // A message to a task is decided when it is forwarded.
    if envelope.row.subject == PolicySubject::Task {
        return Ok((message, None));
    }
    match input_state::repeated(context, envelope, name, &message) {
        Ok(None) => Ok((message, None)),
        Ok(Some(repeated)) => Ok((repeated.message, repeated.server)),
        Err(StateError::Unusable(why)) => {
            Err(Some(responses::bad_params(&envelope.id, envelope.client.era(), why)))
        }
        Err(StateError::NotVisited) => {
            let (era, about) = (envelope.client.era(), (envelope.row.subject, name));
            let why = "the user did not visit the URL that it requires";
            Err(Some(responses::question_declined(&envelope.id, era, about, why)))
        }
    }
}

/// Rejects arguments whose names differ only in case if rules or hooks read them, because the server may
/// use either.
#[expect(clippy::result_large_err, reason = "the error is the response itself, made once")]
fn check_case(envelope: &Envelope, message: &Message) -> Result<(), End> {
    let active = &envelope.active;
    if !active.policy.reads_arguments() && !active.guards.read_arguments() {
        return Ok(());
    }
    let Some((first, second)) = message.arguments().and_then(|given| given.case_collision()) else {
        return Ok(());
    };
    let why = format!("the arguments `{first}` and `{second}` differ only in case");
    Err(Some(responses::bad_params(&envelope.id, envelope.client.era(), &why)))
}

/// Rejects a call whose `Mcp-Param-*` headers do not match its arguments.
#[expect(clippy::result_large_err, reason = "the error is the response itself, made once")]
fn check_headers(
    envelope: &Envelope,
    view: &View,
    name: &str,
    message: &Message,
) -> Result<(), End> {
    let (Some(sent), Some(marks)) = (&envelope.headers, view.headers(name)) else { return Ok(()) };
    let sent = |wanted: &str| {
        sent.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    marks.check(message.arguments(), sent).map_err(|mismatch| {
        let (case, code) = (StatusCase::HeaderMismatch, code::HEADER_MISMATCH);
        let (era, why) = (envelope.client.era(), mismatch.to_string());
        Some(responses::wrong(case, era, &envelope.id, code, &why, None))
    })
}
