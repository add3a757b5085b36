//! Requests to the control sockets of running gateways.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};

/// Timeout of control requests.
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join("control")
}

pub(crate) const ACCEPT_OF: &str = "reload --accept of ";

/// The request to accept a configuration as it is, for gateways with this main file alone.
pub(crate) fn accept(main: &Path) -> String {
    let main = main.canonicalize().unwrap_or_else(|_| main.to_owned());
    format!("{ACCEPT_OF}{}", json!(main.to_string_lossy()))
}

/// The process at the other end must run as this user, or as root.
pub(crate) fn is_of_this_user(stream: &UnixStream) -> std::io::Result<()> {
    let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if user == rustix::process::geteuid() || user.is_root() {
        return Ok(());
    }
    let why = format!("its control socket belongs to a process of uid {}", user.as_raw());
    Err(std::io::Error::new(ErrorKind::PermissionDenied, why))
}

/// Whether a gateway of this user listens on the control socket of a process. A full accept queue
/// counts as listening.
pub(crate) fn listens(state: &Path, process: u32) -> bool {
    match dial(&directory(state).join(format!("{process}.sock"))) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Connects to a control socket of this user without blocking on a full accept queue.
fn dial(path: &Path) -> std::io::Result<UnixStream> {
    let kind = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    is_of_this_user(&stream)?;
    Ok(stream)
}

/// The replies of the gateways of a state directory, by process id.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) answers: Vec<(u32, Value)>,
    /// Gateways that did not answer in time.
    pub(crate) silent: Vec<u32>,
}

/// Sends a request to every gateway of these state directories concurrently.
pub(crate) fn ask(states: &[PathBuf], word: &str, timeout: Duration) -> Replies {
    let all: Vec<(u32, PathBuf)> = states.iter().flat_map(|state| sockets_of(state)).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asking = |(_, path): &(u32, PathBuf)| {
            let path = path.clone();
            scope.spawn(move || ask_one(&path, word, timeout))
        };
        let asking: Vec<_> = all.iter().map(asking).collect();
        asking.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut asked = Replies::default();
    for ((process, path), answer) in all.into_iter().zip(answers) {
        use std::io::ErrorKind::{ConnectionRefused, TimedOut, WouldBlock};
        match answer {
            // A gateway with another configuration.
            Ok(Ok(answer)) if answer["another"] == true => {}
            Ok(Ok(answer)) => asked.answers.push((process, answer)),
            // The process no longer listens.
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

/// The control sockets of a state directory, by process id.
pub(crate) fn sockets_of(state: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory(state)) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = paths.filter_map(|path| {
        let process = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())?;
        Some((process, path))
    });
    let mut found: Vec<(u32, PathBuf)> = named.collect();
    // The newest first, because it has the sockets.
    let age = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    found.sort_by_key(|(_, path)| std::cmp::Reverse(age(path)));
    found
}

pub(crate) fn ask_one(path: &Path, word: &str, timeout: Duration) -> std::io::Result<Value> {
    let mut stream = dial(path)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    writeln!(stream, "{word}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
