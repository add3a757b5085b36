//! Handover of listening sockets to the process that replaces this one (`toolward serve --take-over`).

use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::json;
use tokio::sync::watch;
use toolward_gateway::downstream::accept::{Ending, Socket};
use toolward_gateway::lock::LockUnpoisoned;

use crate::control_client::{CONTROL_TIMEOUT, ask_one, directory, is_of_this_user, sockets_of};
use crate::ownership;

/// Ancillary buffer size, sufficient for some hundred sockets.
const ANCILLARY_BYTES: usize = 2048;

/// The listening sockets that another process takes over.
pub(crate) struct Handover {
    sockets: Mutex<Vec<Socket>>,
    /// Addresses of sockets that were passed in, for example by a service manager.
    kept: Vec<String>,
    end: watch::Sender<Ending>,
}

impl Handover {
    pub(crate) fn new(
        sockets: Vec<Socket>,
        kept: Vec<String>,
        end: watch::Sender<Ending>,
    ) -> Handover {
        Handover { sockets: Mutex::new(sockets), kept, end }
    }

    /// Starts draining: another process has taken over.
    pub(crate) fn end(&self) {
        let _ = self.end.send(Ending::HandedOver);
    }

    /// Closes the sockets: this process accepts no more connections.
    pub(crate) fn close(&self) {
        self.sockets.locked().clear();
    }

    /// Sends the addresses and the sockets themselves.
    pub(crate) fn give(&self, to: &impl AsFd) -> std::io::Result<()> {
        let sockets = self.sockets.locked();
        let addresses: Vec<String> = sockets.iter().map(Socket::address).collect();
        let line = format!("{}\n", json!([addresses, self.kept]));
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(Socket::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if !passed.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(std::io::Error::other("there are too many sockets"));
        }
        let bytes = [std::io::IoSlice::new(line.as_bytes())];
        sendmsg(to, &bytes, &mut passed, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// The process that is replaced, and its sockets by address.
pub(crate) struct InheritedSockets {
    pub(crate) process: u32,
    pub(crate) sockets: Vec<(String, OwnedFd)>,
    /// Addresses whose sockets were passed in.
    pub(crate) kept: Vec<String>,
}

/// Takes the sockets of the gateway with this state directory that listens on one of these addresses. Other
/// gateways may share the directory, and are not affected.
pub(crate) fn inherit(state: &Path, wanted: &[String]) -> Option<InheritedSockets> {
    let own = std::process::id();
    // A user who could put a socket there could hand over their own listeners and read requests.
    if !ownership::is_own_directory(&directory(state)) {
        tracing::warn!(
            target: "handover",
            "there is no gateway to take over from: the state directory is missing or not this user's"
        );
        return None;
    }
    let mut paths = sockets_of(state);
    paths.retain(|(process, _)| *process != own);
    for (process, path) in paths {
        let (sockets, kept) = match take(&path) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                tracing::warn!(target: "handover", "cannot take over from process {process}: {error}");
                continue;
            }
            Err(_) => continue,
        };
        if sockets.iter().any(|(address, _)| wanted.contains(address)) {
            return Some(InheritedSockets { process, sockets, kept });
        }
        if !sockets.is_empty() {
            tracing::info!(
                target: "handover",
                "process {process} listens on other addresses, and is left alone"
            );
        }
    }
    tracing::info!(target: "handover", "there is no gateway to take over from");
    None
}

type SocketsAndAddresses = (Vec<(String, OwnedFd)>, Vec<String>);

fn take(path: &Path) -> std::io::Result<SocketsAndAddresses> {
    let mut stream = UnixStream::connect(path)?;
    is_of_this_user(&stream)?;
    stream.set_read_timeout(Some(CONTROL_TIMEOUT))?;
    writeln!(stream, "sockets")?;
    let mut line = vec![0; 64 << 10];
    let mut space = vec![MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [std::io::IoSliceMut::new(&mut line)];
    let read = recvmsg(&stream, &mut bytes, &mut passed, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let said: [Vec<String>; 2] = serde_json::from_slice(line.get(..read).unwrap_or_default())?;
    let [addresses, kept] = said;
    let sockets = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok((addresses.into_iter().zip(sockets.flatten()).collect(), kept))
}

/// Notifies the old gateway that it was replaced.
pub(crate) fn retire(state: &Path, process: u32) {
    let found = sockets_of(state).into_iter().find(|(found, _)| *found == process);
    if let Some((_, path)) = found {
        let _ = ask_one(&path, "retire", CONTROL_TIMEOUT);
    }
}
