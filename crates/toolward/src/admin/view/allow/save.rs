//! Saves a proposed change.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use toolward_gateway::methods::edits::{self, PolicyEdit};

use super::{Answer, ComputedChange, FileChange, ONE_AT_A_TIME, Wanted, answer, respond};
use crate::admin::admins::SignedIn;
use crate::admin::auth::hex;
use crate::admin::editor::policy_editor;
use crate::admin::{AdminUi, Query, ViewResponse};
use crate::clients::replace_file;

const MOVED: &str = "Nothing was saved: the files are not as they were when the change was shown. \
                     This is the change now.";

pub(crate) async fn save(page: &Arc<AdminUi>, query: &Query, signed: &SignedIn) -> ViewResponse {
    let wanted = match Wanted::read(query) {
        Ok(wanted) => wanted,
        Err(why) => return ViewResponse::Wrong(why.into()),
    };
    let _one = ONE_AT_A_TIME.lock().await;
    let admin = match policy_editor(page, signed) {
        Ok(admin) => admin,
        Err(why) => return ViewResponse::Forbidden(why.into()),
    };
    let computed = answer(page, &wanted).await;
    let Answer::Change(change) = computed else {
        return respond(page, signed, wanted, computed, None).await;
    };
    if query.get("expect") != Some(&*change.digest) {
        return respond(page, signed, wanted, Answer::Change(change), Some(MOVED.into())).await;
    }
    if let Some(why) = &change.not_saved {
        return ViewResponse::Forbidden(why.clone());
    }
    match write(page, &admin, &wanted, &change).await {
        Ok(message) => {
            let now = answer(page, &wanted).await;
            respond(page, signed, wanted, now, Some(message)).await
        }
        Err(why) => {
            let message = Some(format!("Nothing was saved: {why}"));
            respond(page, signed, wanted, Answer::Change(change), message).await
        }
    }
}

/// Writes the files and reloads them. If the reload is rejected, the files are restored.
async fn write(
    page: &Arc<AdminUi>,
    admin: &str,
    wanted: &Wanted,
    change: &ComputedChange,
) -> Result<String, String> {
    record(page, admin, wanted, change).await?;
    let mut written = Vec::new();
    for one in &change.changes {
        if let Err(why) = replace_file::replace(&one.path, &one.before, &one.after) {
            restore(&written)?;
            return Err(format!("{}: {why}.", one.path.display()));
        }
        written.push(one);
    }
    match page.reloader.reload("admin-ui").await {
        Ok(what) => Ok(format!("Saved: {what}.")),
        Err(_) => {
            restore(&written)?;
            let last = page.reloader.state().last.clone();
            let why = last.and_then(|last| last.brief).unwrap_or_default();
            Err(format!("the configuration was rejected, and the file restored: {why}"))
        }
    }
}

fn restore(written: &[&FileChange]) -> Result<(), String> {
    for one in written {
        replace_file::replace(&one.path, &one.after, &one.before)
            .map_err(|why| format!("{} cannot be restored: {why}.", one.path.display()))?;
    }
    Ok(())
}

/// A change is recorded before it is made.
async fn record(
    page: &AdminUi,
    admin: &str,
    wanted: &Wanted,
    change: &ComputedChange,
) -> Result<(), String> {
    let (context, active) = (&page.gateway().context, page.gateway().active());
    let digest = |bytes: &[u8]| format!("sha256:{}", hex(&Sha256::digest(bytes)));
    let file = |one: &FileChange| {
        (one.path.display().to_string(), digest(&one.before), digest(&one.after))
    };
    let facts = edits::policy_edit(&PolicyEdit {
        by: admin,
        agent: &wanted.agent,
        server: &wanted.server,
        tool: &wanted.tool,
        when: wanted.when.as_deref(),
        files: change.changes.iter().map(file).collect(),
        policy: &active.version,
    });
    let recorded = context.audit.record(&context.audit.id(), "policy-edit", &facts).await;
    recorded.map_err(|error| error.to_string())
}
