//! Addresses, directories and state files that cannot be used on this machine.
//!
//! `serve` gets these errors when it opens them. `check` tries each one without leaving anything behind.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use toolward_config::Diagnostic;
use toolward_config::config::{Config, Listen};
use toolward_config::sanitize;
use toolward_gateway::audit::arguments::HashKey;

use crate::admin::Admin;

/// The maximum length of a Unix socket path, in bytes.
const MAX_SOCKET_PATH: usize = 107;
/// Files of the audit log that a gateway continues.
const AUDIT_FILES: [&str; 2] = ["audit.head", "audit.jsonl"];

/// Reasons why `serve` cannot start on this machine.
pub(super) fn refusals(config: &Config) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = config.listen.iter().filter_map(address).collect();
    if let Some(admin) = config.admin.filter(|_| config.admin_stated) {
        found.extend(tcp(admin));
    }
    found.extend(cannot_write("the audit log", &config.audit.dir));
    found.extend(audit_files(&config.audit.dir));
    if let Some(state) = &config.state {
        found.extend(cannot_write("the state", state));
    }
    found
}

/// Addresses that are configured twice, which cannot be opened twice.
pub(super) fn repeated_addresses(config: &Config) -> Vec<Diagnostic> {
    let admin = config.admin.filter(|_| config.admin_stated).map(Listen::Tcp);
    let all = config.listen.iter().map(|listen| ("listen", listen));
    let all: Vec<_> = all.chain(admin.as_ref().map(|admin| ("admin", admin))).collect();
    let mut found = Vec::new();
    for (at, (key, address)) in all.iter().enumerate() {
        let before = all.iter().take(at).find(|(_, other)| overlap(address, other));
        let Some((other_key, other)) = before else { continue };
        let message = match key == other_key {
            true => {
                format!("`{key}`: {} and {} are the same address", shown(other), shown(address))
            }
            false => format!(
                "`{key}: {}` is the address of `{other_key}: {}`",
                shown(address),
                shown(other)
            ),
        };
        let help =
            if *key == "admin" { "set `admin` to another port, or `off`" } else { "remove one" };
        found.push(Diagnostic::error(message).help(help));
    }
    found
}

/// Files of the state directory that cannot be used as they are.
pub(super) fn state_files(config: &Config, state: &Path) -> Vec<Diagnostic> {
    let key = HashKey::existing(state).err();
    let token = config.admin.and_then(|_| Admin::check_token(state).err());
    let wrong = |error: io::Error| {
        let state = state.display().to_string();
        let message = format!("a file of the state directory {}: {error}", sanitize(&state));
        Diagnostic::error(message)
    };
    [key, token].into_iter().flatten().map(wrong).collect()
}

fn overlap(one: &Listen, other: &Listen) -> bool {
    match (one, other) {
        (Listen::Tcp(one), Listen::Tcp(other)) => {
            // Port 0 selects a free port each time.
            let same_port = one.port() == other.port() && one.port() != 0;
            same_port && (covers(one.ip(), other.ip()) || covers(other.ip(), one.ip()))
        }
        (Listen::Unix(one), Listen::Unix(other)) => one == other,
        _ => false,
    }
}

/// Whether a socket on `one` also accepts connections to `other`. `[::]` includes IPv4.
fn covers(one: IpAddr, other: IpAddr) -> bool {
    one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
}

fn shown(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => format!("unix:{}", sanitize(&path.display().to_string())),
    }
}

fn address(listen: &Listen) -> Option<Diagnostic> {
    match listen {
        Listen::Tcp(address) => tcp(*address),
        Listen::Unix(path) => unix(path).map(|(why, help)| {
            let message = format!("cannot listen on {}: {why}", shown(listen));
            Diagnostic::error(message).help(help)
        }),
    }
}

/// Binds without listening. With `SO_REUSEADDR`, this does not affect a gateway that starts at the same time.
fn tcp(address: SocketAddr) -> Option<Diagnostic> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let bound = socket(family, SocketType::STREAM, None).and_then(|socket| {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)
    });
    let error = match bound {
        // A gateway may be running.
        Ok(()) | Err(Errno::ADDRINUSE) => return None,
        Err(error) => error,
    };
    let message = format!("cannot listen on {address}: {}", io::Error::from(error));
    Some(match error {
        // A service manager may open the socket.
        Errno::ACCESS | Errno::PERM => Diagnostic::warning(message)
            .help("use a port above 1023, or let a service manager open the socket"),
        _ => Diagnostic::error(message).help("use an address of this machine"),
    })
}

/// Why a socket file cannot be created, and how to fix it.
fn unix(path: &Path) -> Option<(String, &'static str)> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Some((
            format!("its path is longer than {MAX_SOCKET_PATH} bytes"),
            "use a shorter path",
        ));
    }
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => {
            return Some(("the file exists and is not a socket".into(), "use another path"));
        }
        _ => {}
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        return Some(("its directory does not exist".into(), "create the directory"));
    }
    let error = access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let help = "use a directory that this user can write to";
    Some((io::Error::from(error).to_string(), help))
}

/// Checks that files can be created in a directory, which is created if it is missing.
fn cannot_write(what: &str, path: &Path) -> Option<Diagnostic> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let error = try_directory(&absolute).err()?;
    let shown = path.display().to_string();
    let message = format!("{what} cannot be kept in {}: {error}", sanitize(&shown));
    Some(Diagnostic::error(message).help("use a directory that this user can write to"))
}

/// Creates the missing directories of a path and one entry, and removes them again.
fn try_directory(path: &Path) -> io::Result<()> {
    let mut missing: Vec<PathBuf> = vec![path.join(format!(".check-{}", std::process::id()))];
    let mut existing = path;
    while existing.symlink_metadata().is_err() {
        missing.push(existing.to_owned());
        let Some(parent) = existing.parent() else { break };
        existing = parent;
    }
    let mut made = Vec::new();
    let mut outcome = Ok(());
    while let Some(directory) = missing.pop().filter(|_| outcome.is_ok()) {
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => made.push(directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => outcome = Err(error),
        }
    }
    // A directory that is already in use is not empty, and stays.
    made.iter().rev().for_each(|directory| drop(std::fs::remove_dir(directory)));
    outcome
}

fn audit_files(directory: &Path) -> Vec<Diagnostic> {
    let files = AUDIT_FILES.iter().map(|name| directory.join(name));
    let wrong = |path: PathBuf| {
        let found = path.metadata().ok()?;
        let why = match access(&path, Access::READ_OK | Access::WRITE_OK) {
            _ if !found.is_file() => "it is not a file".into(),
            Ok(()) => return None,
            Err(error) => io::Error::from(error).to_string(),
        };
        let shown = path.display().to_string();
        let message = format!("the audit log cannot be written to {}: {why}", sanitize(&shown));
        Some(Diagnostic::error(message).help("move it away, or use another `audit.dir`"))
    };
    files.filter_map(wrong).collect()
}
