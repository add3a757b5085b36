//! Changed definitions of a server: the same comparison as `toolward changes`, and a button that accepts one of them.
//!
//! The server is asked again, over connections of their own, both when the changes are shown and when one is accepted: a
//! definition that moved in between is not accepted.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use similar::ChangeTag;
use tokio::sync::Mutex;
use toolward_config::Options;
use toolward_gateway::guard::pins::canonical::Digest;
use toolward_gateway::guard::pins::change::Change;
use toolward_gateway::guard::pins::definition::Definition;
use toolward_gateway::guard::pins::screen::Outcome;
use toolward_gateway::methods::edits;
use toolward_policy::text::is_invisible;

use crate::admin::admins::SignedIn;
use crate::admin::editor::pin_editor;
use crate::admin::query::encoded;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::load::{Input, invalid};
use crate::pin_review::accept::{self, NotAccepted};
use crate::pin_review::word_diff::{DiffLine, changed_lines};
use crate::pin_review::{Pinned, not_known};
use crate::pins::accept_command;
use crate::pins::compare::{ChangedEntry, Comparison, compare_server};
use crate::pins::survey::digest_of_server;
use crate::reads::Reads;

/// A look starts the server several times.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangesPage {
    layout: Layout,
    server: String,
    /// The URL of the part, which is loaded afterwards, because the server may be slow.
    part: String,
}

#[derive(Template)]
#[template(path = "changes_part.html")]
struct ChangesPart {
    server: String,
    /// How an acceptance ended.
    message: Option<String>,
    /// Why the person cannot accept anything.
    read_only: Option<&'static str>,
    review: Result<Review, String>,
}

/// The result of a comparison.
struct Review {
    file: String,
    /// Its command line or URL is another one.
    identity: bool,
    instructions: Option<Vec<ShownLine>>,
    entries: Vec<ShownEntry>,
    /// For accepting everything.
    digest: String,
    command: String,
}

struct ShownEntry {
    noun: &'static str,
    name: String,
    class: &'static str,
    outcome: &'static str,
    changes: Vec<(String, &'static str)>,
    lines: Vec<ShownLine>,
    /// `None`: the server no longer has it.
    digest: Option<String>,
}

/// A line as pieces: `ins`, `del` or unchanged. `None`: lines are left out.
type ShownLine = Option<Vec<(&'static str, String)>>;

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    if !query.rest.is_empty() {
        return ViewResponse::Missing;
    }
    let Some(server) = server(page, query) else {
        return ViewResponse::Wrong("There is no such server.".into());
    };
    if query.fragment {
        let _one = ONE_AT_A_TIME.lock().await;
        return respond(page, server, signed, None).await;
    }
    let layout = Layout::new(page, "servers", "Changes").await;
    let part = format!("changes?server={}", encoded(&server));
    ViewResponse::of(&ChangesPage { layout, server, part })
}

/// The server of a request, if it is configured.
fn server(page: &AdminUi, query: &Query) -> Option<String> {
    let name = query.word("server")?;
    let active = page.gateway().active();
    active.servers.iter().any(|server| server.name() == name).then(|| name.to_string())
}

async fn respond(
    page: &Arc<AdminUi>,
    server: String,
    signed: &SignedIn,
    message: Option<String>,
) -> ViewResponse {
    let (options, name) = (page.reloader.options().clone(), server.clone());
    let review = tokio::task::spawn_blocking(move || review(&options, &name)).await;
    let review = review.unwrap_or_else(|_| Err("The comparison failed.".into()));
    let read_only = pin_editor(page, signed).err();
    ViewResponse::of(&ChangesPart { server, message, read_only, review })
}

fn look(options: &Options, server: &str) -> Result<Pinned, String> {
    let input = Input::from(options, Vec::new(), &Reads::default());
    let input = input.map_err(|found| invalid(&found).brief())?;
    Pinned::of(input, (&[server.to_string()], TIMEOUT)).map_err(|failure| failure.brief())
}

fn review(options: &Options, server: &str) -> Result<Review, String> {
    let pinned = look(options, server)?;
    let approved = pinned.approved().map_err(|failure| failure.brief())?;
    let Some((approved, path)) = approved else {
        return Err("No definitions are approved yet. Run `toolward lock`.".into());
    };
    let definition = pinned.definitions.first().ok_or("The server is not configured.")?;
    let survey = pinned.look(definition).map_err(|failure| failure.brief())?;
    let survey = survey.map_err(|why| not_known(server, &why))?;
    let offered = pinned.offered(server, &survey);
    let ignored = pinned.setup(server).map_or(&[][..], |setup| &setup.ignore);
    let compared = compare_server(server, (&offered, pinned.mode(server), ignored), &approved);
    let digest = digest_of_server(&offered).to_string();
    let Comparison { entries, instructions, identity } = compared;
    let texts = |(was, is): (Option<String>, Option<String>)| {
        shown_lines(&was.unwrap_or_default(), &is.unwrap_or_default())
    };
    Ok(Review {
        file: path.display().to_string(),
        identity,
        instructions: instructions.map(texts),
        entries: entries.iter().map(ShownEntry::of).collect(),
        command: accept_command(server, &digest),
        digest,
    })
}

impl Review {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.instructions.is_none() && !self.identity
    }
}

impl ShownEntry {
    fn of(one: &ChangedEntry) -> ShownEntry {
        let text =
            |of: &Option<Definition>| of.as_ref().map(Definition::readable).unwrap_or_default();
        let change = |one: &Change| {
            (format!("{} {}", one.at, one.what).trim().to_string(), one.class.as_str())
        };
        ShownEntry {
            noun: one.kind.noun(),
            name: one.name.clone(),
            class: one.class.as_str(),
            outcome: match one.outcome {
                Outcome::Quarantined => "quarantined",
                Outcome::ApprovedShown => "agents see the approved definition",
                Outcome::Reported => "",
            },
            changes: one.changes.iter().map(change).collect(),
            lines: match &one.current {
                Some(_) => shown_lines(&text(&one.approved), &text(&one.current)),
                None => Vec::new(),
            },
            digest: one.digest.map(|digest| digest.to_string()),
        }
    }
}

fn shown_lines(old: &str, new: &str) -> Vec<ShownLine> {
    let piece = |(tag, text): &(ChangeTag, String)| {
        let kind = match tag {
            ChangeTag::Equal => "",
            ChangeTag::Delete => "del",
            ChangeTag::Insert => "ins",
        };
        (kind, escaped(text))
    };
    let line = |line: &DiffLine| line.as_ref().map(|pieces| pieces.iter().map(piece).collect());
    changed_lines(old, new).iter().map(line).collect()
}

/// Text in which characters that cannot be seen are written as `\u{…}`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            c if is_invisible(c) => out += &format!("\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// Accepts one definition, or all of a server.
pub(crate) async fn accept(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    let Some(server) = server(page, query) else {
        return ViewResponse::Wrong("There is no such server.".into());
    };
    let by = match pin_editor(page, signed) {
        Ok(by) => by,
        Err(why) => return ViewResponse::Forbidden(why.into()),
    };
    let Some(expected) = query.get("expect").and_then(Digest::parse) else {
        return ViewResponse::Wrong("The request must name the digest that was shown.".into());
    };
    let _one = ONE_AT_A_TIME.lock().await;
    let entry = query.word("entry").map(String::from);
    let target = match &entry {
        Some(entry) => format!("{server}/{entry}"),
        None => server.clone(),
    };
    let message = match record(page, &by, &target, expected).await {
        Err(why) => format!("Nothing was accepted: {why}"),
        Ok(()) => {
            let (options, name) = (page.reloader.options().clone(), server.clone());
            let accepted = move || write(&options, &name, (entry.as_deref(), expected));
            match tokio::task::spawn_blocking(accepted).await {
                Ok(Ok(())) => match page.reloader.reload("admin-ui").await {
                    Ok(_) => format!("{target} is accepted."),
                    Err(_) => format!("{target} is accepted, but the configuration was rejected."),
                },
                Ok(Err(why)) => format!("Nothing was accepted: {why}"),
                Err(_) => "Nothing was accepted: the comparison failed.".into(),
            }
        }
    };
    respond(page, server, signed, Some(message)).await
}

fn write(
    options: &Options,
    server: &str,
    (entry, expected): (Option<&str>, Digest),
) -> Result<(), String> {
    let pinned = look(options, server)?;
    let approved = pinned.approved().map_err(|failure| failure.brief())?;
    let (approved, path) = approved.ok_or("no definitions are approved yet.")?;
    let definition = pinned.definitions.first().ok_or("the server is not configured.")?;
    let survey = pinned.look(definition).map_err(|failure| failure.brief())?;
    let survey = survey.map_err(|why| not_known(server, &why))?;
    let offered = pinned.offered(server, &survey);
    match accept::accept((&approved, path), server, (entry, expected), offered) {
        Ok(()) => Ok(()),
        Err(NotAccepted::Moved) => {
            Err("it has changed since it was shown. These are the changes now.".into())
        }
        Err(NotAccepted::NotWritten(why)) => Err(format!("{}: {why}.", path.display())),
    }
}

/// An acceptance is recorded before it takes effect.
async fn record(page: &AdminUi, by: &str, target: &str, digest: Digest) -> Result<(), String> {
    let context = &page.gateway().context;
    let facts = edits::acceptance(by, target, &digest.to_string());
    let recorded = context.audit.record(&context.audit.id(), "pin-approved", &facts).await;
    recorded.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_cannot_be_seen_are_written_out() {
        let lines = shown_lines("Reads a file.", "Reads a\u{202e} file\u{200b}.\tDone");
        let text: String = lines.into_iter().flatten().flatten().map(|(_, text)| text).collect();
        assert!(text.contains("\\u{202e}") && text.contains("\\u{200b}"), "{text}");
        assert!(text.contains("\\t"), "{text}");
    }
}
