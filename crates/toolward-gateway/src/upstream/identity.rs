//! The identity of a server: what was learned or approved for one program or address is void for another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Reach;
use crate::audit::line::hex;

/// Half of a digest, as hexadecimal digits.
const SHORT: usize = 32;

/// The identity for approvals. It does not depend on the directory of the gateway, because gateways that share approvals
/// may run in different ones.
pub(super) fn for_approvals(reach: &Reach) -> String {
    let folder = match reach {
        Reach::Child(launch) => launch.folder.as_deref().map(Path::as_os_str),
        _ => None,
    };
    let mut digest = digest(reach, folder.unwrap_or_default(), "");
    digest.truncate(SHORT);
    digest
}

/// The identity for what is remembered about a server on this machine. The gateway itself has none.
pub(super) fn on_this_machine(reach: &Reach, name: &str) -> Option<String> {
    match reach {
        Reach::Own => None,
        Reach::Child(launch) => {
            // Without a directory, the server runs in that of the gateway.
            let folder = launch.folder.clone().or_else(|| std::env::current_dir().ok())?;
            Some(digest(reach, folder.as_os_str(), name))
        }
        Reach::Http(_) | Reach::InMemory(_) => Some(digest(reach, OsStr::new(""), name)),
    }
}

/// A digest of the command line and directory, or of the URL.
fn digest(reach: &Reach, folder: &OsStr, name: &str) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    match reach {
        Reach::Child(launch) => {
            add(b"command");
            add(launch.file.as_deref().map_or(&*launch.program, Path::as_os_str).as_bytes());
            add(folder.as_bytes());
            launch.arguments.iter().for_each(|argument| add(argument.as_bytes()));
        }
        Reach::Http(remote) => {
            add(b"url");
            let address = &remote.address;
            add(if address.tls { b"https" } else { b"http" });
            add(address.authority.as_bytes());
            add(address.target.as_bytes());
        }
        Reach::InMemory(_) => {
            add(b"memory");
            add(name.as_bytes());
        }
        Reach::Own => add(b"own"),
    }
    hex(&hash.finalize())
}
