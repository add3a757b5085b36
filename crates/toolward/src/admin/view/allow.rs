//! "Allow this…": the change of a policy file that permits a refused call, its effect, and saving it.
//!
//! The proposal is that of `toolward allow`. A request names an agent and a tool, and never a file or its content: the
//! change is computed again when it is saved, and saved only if it is the one that was shown. Only what agents may use is
//! ever changed, and the result goes through an ordinary reload; if that is rejected, the file is restored.

mod save;

use std::sync::Arc;

use askama::Template;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use toolward_config::{LoadedConfig, Options};
use toolward_policy::Catalogue;

use crate::active_config::{cases, known};
use crate::admin::admins::SignedIn;
use crate::admin::auth::hex;
use crate::admin::editor::policy_editor;
use crate::admin::query::encoded;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::allow::proposal::{FileChange, Proposal};
use crate::allow::{Effect, load_changed, unified_diff};
use crate::clients::replace_file;
use crate::load::{Input, invalid};
use crate::pins::allow_command;
use crate::reads::Reads;

pub(crate) use self::save::save;

/// A proposal may use much memory for a moment, and two of them must not be saved at the same time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
/// The number of tools and calls that are shown as the effect.
const MAX_SHOWN: usize = 50;
/// The longest condition.
const MAX_WHEN_BYTES: usize = 2048;

#[derive(Template)]
#[template(path = "allow.html")]
struct AllowPage {
    layout: Layout,
    shown: Shown,
}

/// Steps of denials that an entry could lift: no rule denies the call by name.
const BY_DEFAULT: [&str; 3] = ["6-default-deny", "allowlist-none", "server-not-allowed"];

/// The URL of the proposal for a denied call, if an entry could permit it.
pub(crate) fn address(agent: &str, (server, tool): (&str, &str), step: &str) -> Option<String> {
    let [agent, server, tool] = [agent, server, tool].map(encoded);
    let address = || format!("allow?agent={agent}&server={server}&tool={tool}");
    BY_DEFAULT.contains(&step).then(address)
}

/// The access to allow.
#[derive(Clone)]
struct Wanted {
    agent: String,
    server: String,
    tool: String,
    when: Option<String>,
}

impl Wanted {
    fn read(query: &Query) -> Result<Wanted, &'static str> {
        let word = |name: &str| query.word(name).map(String::from);
        let named = (word("agent"), word("server"), word("tool"));
        let (Some(agent), Some(server), Some(tool)) = named else {
            return Err("The request must name an agent, a server and a tool.");
        };
        let when = query.word("when").map(str::trim).filter(|when| !when.is_empty());
        if when.is_some_and(|when| when.len() > MAX_WHEN_BYTES) {
            return Err("The condition is too long.");
        }
        Ok(Wanted { agent, server, tool, when: when.map(String::from) })
    }

    fn subject(&self) -> (&str, &str) {
        (&self.server, &self.tool)
    }
}

struct Shown {
    wanted: Wanted,
    /// How saving ended.
    message: Option<String>,
    command: String,
    answer: Answer,
    /// Why the person cannot save it.
    read_only: Option<String>,
}

/// The answer to a wish.
enum Answer {
    /// It is allowed already, for this reason.
    Allowed(String),
    /// No entry could permit it, or the change would not be valid.
    Impossible(Vec<String>),
    Change(Box<ComputedChange>),
}

struct ComputedChange {
    changes: Vec<FileChange>,
    files: Vec<ShownDiff>,
    gained: Vec<(String, &'static str)>,
    more_gained: usize,
    others: Vec<String>,
    more_others: usize,
    tests: usize,
    /// Identifies the change, so that no other one is saved.
    digest: String,
    /// Why no one can save it here.
    not_saved: Option<String>,
}

/// A diff of a file, without secrets.
struct ShownDiff {
    name: String,
    lines: Vec<(&'static str, String)>,
    text: String,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    if !query.rest.is_empty() {
        return ViewResponse::Missing;
    }
    let wanted = match Wanted::read(query) {
        Ok(wanted) => wanted,
        Err(why) => return ViewResponse::Wrong(why.into()),
    };
    let answer = {
        let _one = ONE_AT_A_TIME.lock().await;
        answer(page, &wanted).await
    };
    respond(page, signed, wanted, answer, None).await
}

async fn respond(
    page: &Arc<AdminUi>,
    signed: &SignedIn,
    wanted: Wanted,
    answer: Answer,
    message: Option<String>,
) -> ViewResponse {
    let layout = Layout::new(page, "policy", "Allow").await;
    let command = allow_command(&wanted.agent, &wanted.server, &wanted.tool);
    let own = policy_editor(page, signed).err().map(String::from);
    let read_only = match &answer {
        Answer::Change(change) => change.not_saved.clone().or(own),
        _ => None,
    };
    ViewResponse::of(&AllowPage {
        layout,
        shown: Shown { wanted, message, command, answer, read_only },
    })
}

/// The change for the configuration as it is on the disk now, and the tools that servers list now.
async fn answer(page: &Arc<AdminUi>, wanted: &Wanted) -> Answer {
    drop(page.lists.ask(page.gateway()).await);
    let options = page.reloader.options().clone();
    let catalogue = known(&page.gateway().active());
    let wanted = wanted.clone();
    let computed = tokio::task::spawn_blocking(move || compute(&options, catalogue, &wanted));
    computed.await.unwrap_or_else(|_| Answer::Impossible(vec!["The proposal failed.".into()]))
}

fn compute(options: &Options, catalogue: Catalogue, wanted: &Wanted) -> Answer {
    let impossible = |text: &str| Answer::Impossible(text.lines().map(String::from).collect());
    let mut input = match Input::from(options, Vec::new(), &Reads::default()) {
        Ok(input) => input,
        Err(found) => return impossible(&invalid(&found).brief()),
    };
    for (server, tools) in catalogue.lists() {
        input.catalogue.insert(server, Some(tools.clone()));
    }
    let changes =
        match Proposal::new(&input, &wanted.agent, wanted.subject(), wanted.when.as_deref()) {
            Proposal::Change(changes) => changes,
            Proposal::Allowed(reason) => return Answer::Allowed(reason),
            Proposal::Refused(why) => return impossible(&why),
        };
    let after = match load_changed(options, &changes, &input.catalogue) {
        Ok(after) => after,
        Err(failure) => return impossible(&failure.brief()),
    };
    let effect = Effect::new(&input.policy, &after, &wanted.agent, wanted.subject());
    if !effect.reaches(wanted.subject()) {
        return impossible("The change would not be enough: the agent still could not use it.");
    }
    let files = changes.iter().map(|change| ShownDiff::new(change, &input.loaded, &after.loaded));
    let gained = effect.gained.iter().take(MAX_SHOWN);
    Answer::Change(Box::new(ComputedChange {
        files: files.collect(),
        gained: gained.map(|(name, verdict)| (name.clone(), verdict.as_str())).collect(),
        more_gained: effect.gained.len().saturating_sub(MAX_SHOWN),
        more_others: effect.others.len().saturating_sub(MAX_SHOWN),
        others: effect.others.into_iter().take(MAX_SHOWN).collect(),
        tests: cases(&after.checked()).len(),
        digest: digest(&changes),
        not_saved: changes.iter().find_map(|change| not_saved(change, &wanted.agent)),
        changes,
    }))
}

/// Why a change cannot be saved from a browser.
fn not_saved(change: &FileChange, agent: &str) -> Option<String> {
    let path = change.path.display();
    if !change.is_only_allow_of(agent) {
        return Some(format!(
            "{path}: only what an agent may use can be saved here; make this change by hand."
        ));
    }
    replace_file::check_writable(&change.path).err().map(|why| format!("{path}: {why}."))
}

fn digest(changes: &[FileChange]) -> String {
    let mut digest = Sha256::new();
    for change in changes {
        let path = change.path.as_os_str().as_encoded_bytes();
        for part in [path, &change.before, &change.after] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    hex(&digest.finalize())
}

impl ShownDiff {
    fn new(change: &FileChange, before: &LoadedConfig, after: &LoadedConfig) -> ShownDiff {
        let name = change.path.display().to_string();
        let text = |loaded: &LoadedConfig| {
            let file = loaded.shown().into_iter().find(|file| file.name == name);
            let lines = file.and_then(|file| file.lines).unwrap_or_default();
            lines.into_iter().map(|line| line.replace('\t', "    ") + "\n").collect::<String>()
        };
        let text = unified_diff(&name, &text(before), &text(after));
        let line = |line: &str| {
            let kind = match line.as_bytes().first() {
                Some(b'+') => "added",
                Some(b'-') => "removed",
                Some(b'@') => "where",
                _ => "same",
            };
            (kind, line.to_string())
        };
        // The first two lines name the file.
        ShownDiff { lines: text.lines().skip(2).map(line).collect(), name, text }
    }
}
