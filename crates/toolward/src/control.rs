//! The socket by which this user asks a running gateway: `toolward status`, `toolward reload`, and
//! `toolward serve --take-over`, which gets the listening sockets and then sends the old process home.
//!
//! One word and the end of the line, one line of JSON back. It lies in the state folder, which only this
//! user can reach, and the user at the other end is looked at once more.

use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::watch;
use toolward_gateway::audit::line::time;
use toolward_gateway::listen::serve::{Ending, Socket};

use crate::reload::Reloader;

/// Asking takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(30);
/// Room for some hundred sockets.
const MOST_ROOM: usize = 2048;

fn folder(state: &Path) -> PathBuf {
    state.join("control")
}

/// A socket that goes with the process.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Control {
    pub(crate) fn open(state: &Path) -> std::io::Result<Control> {
        let folder = folder(state);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Ok(Control { listener: UnixListener::bind(&path)?, path })
    }

    /// Answers for as long as the process lives.
    pub(crate) async fn serve(self, reloader: Arc<Reloader>, heir: Option<Arc<Heritage>>) {
        let begun = Instant::now();
        let own = rustix::process::geteuid().as_raw();
        while let Ok((mut stream, _)) = self.listener.accept().await {
            let user = stream.peer_cred().map(|peer| peer.uid());
            if !user.is_ok_and(|user| user == own || user == 0) {
                continue;
            }
            let (reloader, heir) = (reloader.clone(), heir.clone());
            tokio::spawn(async move {
                let (from, mut to) = stream.split();
                let mut word = String::new();
                let mut from = tokio::io::BufReader::new(from.take(64));
                let read = tokio::time::timeout(PATIENCE, from.read_line(&mut word)).await;
                if !matches!(read, Ok(Ok(_))) {
                    return;
                }
                let answer = match word.trim() {
                    "reload" => match reloader.reload("toolward reload").await {
                        Ok(what) => json!({"reloaded": true, "message": what}),
                        Err(why) => json!({"reloaded": false, "error": why}),
                    },
                    "status" => status(&reloader, begun).await,
                    "sockets" => {
                        let Some(heir) = heir else { return };
                        drop((from, to));
                        let _ = stream.writable().await;
                        let _ = heir.give(&stream);
                        return;
                    }
                    "retire" => {
                        if let Some(heir) = heir {
                            let _ = heir.end.send(Ending::HandedOver);
                        }
                        json!({"retired": true})
                    }
                    _ => json!({"error": "there are `status` and `reload`"}),
                };
                let _ = to.write_all(format!("{answer}\n").as_bytes()).await;
            });
        }
    }
}

/// What another process takes over.
pub(crate) struct Heritage {
    sockets: Mutex<Vec<Socket>>,
    end: watch::Sender<Ending>,
}

impl Heritage {
    pub(crate) fn new(sockets: Vec<Socket>, end: watch::Sender<Ending>) -> Heritage {
        Heritage { sockets: Mutex::new(sockets), end }
    }

    /// Lets go of the sockets: nobody comes in by this process any more.
    pub(crate) fn close(&self) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Sends the addresses and the sockets themselves.
    fn give(&self, to: &impl AsFd) -> std::io::Result<()> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses: Vec<String> = sockets.iter().map(Socket::address).collect();
        let line = format!("{}\n", json!(addresses));
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(Socket::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); MOST_ROOM];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if !passed.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(std::io::Error::other("there are too many sockets"));
        }
        let bytes = [std::io::IoSlice::new(line.as_bytes())];
        sendmsg(to, &bytes, &mut passed, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// A gateway that hands over, and its sockets by their addresses.
pub(crate) struct Inherited {
    pub(crate) process: u32,
    pub(crate) sockets: Vec<(String, OwnedFd)>,
}

/// The sockets of the gateway that runs with this state folder.
pub(crate) fn inherit(state: &Path) -> Option<Inherited> {
    let own = std::process::id();
    let mut paths = sockets_of(state);
    paths.retain(|(process, _)| *process != own);
    paths.into_iter().find_map(|(process, path)| {
        let sockets = take(&path).ok().filter(|sockets| !sockets.is_empty())?;
        Some(Inherited { process, sockets })
    })
}

fn take(path: &Path) -> std::io::Result<Vec<(String, OwnedFd)>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "sockets")?;
    let mut line = vec![0; 64 << 10];
    let mut space = vec![MaybeUninit::uninit(); MOST_ROOM];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [std::io::IoSliceMut::new(&mut line)];
    let read = recvmsg(&stream, &mut bytes, &mut passed, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let addresses: Vec<String> = serde_json::from_slice(line.get(..read).unwrap_or_default())?;
    let sockets = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(addresses.into_iter().zip(sockets.flatten()).collect())
}

/// Tells the gateway that another one has taken its place.
pub(crate) fn retire(state: &Path, process: u32) {
    let found = sockets_of(state).into_iter().find(|(found, _)| *found == process);
    if let Some((_, path)) = found {
        let _ = ask_one(&path, "retire");
    }
}

async fn status(reloader: &Reloader, begun: Instant) -> Value {
    let gateway = reloader.gateway();
    let snapshot = gateway.current.get();
    let servers: Vec<Value> = snapshot
        .servers
        .iter()
        .map(|server| {
            let (state, eras) = server.state();
            let eras: Vec<&str> = eras.iter().map(|revision| revision.as_str()).collect();
            let tools = server.listed().map(|listed| listed.catalogue.entries().len());
            json!({"name": server.name(), "state": state, "revisions": eras, "tools": tools})
        })
        .collect();
    let layers: Vec<&str> = snapshot.policy.layer_names().collect();
    let audit = if gateway.audit.accepts().await { "ok" } else { "failing" };
    let state = reloader.state();
    let last = state
        .last
        .as_ref()
        .map(|last| json!({"time": time(last.at), "by": last.by, "error": last.error}));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "uptime_s": begun.elapsed().as_secs(),
        "policy": {"version": snapshot.version, "layers": layers},
        "agents": snapshot.policy.agents(),
        "read_only": snapshot.policy.is_read_only(),
        "allow_all": !snapshot.enforced,
        "servers": servers,
        "audit": audit,
        "reload": {"taken_up": state.taken_up, "refused": state.refused, "last": last},
    })
}

/// Asks every gateway of this state folder; gives what each said, by its process.
pub(crate) fn ask(state: &Path, word: &str) -> Vec<(u32, Value)> {
    let mut answers = Vec::new();
    for (process, path) in sockets_of(state) {
        match ask_one(&path, word) {
            Ok(answer) => answers.push((process, answer)),
            // Nobody listens there any more.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    answers
}

/// The control sockets of a state folder, by process.
fn sockets_of(state: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder(state)) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = paths.filter_map(|path| {
        let process = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())?;
        Some((process, path))
    });
    let mut found: Vec<(u32, PathBuf)> = named.collect();
    // The newest first: it has the sockets.
    let age = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    found.sort_by_key(|(_, path)| std::cmp::Reverse(age(path)));
    found
}

fn ask_one(path: &Path, word: &str) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{word}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
