//! Handshake methods: `initialize` (legacy) and `server/discover` (modern).
//!
//! A client of a single server gets that server's own response, reduced to the members that the gateway
//! forwards; a client of several gets the gateway's.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::list::ListKind;
use toolward_wire::without_own_meta;
use toolward_wire::{Era, Id, Message, Raw, Revision, meta, string};

use super::request::{Envelope, Request};
use super::{capabilities, views};
use crate::active::Active;
use crate::client::{Client, Scope};
use crate::context::Context;
use crate::responses::{self, Answer};
use crate::upstream::handshake::OWN_INFO;
use crate::upstream::{Server, Unavailable};
use crate::view::View;
use crate::view::cache::Viewer;

/// How long `initialize` waits for the server's response.
const FIRST_ANSWER: Duration = Duration::from_millis(900);

/// The protocol version of a session: the one that the client requests, or else the newest.
pub fn revision(initialize: &Message) -> Revision {
    let asked = initialize.param("protocolVersion").and_then(Raw::as_str).unwrap_or_default();
    Revision::parse(&asked)
        .filter(|revision| revision.era() == Era::Legacy)
        .unwrap_or(Revision::newest(Era::Legacy))
}

/// The only server in a client's scope, if the client may use it.
fn only_server(active: &Active, client: &Client) -> Option<Arc<Server>> {
    match client.scope {
        Scope::All | Scope::Discovery => None,
        // The built-in server gets the gateway's own response.
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
        let own = capabilities::of_all(active, client);
        let parts = [
            ("protocolVersion", Some(revision.as_bytes())),
            ("capabilities", Some(&*own)),
            ("serverInfo", Some(own_info())),
        ];
        return responses::object(id, &parts);
    };
    // Some servers install themselves first, and a client that waits longer for its first response gives
    // up. After the timeout, the server keeps starting and the client gets what is already known about
    // it.
    let deadline = (client.since + FIRST_ANSWER).into();
    let own = Box::pin(initialize_with(context, active, &server, client, id));
    match tokio::time::timeout_at(deadline, own).await {
        Ok(answer) => answer,
        Err(_) => initialize_unheard(active, &server, client, id),
    }
}

/// The server's own response to `initialize`, reduced to the members that are forwarded.
async fn initialize_with(
    context: &Context,
    active: &Active,
    server: &Arc<Server>,
    client: &Arc<Viewer>,
    id: &Id,
) -> Answer {
    let (hello, era) =
        match context.servers.greet(server, client, active.declared(client, server)).await {
            Ok(hello) => hello,
            Err(why) => return why.public().response(id, server.name()),
        };
    let mut instructions = Instructions::approved(active, server, Some(&hello));
    if instructions.is_some() {
        for kind in ListKind::ALL {
            let view = views::view(context, active, client, (kind, None)).await;
            instructions = instructions.filter(|shown| may_read(&view, &shown.text));
        }
    }
    let own = json!(client.revision.as_str()).to_string();
    let (revision, info) = match era {
        Era::Legacy => (
            hello.result_member("protocolVersion").map(Raw::bytes),
            hello.result_member("serverInfo").map(without_own_meta),
        ),
        // A modern server has its info in `_meta`, and chooses no protocol version.
        Era::Modern => {
            let info = hello.result_meta(meta::SERVER_INFO).map(without_own_meta);
            (Some(own.as_bytes()), info.or(Some(own_info().into())))
        }
    };
    let offered = capabilities::of_one(active, client, server, Some(&hello));
    // Unknown members could contain anything, so only known ones are forwarded.
    let parts = [
        ("protocolVersion", revision),
        ("capabilities", Some(&*offered)),
        ("serverInfo", info.as_deref()),
        ("instructions", instructions.as_ref().map(|shown| &*shown.json)),
    ];
    responses::object(id, &parts)
}

/// The response to `initialize` if the server has not responded yet: the info it sent to another client
/// before, or its configured name. MCP has no message that would correct it later.
fn initialize_unheard(active: &Active, server: &Arc<Server>, client: &Client, id: &Id) -> Answer {
    let revision = json!(client.revision.as_str()).to_string();
    let named = json!({"name": server.name(), "version": "unknown"}).to_string();
    let known = server.greeting();
    let hello = known.as_ref().map(|(hello, _)| hello);
    let info = known.as_ref().and_then(|(hello, era)| match era {
        Era::Legacy => hello.result_member("serverInfo"),
        Era::Modern => hello.result_meta(meta::SERVER_INFO),
    });
    let info = info.map_or(named.as_bytes().into(), without_own_meta);
    let instructions = Instructions::approved(active, server, hello);
    let instructions = instructions.filter(|shown| {
        let has = |kind: ListKind| {
            let declared = hello.and_then(|hello| hello.result_member("capabilities"));
            declared.is_some_and(|declared| declared.member(kind.capability()).is_some())
        };
        let readable = |text: &str, kind| {
            let view = views::last_known(active, client, (server, kind));
            view.is_some_and(|view| may_read(&view, text))
        };
        let mut kinds = ListKind::ALL.into_iter().filter(|kind| has(*kind));
        kinds.all(|kind| readable(&shown.text, kind))
    });
    let offered = capabilities::of_one(active, client, server, hello);
    let parts = [
        ("protocolVersion", Some(revision.as_bytes())),
        ("capabilities", Some(&*offered)),
        ("serverInfo", Some(&info)),
        ("instructions", instructions.as_ref().map(|shown| &*shown.json)),
    ];
    responses::object(id, &parts)
}

pub(crate) async fn discover(context: &Context, request: &Request) -> Answer {
    let Envelope { active, client, id, headers, .. } = &request.envelope;
    let era = Era::Modern;
    let Some(server) = only_server(active, client) else {
        return discovered(id, OWN_INFO.as_bytes(), &capabilities::of_all(active, client));
    };
    // `toolward wrap` forwards the server's own response: the client falls back to the legacy handshake
    // itself.
    let declared = active.declared(client, &server);
    let greeted = match headers {
        Some(_) => context.servers.greet(&server, client, declared).await,
        None => {
            let hello = context.servers.greet_in_own_era(&server, client, declared).await;
            hello.map(|hello| (hello, era))
        }
    };
    let offered = |hello: &Message| capabilities::of_one(active, client, &server, Some(hello));
    match greeted {
        Ok((hello, Era::Modern)) => {
            let ttl = hello.result_member("ttlMs").and_then(Raw::as_i64).unwrap_or(i64::MAX);
            let edit = hello.edit().id(id).remove_own_meta();
            edit.set_result("capabilities", offered(&hello))
                .set_result("cacheScope", &b"\"private\""[..])
                .set_result("ttlMs", ttl.clamp(0, 5000).to_string().into_bytes())
                .remove_result("instructions")
                .finish()
                .into()
        }
        // Over HTTP, the gateway translates: modern clients can use a legacy server.
        Ok((hello, Era::Legacy)) if headers.is_some() => {
            let info = hello.result_member("serverInfo");
            let info = info.map_or(own_info().into(), without_own_meta);
            discovered(id, &info, &offered(&hello))
        }
        // `toolward wrap` behaves like the server itself: a client that supports both versions tries the
        // legacy one next.
        Ok((_, Era::Legacy)) | Err(Unavailable::OtherEra | Unavailable::Unclear) => {
            let why = "the server does not know `server/discover`";
            responses::wrong(StatusCase::UnknownMethod, era, id, code::METHOD_NOT_FOUND, why, None)
        }
        Err(why) => why.public().response(id, server.name()),
    }
}

/// Whether the only server in a client's scope can be started. One that uses the other protocol version
/// counts as started.
pub(crate) async fn ready(
    context: &Context,
    active: &Active,
    client: &Client,
) -> Result<(), Unavailable> {
    let Some(server) = only_server(active, client) else { return Ok(()) };
    match context.servers.greet(&server, client, active.declared(client, &server)).await {
        Err(why @ (Unavailable::Down(_) | Unavailable::Unstartable(_))) => Err(start_help(&why)),
        _ => Ok(()),
    }
}

/// Like [`ready`], for the response to `initialize`: `None` if it is not known within the timeout.
pub(crate) async fn ready_in_time(
    context: &Context,
    active: &Active,
    client: &Client,
) -> Option<Result<(), Unavailable>> {
    let deadline = (client.since + FIRST_ANSWER).into();
    tokio::time::timeout_at(deadline, Box::pin(ready(context, active, client))).await.ok()
}

/// The instructions of a server that agents may see: its own, or the approved ones if they differ.
struct Instructions<'h> {
    text: String,
    /// The same as JSON, as the server wrote it if it is the server's.
    json: Cow<'h, [u8]>,
}

impl<'h> Instructions<'h> {
    fn approved(
        active: &Active,
        server: &Server,
        hello: Option<&'h Message>,
    ) -> Option<Instructions<'h>> {
        // Without a handshake, nothing is known about the server's own.
        let own = hello?.result_member("instructions").filter(|raw| raw.as_str().is_some());
        let text = own.and_then(Raw::as_str);
        let shown = active.pins.instructions(server.name(), text.as_deref())?;
        let json = match (&shown, own) {
            (Cow::Borrowed(_), Some(own)) => Cow::Borrowed(own.bytes()),
            (text, _) => Cow::Owned(string::quote(text)),
        };
        Some(Instructions { text: shown.into_owned(), json })
    }
}

/// Whether a client may read a server's instructions: its lists must be known, and the text must not mention a
/// tool, prompt or resource that is hidden from the client.
fn may_read(view: &View, instructions: &str) -> bool {
    let mut hidden = view.servers().iter().flat_map(|server| &server.removed);
    view.is_complete() && !hidden.any(|name| mentions(instructions, name))
}

/// The gateway's response to `server/discover`, for servers without one of their own.
fn discovered(id: &Id, info: &[u8], capabilities: &[u8]) -> Answer {
    let era = Era::Modern;
    let versions = json!([Revision::newest(era).as_str()]).to_string();
    let info = [format!("{{\"{}\":", meta::SERVER_INFO).as_bytes(), info, b"}"].concat();
    let parts = [
        ("supportedVersions", Some(versions.as_bytes())),
        ("capabilities", Some(capabilities)),
        ("resultType", Some(&b"\"complete\""[..])),
        ("ttlMs", Some(b"5000")),
        ("cacheScope", Some(b"\"private\"")),
        ("_meta", Some(&info)),
    ];
    responses::object(id, &parts)
}

fn own_info() -> &'static [u8] {
    OWN_INFO.as_bytes()
}

/// Whether a text mentions a tool, ignoring case, spaces, punctuation and invisible characters.
fn mentions(text: &str, name: &str) -> bool {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    text.contains(name) || letters(text).contains(&letters(name))
}

fn start_help(why: &Unavailable) -> Unavailable {
    match why {
        Unavailable::Down(why) => {
            Unavailable::Down(format!("{why}. Run the server's command by hand to see its output"))
        }
        Unavailable::Unstartable(why) => Unavailable::Unstartable(format!(
            "{why}. Run the server's command by hand to see its output"
        )),
        other => other.clone(),
    }
}
