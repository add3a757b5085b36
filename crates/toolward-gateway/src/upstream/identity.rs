//! The identity of a server for approvals: an approval that was given for one program or address is void for another.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Reach;
use crate::audit::line::hex;

/// A digest of the command line and directory, or of the URL. It does not depend on the directory of the gateway, because
/// gateways that share approvals may run in different ones.
pub(super) fn of(reach: &Reach) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    match reach {
        Reach::Child(launch) => {
            add(b"command");
            add(launch.file.as_deref().map_or(&*launch.program, Path::as_os_str).as_bytes());
            let folder = launch.folder.as_deref().map(Path::as_os_str);
            add(folder.map(OsStrExt::as_bytes).unwrap_or_default());
            launch.arguments.iter().for_each(|argument| add(argument.as_bytes()));
        }
        Reach::Http(remote) => {
            add(b"url");
            let address = &remote.address;
            add(if address.tls { b"https" } else { b"http" });
            add(address.authority.as_bytes());
            add(address.target.as_bytes());
        }
        Reach::InMemory(_) => add(b"memory"),
        Reach::Own => add(b"own"),
    }
    hex(hash.finalize().get(..16).unwrap_or_default())
}
