//! Handshake methods: `initialize` (legacy) and `server/discover` (modern).
//!
//! A client of one server gets that server's own answer, reduced to what passes; a client of several gets the
//! gateway's.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::{Era, Id, Message, Raw, Revision, meta};

use super::request::{Envelope, Request};
use super::views;
use crate::active::Active;
use crate::client::{Client, Scope};
use crate::context::Context;
use crate::responses::{self, Answer};
use crate::upstream::handshake::OWN_INFO;
use crate::upstream::{Server, Unavailable};
use crate::view::View;
use crate::view::cache::Viewer;

/// How long `initialize` waits for the server that it is about.
const FIRST_ANSWER: Duration = Duration::from_millis(900);

/// The revision that a session will have: the one that the client asks for, else the newest.
pub fn revision(initialize: &Message) -> Revision {
    let asked = initialize.param("protocolVersion").and_then(Raw::as_str).unwrap_or_default();
    Revision::parse(&asked)
        .filter(|revision| revision.era() == Era::Legacy)
        .unwrap_or(Revision::newest(Era::Legacy))
}

/// The one server that a client reaches, where it may use it.
fn only_server(active: &Active, client: &Client) -> Option<Arc<Server>> {
    match client.scope {
        Scope::All | Scope::Discovery => None,
        // The gateway speaks for itself.
        Scope::One(_) => {
            let usable = active.usable(client);
            usable.into_iter().next().filter(|server| !server.is_own())
        }
    }
}

pub(crate) async fn initialize(context: &Context, request: &Request) -> Answer {
    let Envelope { active, client, id, .. } = &request.envelope;
    let Some(server) = only_server(active, client) else {
        let revision = json!(client.revision.as_str()).to_string();
        let parts = [
            ("protocolVersion", Some(revision.as_bytes())),
            ("capabilities", Some(capabilities(Era::Legacy, true))),
            ("serverInfo", Some(own_info())),
        ];
        return responses::object(id, &parts);
    };
    // A client that waits longer for its first answer gives up, and some servers install themselves
    // first: then the server goes on starting, and the client hears what is known of it.
    let deadline = (client.since + FIRST_ANSWER).into();
    let own = Box::pin(initialize_with(context, active, &server, client, id));
    match tokio::time::timeout_at(deadline, own).await {
        Ok(answer) => answer,
        Err(_) => initialize_unheard(active, &server, client, id),
    }
}

/// The server's own answer to `initialize`, cut to what passes.
async fn initialize_with(
    context: &Context,
    active: &Active,
    server: &Arc<Server>,
    client: &Arc<Viewer>,
    id: &Id,
) -> Answer {
    let (hello, era) = match context.servers.greet(server, client).await {
        Ok(hello) => hello,
        Err(why) => return why.public().response(id, server.name()),
    };
    let mut instructions = hello.result_member("instructions").filter(|raw| raw.as_str().is_some());
    if let Some(text) = instructions.and_then(Raw::as_str) {
        let view = views::view(context, active, client, None).await;
        instructions = instructions.filter(|_| may_read(&view, &text));
    }
    let own = json!(client.revision.as_str()).to_string();
    let (revision, info) = match era {
        Era::Legacy => (
            hello.result_member("protocolVersion").map(Raw::bytes),
            hello.result_member("serverInfo").map(Raw::bytes),
        ),
        // A modern server says who it is beside the result, and chooses no revision.
        Era::Modern => {
            let info = hello.result_meta(meta::SERVER_INFO).map(Raw::bytes);
            (Some(own.as_bytes()), info.or(Some(own_info())))
        }
    };
    // Members that are not known could say anything: only those that are pass.
    let parts = [
        ("protocolVersion", revision),
        ("capabilities", Some(capabilities(Era::Legacy, has_tools(&hello)))),
        ("serverInfo", info),
        ("instructions", instructions.map(Raw::bytes)),
    ];
    responses::object(id, &parts)
}

/// The response to `initialize` for a server that has not responded yet: what it sent to another client
/// before, or its name in the configuration. MCP has no message that would correct it later.
fn initialize_unheard(active: &Active, server: &Arc<Server>, client: &Client, id: &Id) -> Answer {
    let revision = json!(client.revision.as_str()).to_string();
    let named = json!({"name": server.name(), "version": "unknown"}).to_string();
    let known = server.greeting();
    let hello = known.as_ref().map(|(hello, _)| hello);
    let info = known.as_ref().and_then(|(hello, era)| match era {
        Era::Legacy => hello.result_member("serverInfo"),
        Era::Modern => hello.result_meta(meta::SERVER_INFO),
    });
    let instructions = hello.and_then(|hello| hello.result_member("instructions"));
    let instructions = instructions.filter(|raw| {
        let view = || views::last_known(active, client, server);
        raw.as_str().is_some_and(|text| view().is_some_and(|view| may_read(&view, &text)))
    });
    let parts = [
        ("protocolVersion", Some(revision.as_bytes())),
        ("capabilities", Some(capabilities(Era::Legacy, hello.is_none_or(has_tools)))),
        ("serverInfo", Some(info.map_or(named.as_bytes(), Raw::bytes))),
        ("instructions", instructions.map(Raw::bytes)),
    ];
    responses::object(id, &parts)
}

pub(crate) async fn discover(context: &Context, request: &Request) -> Answer {
    let Envelope { active, client, id, headers, .. } = &request.envelope;
    let era = Era::Modern;
    let Some(server) = only_server(active, client) else {
        return discovered(id, OWN_INFO.as_bytes(), true);
    };
    // Who wraps a server passes on its own answer: the client begins in the other era itself.
    let greeted = match headers {
        Some(_) => context.servers.greet(&server, client).await,
        None => context.servers.greet_in_own_era(&server, client).await.map(|hello| (hello, era)),
    };
    match greeted {
        Ok((hello, Era::Modern)) => {
            let ttl = hello.result_member("ttlMs").and_then(Raw::as_i64).unwrap_or(i64::MAX);
            let edit = hello.edit().id(id).remove_own_meta();
            edit.set_result("capabilities", capabilities(era, has_tools(&hello)))
                .set_result("cacheScope", &b"\"private\""[..])
                .set_result("ttlMs", ttl.clamp(0, 5000).to_string().into_bytes())
                .remove_result("instructions")
                .finish()
                .into()
        }
        // Behind an address of ours, a legacy server is spoken to in either era.
        Ok((hello, Era::Legacy)) if headers.is_some() => {
            let info = hello.result_member("serverInfo").map_or(own_info(), Raw::bytes);
            discovered(id, info, has_tools(&hello))
        }
        // Who wraps a server stands in for it: a client that can do both tries the other era.
        Ok((_, Era::Legacy)) | Err(Unavailable::OtherEra | Unavailable::Unclear) => {
            let why = "the server does not know `server/discover`";
            responses::wrong(StatusCase::UnknownMethod, era, id, code::METHOD_NOT_FOUND, why, None)
        }
        Err(why) => why.public().response(id, server.name()),
    }
}

/// Whether the one server that a client reaches is there; one of the other era is.
pub(crate) async fn ready(
    context: &Context,
    active: &Active,
    client: &Client,
) -> Result<(), Unavailable> {
    match only_server(active, client) {
        None => Ok(()),
        Some(server) => match context.servers.greet_in_own_era(&server, client).await {
            Err(why @ (Unavailable::Down(_) | Unavailable::Unstartable(_))) => {
                Err(start_help(&why))
            }
            _ => Ok(()),
        },
    }
}

/// The same, for the answer to `initialize`: `None` if that is not known when it has to be given.
pub(crate) async fn ready_in_time(
    context: &Context,
    active: &Active,
    client: &Client,
) -> Option<Result<(), Unavailable>> {
    let deadline = (client.since + FIRST_ANSWER).into();
    tokio::time::timeout_at(deadline, Box::pin(ready(context, active, client))).await.ok()
}

/// Whether a client may read a server's instructions: its list must be known, and no tool that is hidden from
/// the client may be named.
fn may_read(view: &View, instructions: &str) -> bool {
    let mut hidden = view.servers().iter().flat_map(|server| &server.removed);
    view.is_complete() && !hidden.any(|name| mentions(instructions, name))
}

/// The answer to `server/discover`, for a server that does not give one itself.
fn discovered(id: &Id, info: &[u8], tools: bool) -> Answer {
    let era = Era::Modern;
    let versions = json!([Revision::newest(era).as_str()]).to_string();
    let info = [format!("{{\"{}\":", meta::SERVER_INFO).as_bytes(), info, b"}"].concat();
    let parts = [
        ("supportedVersions", Some(versions.as_bytes())),
        ("capabilities", Some(capabilities(era, tools))),
        ("resultType", Some(&b"\"complete\""[..])),
        ("ttlMs", Some(b"5000")),
        ("cacheScope", Some(b"\"private\"")),
        ("_meta", Some(&info)),
    ];
    responses::object(id, &parts)
}

fn has_tools(hello: &Message) -> bool {
    hello.result_member("capabilities").and_then(|raw| raw.member("tools")).is_some()
}

fn own_info() -> &'static [u8] {
    OWN_INFO.as_bytes()
}

/// What the gateway offers of itself: tools, and word of their changes where there is a session.
fn capabilities(era: Era, tools: bool) -> &'static [u8] {
    match (tools, era) {
        (false, _) => b"{}",
        (true, Era::Modern) => b"{\"tools\":{}}",
        (true, Era::Legacy) => b"{\"tools\":{\"listChanged\":true}}",
    }
}

/// Whether a text names a tool, for a reader who looks past case, spaces and hidden characters.
fn mentions(text: &str, name: &str) -> bool {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    text.contains(name) || letters(text).contains(&letters(name))
}

fn start_help(why: &Unavailable) -> Unavailable {
    match why {
        Unavailable::Down(why) => Unavailable::Down(format!(
            "{why}. Start the server's command by hand to see what it says"
        )),
        Unavailable::Unstartable(why) => Unavailable::Unstartable(format!(
            "{why}. Start the server's command by hand to see what it says"
        )),
        other => other.clone(),
    }
}
