//! Notifications for approvers: a program that gets a summary on its input, or an HTTP request.
//!
//! A notification that cannot be delivered is logged. The ticket is in the admin UI and in `toolward pending`.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, copy, sink};

use super::ticket::Ticket;
use crate::audit::line::time;
use crate::audit::redact::outside;
use crate::guard::hooks::Environment;
use crate::guard::hooks::process::{Program, Running};
use crate::http_client::{Address, Client};

/// How long a notification may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The response of a service is not used.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// A channel for notifications.
pub struct Notifier {
    channel: Channel,
    arguments: bool,
}

enum Channel {
    Exec(Program),
    Http(Address, NotifyFormat),
}

/// The format of a notification over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyFormat {
    Json,
    Slack,
    Ntfy,
}

impl Notifier {
    /// A program, without a shell. The error is why it cannot be started.
    pub fn exec(program: OsString, arguments: Vec<OsString>) -> Result<Notifier, String> {
        let program = Program::new(program, arguments, Environment::default()).resolved()?;
        Ok(Notifier { channel: Channel::Exec(program), arguments: false })
    }

    pub fn http(address: Address, format: NotifyFormat) -> Notifier {
        Notifier { channel: Channel::Http(address, format), arguments: false }
    }

    /// The notification contains the call's arguments.
    pub fn with_arguments(self, arguments: bool) -> Notifier {
        Notifier { arguments, ..self }
    }

    /// Sends a notification about a ticket.
    pub(crate) async fn send(&self, ticket: &Ticket, params: Option<&str>) {
        let params = params.filter(|_| self.arguments);
        let sent = async {
            match &self.channel {
                Channel::Exec(program) => run(program, &summary(ticket, params)).await,
                Channel::Http(address, format) => post(address, *format, ticket, params).await,
            }
        };
        let failed = match tokio::time::timeout(TIMEOUT, sent).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took longer than {} s", TIMEOUT.as_secs()),
        };
        tracing::warn!(target: "approvals", "a notification cannot be delivered: {failed}");
    }
}

/// The text of a notification.
fn summary(ticket: &Ticket, params: Option<&str>) -> String {
    let subject = &ticket.binding.subject;
    let agent = subject.agent.as_deref().map_or("an unnamed caller".into(), outside);
    let (server, name) = (outside(&subject.server), outside(&subject.name));
    let mut text = format!("{agent} waits for approval to use {server}/{name}\n");
    for rule in &ticket.rules {
        text += &format!("Rule: {} ({})\n", outside(&rule.written), outside(&rule.location));
    }
    if let Some(params) = params {
        text += &format!("Parameters: {}\n", visible(params));
    }
    let id = &ticket.id;
    text += &format!("Until: {}\n", time(ticket.expires));
    text + &format!("Decide: toolward approve {id}, or toolward deny {id}\n")
}

/// Control and format characters as escape sequences: a text must not look like another one.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' '..='~' => out.push(character),
            _ if character.is_alphanumeric() => out.push(character),
            _ => out.extend(character.escape_unicode()),
        }
    }
    out
}

fn event(ticket: &Ticket, params: Option<&str>) -> Value {
    let subject = &ticket.binding.subject;
    let rules = ticket.rules.iter().map(|rule| json!({"rule": rule.written, "at": rule.location}));
    let mut event = json!({
        "event": "approval_requested", "ticket": ticket.id, "agent": subject.agent.as_deref(),
        "server": subject.server, "tool": subject.name, "method": subject.method,
        "rules": rules.collect::<Vec<_>>(), "created": time(ticket.created),
        "expires": time(ticket.expires),
    });
    if let Some(params) = params {
        let cut = params.len() < ticket.bytes;
        // Parameters that are cut are no longer JSON.
        event["params"] =
            serde_json::from_str(params).ok().filter(|_| !cut).unwrap_or(json!(params));
        event["params_cut"] = json!(cut);
    }
    event
}

async fn run(program: &Program, summary: &str) -> io::Result<()> {
    let Running { mut group, mut child, mut stdin, mut stdout, mut stderr } = program.start()?;
    let feed = async move {
        // A program need not read its input.
        let _ = stdin.write_all(summary.as_bytes()).await;
    };
    // Its output is not used.
    let (mut nowhere, mut nowhere_else) = (sink(), sink());
    let streams = async {
        tokio::join!(feed, copy(&mut stdout, &mut nowhere), copy(&mut stderr, &mut nowhere_else))
    };
    tokio::pin!(streams);
    let mut open = true;
    let exit = loop {
        tokio::select! {
            exit = child.wait() => break exit,
            _ = &mut streams, if open => open = false,
        }
    };
    group.kill();
    match exit?.code() {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::other(format!("it exits with {code}"))),
        None => Err(io::Error::other("it was killed")),
    }
}

async fn post(
    address: &Address,
    format: NotifyFormat,
    ticket: &Ticket,
    params: Option<&str>,
) -> io::Result<()> {
    let (kind, body) = match format {
        NotifyFormat::Json => ("application/json", event(ticket, params).to_string()),
        NotifyFormat::Slack => {
            ("application/json", json!({"text": summary(ticket, params)}).to_string())
        }
        NotifyFormat::Ntfy => ("text/plain; charset=utf-8", summary(ticket, params)),
    };
    let mut fields = vec![("Accept-Encoding", "identity"), ("Content-Type", kind)];
    if format == NotifyFormat::Ntfy {
        fields.push(("Title", "Toolward: a call waits for approval"));
    }
    let client = Client::new(address.clone(), None);
    let mut request = client.request("POST", &address.target, &fields, Some(body.len()))?;
    request.extend_from_slice(body.as_bytes());
    let mut connection = client.send(&request).await?;
    let head = connection.response().await?;
    drop(client.body(connection, &head, MAX_RESPONSE_BYTES).await);
    match head.status {
        200..=299 => Ok(()),
        status => Err(io::Error::other(format!("the service responds with status {status}"))),
    }
}
