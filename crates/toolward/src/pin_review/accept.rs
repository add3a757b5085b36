//! Accepts changed definitions that a person has reviewed.

use std::path::Path;

use toolward_gateway::guard::pins::canonical::Digest;
use toolward_gateway::guard::pins::lock_file::{LockFile, LockedServer, PINNED_KINDS};

use crate::clients::replace_file::{self, NotReplaced};
use crate::pins::survey::{digest_of, digest_of_server};

/// Why a definition was not accepted.
pub(crate) enum NotAccepted {
    /// It is not the one that was shown.
    Moved,
    NotWritten(NotReplaced),
}

/// Writes offered definitions to the file of the approved ones, if they are as expected: one entry, or all of a server.
pub(crate) fn accept(
    (approved, path): (&LockFile, &Path),
    server: &str,
    (entry, expected): (Option<&str>, Digest),
    offered: LockedServer,
) -> Result<(), NotAccepted> {
    let mut file = approved.clone();
    if !accept_into(&mut file, server, (entry, expected), offered) {
        return Err(NotAccepted::Moved);
    }
    let written = replace_file::read(path).and_then(|old| {
        // The file must still be the one that was compared.
        match LockFile::parse(&old) {
            Ok(now) if now == *approved => {
                replace_file::replace(path, &old, file.render().as_bytes())
            }
            _ => Err(NotReplaced::Changed),
        }
    });
    written.map_err(NotAccepted::NotWritten)
}

/// Replaces approved definitions by offered ones, if these have the expected digest.
fn accept_into(
    file: &mut LockFile,
    server: &str,
    (entry, expected): (Option<&str>, Digest),
    offered: LockedServer,
) -> bool {
    let Some(entry) = entry else {
        let is_expected = digest_of_server(&offered) == expected;
        if is_expected {
            file.servers.insert(server.into(), offered);
        }
        return is_expected;
    };
    for kind in PINNED_KINDS {
        let Some(forms) = offered.list(kind).and_then(|list| list.get(entry)) else { continue };
        let old = file.servers.get(server).and_then(|known| known.list(kind));
        let old = old.and_then(|list| list.get(entry)).cloned().unwrap_or_default();
        let one = forms.iter().find(|form| form.digest() == expected);
        let accepted = match one {
            _ if digest_of(forms) == expected => Some(forms.clone()),
            // The admin UI shows one form; the approved ones that are still offered stay.
            Some(form) => {
                let others = old.into_iter().filter(|other| other != form && forms.contains(other));
                Some(std::iter::once(form.clone()).chain(others).collect())
            }
            None => None,
        };
        if let Some(forms) = accepted {
            let known = file.servers.entry(server.into()).or_default();
            if known.identity.is_null() {
                known.identity = offered.identity.clone();
            }
            let list = known.list_mut(kind).get_or_insert_default();
            list.insert(entry.into(), forms);
            return true;
        }
    }
    false
}
