//! The socket by which this user asks a running gateway: `toolward status`, `toolward reload`, and
//! `toolward serve --take-over`, which gets the listening sockets and then sends the old process home.
//!
//! One word and the end of the line, one line of JSON back. It lies in the state folder, which only this
//! user can reach, and the user at the other end is looked at once more.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::watch;
use toolward_gateway::audit::Recording;
use toolward_gateway::audit::line::time;
use toolward_gateway::downstream::accept::{Ending, Socket};
use toolward_gateway::log::Log;

use crate::status_report;
use crate::ownership;
use crate::reload::Reloader;
use crate::running::Running;

/// Asking takes no longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest request: a word and the path of a configuration.
const MAX_WORD: u64 = 8 << 10;
/// Room for some hundred sockets.
const MOST_ROOM: usize = 2048;

fn folder(state: &Path) -> PathBuf {
    state.join("control")
}

/// A socket that goes with the process.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The main file of this gateway.
    config: Option<PathBuf>,
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Control {
    pub(crate) fn open(running: &Running) -> std::io::Result<Control> {
        let folder = folder(&running.state);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(format!("{}.sock", running.process));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        Ok(Control { listener, path, config: running.config.clone() })
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
            let config = self.config.clone();
            tokio::spawn(async move {
                let (from, mut to) = stream.split();
                let mut word = String::new();
                let mut from = tokio::io::BufReader::new(from.take(MAX_WORD));
                let read = tokio::time::timeout(PATIENCE, from.read_line(&mut word)).await;
                if !matches!(read, Ok(Ok(_))) {
                    return;
                }
                let answer = match word.trim() {
                    "reload" => reloaded(reloader.reload("toolward reload").await),
                    "reload --accept" => {
                        reloaded(reloader.reload_accepting("toolward reload --accept").await)
                    }
                    // A person looked at one configuration; other gateways may share the directory.
                    word if word.starts_with(ACCEPT_OF) => {
                        let meant = serde_json::from_str(&word[ACCEPT_OF.len()..]).ok();
                        if meant.is_some_and(|meant: PathBuf| Some(meant) == config) {
                            reloaded(reloader.reload_accepting("toolward reload --accept").await)
                        } else {
                            json!({"another": true})
                        }
                    }
                    "status" => status(&reloader, begun).await,
                    "tools" => tools(&reloader),
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

const ACCEPT_OF: &str = "reload --accept of ";

/// The request to accept a configuration as it is, for gateways with this main file alone.
pub(crate) fn accept(main: &Path) -> String {
    let main = main.canonicalize().unwrap_or_else(|_| main.to_owned());
    format!("{ACCEPT_OF}{}", json!(main.to_string_lossy()))
}

fn reloaded(outcome: Result<String, String>) -> Value {
    match outcome {
        Ok(what) => json!({"reloaded": true, "message": what}),
        Err(why) => json!({"reloaded": false, "error": why}),
    }
}

/// What another process takes over.
pub(crate) struct Heritage {
    sockets: Mutex<Vec<Socket>>,
    /// Addresses of sockets that somebody else made, such as a service manager.
    kept: Vec<String>,
    end: watch::Sender<Ending>,
}

impl Heritage {
    pub(crate) fn new(
        sockets: Vec<Socket>,
        kept: Vec<String>,
        end: watch::Sender<Ending>,
    ) -> Heritage {
        Heritage { sockets: Mutex::new(sockets), kept, end }
    }

    /// Lets go of the sockets: nobody comes in by this process any more.
    pub(crate) fn close(&self) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Sends the addresses and the sockets themselves.
    fn give(&self, to: &impl AsFd) -> std::io::Result<()> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses: Vec<String> = sockets.iter().map(Socket::address).collect();
        let line = format!("{}\n", json!([addresses, self.kept]));
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
    /// Addresses whose sockets somebody else made.
    pub(crate) kept: Vec<String>,
}

/// The sockets of the gateway that runs with this state folder and holds one of these addresses. Others
/// may share the folder, and are left alone.
pub(crate) fn inherit(state: &Path, wanted: &[String], log: &Log) -> Option<Inherited> {
    let own = std::process::id();
    // Whoever can put a socket there could hand over listeners of their own, and read what clients send.
    if !ownership::is_own_directory(&folder(state)) {
        log(
            "there is no gateway to take over from: the state directory is missing or not this user's",
        );
        return None;
    }
    let mut paths = sockets_of(state);
    paths.retain(|(process, _)| *process != own);
    for (process, path) in paths {
        let (sockets, kept) = match take(&path) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                log(&format!("process {process} is not taken over from: {error}"));
                continue;
            }
            Err(_) => continue,
        };
        if sockets.iter().any(|(address, _)| wanted.contains(address)) {
            return Some(Inherited { process, sockets, kept });
        }
        if !sockets.is_empty() {
            log(&format!("process {process} listens on other addresses, and is left alone"));
        }
    }
    log("there is no gateway to take over from");
    None
}

/// The process at the other end must run as this user, or as root.
fn is_of_this_user(stream: &UnixStream) -> std::io::Result<()> {
    let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if user == rustix::process::geteuid() || user.is_root() {
        return Ok(());
    }
    let why = format!("its control socket belongs to a process of uid {}", user.as_raw());
    Err(std::io::Error::new(ErrorKind::PermissionDenied, why))
}

type Taken = (Vec<(String, OwnedFd)>, Vec<String>);

fn take(path: &Path) -> std::io::Result<Taken> {
    let mut stream = UnixStream::connect(path)?;
    is_of_this_user(&stream)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "sockets")?;
    let mut line = vec![0; 64 << 10];
    let mut space = vec![MaybeUninit::uninit(); MOST_ROOM];
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

/// Tells the gateway that another one has taken its place.
pub(crate) fn retire(state: &Path, process: u32) {
    let found = sockets_of(state).into_iter().find(|(found, _)| *found == process);
    if let Some((_, path)) = found {
        let _ = ask_one(&path, "retire", PATIENCE);
    }
}

pub(crate) async fn status(reloader: &Reloader, begun: Instant) -> Value {
    let gateway = reloader.gateway();
    let snapshot = gateway.current.get();
    let servers: Vec<Value> =
        snapshot.servers.iter().map(|server| status_report::server(server)).collect();
    let audit = match gateway.audit.recording().await {
        Recording::Recorded => "ok",
        Recording::Refused => "failing",
        Recording::Unrecorded => "unrecorded",
    };
    // It looks at the state by itself.
    let callers = reloader.callers();
    let running = reloader.running();
    let state = reloader.state();
    let last = state
        .last
        .as_ref()
        .map(|last| json!({"time": time(last.at), "by": last.by, "error": last.error}));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "uptime_s": begun.elapsed().as_secs(),
        "page": reloader.page.get(),
        "policy": status_report::policy(&snapshot),
        "agents": callers.iter().flatten().collect::<Vec<_>>(),
        "read_only": snapshot.policy.is_read_only(),
        "allow_all": !snapshot.enforced,
        "servers": servers,
        "audit": audit,
        "audit_required": gateway.audit.is_required(),
        "audit_dir": running.as_ref().map(|running| &running.audit),
        "config": running.as_ref().and_then(|running| running.config.as_ref()),
        "denying": state.denying,
        "draining": state.draining,
        "failing_tests": state.failing,
        "reload": {"taken_up": state.taken_up, "refused": state.refused, "last": last},
    })
}

/// The tools that servers have listed, as they were sent.
fn tools(reloader: &Reloader) -> Value {
    let snapshot = reloader.gateway().current.get();
    let mut lists = serde_json::Map::new();
    for server in snapshot.servers.iter() {
        if let Some(listed) = server.listed() {
            let entries = listed.catalogue.entries().iter();
            lists
                .insert(server.name().into(), entries.map(|entry| entry.raw().to_json()).collect());
        }
    }
    let config = reloader.running().and_then(|running| running.config);
    json!({"process": std::process::id(), "config": config, "servers": lists})
}

/// Whether a gateway of this user listens on the control socket of a process. One that is too busy to
/// accept does.
pub(crate) fn listens(state: &Path, process: u32) -> bool {
    match dial(&folder(state).join(format!("{process}.sock"))) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Connects to a control socket of this user's, without waiting for one whose queue is full.
fn dial(path: &Path) -> std::io::Result<UnixStream> {
    let kind = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    is_of_this_user(&stream)?;
    Ok(stream)
}

/// What the gateways of a state folder said, by their processes.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) answers: Vec<(u32, Value)>,
    /// Those that are there, and did not answer in time.
    pub(crate) silent: Vec<u32>,
}

/// Asks every gateway of these state directories, all at the same time.
pub(crate) fn ask(states: &[PathBuf], word: &str, patience: Duration) -> Asked {
    let all: Vec<(u32, PathBuf)> = states.iter().flat_map(|state| sockets_of(state)).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asking = |(_, path): &(u32, PathBuf)| {
            let path = path.clone();
            scope.spawn(move || ask_one(&path, word, patience))
        };
        let asking: Vec<_> = all.iter().map(asking).collect();
        asking.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut asked = Asked::default();
    for ((process, path), answer) in all.into_iter().zip(answers) {
        use std::io::ErrorKind::{ConnectionRefused, TimedOut, WouldBlock};
        match answer {
            // A gateway with another configuration, which was not meant.
            Ok(Ok(answer)) if answer["another"] == true => {}
            Ok(Ok(answer)) => asked.answers.push((process, answer)),
            // Nobody listens there any more.
            Ok(Err(error)) if error.kind() == ConnectionRefused => {
                let _ = std::fs::remove_file(&path);
            }
            Ok(Err(error)) if matches!(error.kind(), TimedOut | WouldBlock) => {
                asked.silent.push(process);
            }
            _ => {}
        }
    }
    asked
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

fn ask_one(path: &Path, word: &str, patience: Duration) -> std::io::Result<Value> {
    let mut stream = dial(path)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    writeln!(stream, "{word}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
