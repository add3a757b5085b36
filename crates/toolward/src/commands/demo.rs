//! `toolward demo`: a gateway with sample servers, three agents and a policy, without any setup.

mod check;
mod files;
mod say;
pub(crate) mod server;
mod world;

use std::io::{ErrorKind, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolward_config::sanitize;

use crate::cli::{DemoArgs, OnInvalid, PolicyArgs, ServeArgs};
use crate::commands::serve::{Around, serve_until_told};
use crate::exit::{self, Failure};
use files::{Agent, DemoPaths, Temporary};
use say::Facts;

use toolward_gateway::lock::LockUnpoisoned;

const PORT: u16 = 7410;
const PAGE_PORT: u16 = 7411;

/// The grace period of a demo at shutdown.
const GRACE: Duration = Duration::from_millis(300);

pub(crate) fn run(args: &DemoArgs) -> Result<u8, Failure> {
    let agents = files::agents()?;
    match &args.write {
        Some(folder) => write(args, folder, &agents),
        None => play(args, agents),
    }
}

/// Writes the files and prints what to do with them.
fn write(args: &DemoArgs, folder: &Path, agents: &[Agent; 3]) -> Result<u8, Failure> {
    plain(folder)?;
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let place = DemoPaths {
        folder: folder.into(),
        listen: at(args.port.unwrap_or(PORT)),
        page: at(args.page_port.unwrap_or(PAGE_PORT)),
        program: program()?,
    };
    if let Some(taken) = place.taken() {
        let taken = taken.display().to_string();
        return Err(Failure::usage(format!(
            "error: {} already exists, and nothing is overwritten\n  help: choose another directory",
            sanitize(&taken)
        )));
    }
    let written = files::make_folder(folder).and_then(|()| place.write(agents));
    written.map_err(|error| cannot_write(folder, &error))?;
    let facts = Facts { place: &place, agents, page: None, busy: Vec::new() };
    print(&if args.output.json { facts.json_line() } else { facts.written() })?;
    Ok(exit::OK)
}

/// Serves the same files from a temporary directory.
fn play(args: &DemoArgs, agents: [Agent; 3]) -> Result<u8, Failure> {
    let mut busy = Vec::new();
    let (listen, socket) = open(args.port, PORT, "--port", &mut busy)?;
    let (page, page_socket) = open(args.page_port, PAGE_PORT, "--page-port", &mut busy)?;
    plain(&std::env::temp_dir())?;
    let folder = Temporary::new().map_err(|error| cannot_write(&std::env::temp_dir(), &error))?;
    let place = DemoPaths { folder: folder.path().into(), listen, page, program: program()? };
    place.write(&agents).map_err(|error| cannot_write(folder.path(), &error))?;
    let serve = ServeArgs {
        take_over: false,
        on_invalid_policy: OnInvalid::Fail,
        allow_all: false,
        policy: PolicyArgs {
            config: Some(place.config()),
            policy: Vec::new(),
            allowlist_config: Vec::new(),
            format: None,
            read_only: false,
            whole_configurations: false,
            search: false,
        },
    };
    let json = args.output.json;
    // The first of several ways to end removes the directory.
    let folder = Arc::new(Mutex::new(Some(folder)));
    let at_once = folder.clone();
    let around = Around {
        sockets: vec![(listen.to_string(), socket.into()), (page.to_string(), page_socket.into())],
        grace: Some(GRACE),
        ready: Box::new(move || {
            end_with_terminal();
            let page = address_of_page(&place);
            let facts = Facts { place: &place, agents: &agents, page, busy };
            print(&if json { facts.json_line() } else { facts.to_text() })
        }),
        leave: Box::new(move || drop(take(&at_once))),
    };
    let served = serve_until_told(serve, None, around);
    drop(take(&folder));
    served
}

fn take(folder: &Mutex<Option<Temporary>>) -> Option<Temporary> {
    folder.locked().take()
}

/// Opens a socket on the requested port, or else on the default port, or on a free one.
fn open(
    asked: Option<u16>,
    usual: u16,
    flag: &str,
    busy: &mut Vec<SocketAddr>,
) -> Result<(SocketAddr, TcpListener), Failure> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, asked.unwrap_or(usual)));
    let bound = TcpListener::bind(wanted).or_else(|error| {
        if asked.is_some() || error.kind() != ErrorKind::AddrInUse {
            return Err(error);
        }
        busy.push(wanted);
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    });
    let opened = bound.and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok((socket.local_addr()?, socket))
    });
    opened.map_err(|error| {
        let help = format!("choose another port with {flag}, or leave it out for a free one");
        Failure::invalid(format!("error: cannot listen on {wanted}: {error}\n  help: {help}"))
    })
}

/// The URL of the admin UI with its token, which is stored in the state directory.
fn address_of_page(place: &DemoPaths) -> Option<String> {
    let token = std::fs::read_to_string(place.folder.join("state/admin.token")).ok()?;
    Some(format!("http://{}/?token={}", place.page, token.trim()))
}

/// Shuts the demo down when its terminal is closed.
///
/// The handler is installed before this returns: a terminal that is closed right after the first line was
/// printed would otherwise only cause a reload, because `serve` reloads on SIGHUP.
fn end_with_terminal() {
    use tokio::signal::unix::{SignalKind, signal};
    if !std::io::stdout().is_terminal() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let installed = {
        let _inside = runtime.enter();
        signal(SignalKind::hangup())
    };
    let Ok(mut hang_up) = installed else { return };
    std::thread::spawn(move || {
        runtime.block_on(hang_up.recv());
        let (own, end) = (rustix::process::getpid(), rustix::process::Signal::TERM);
        let _ = rustix::process::kill_process(own, end);
    });
}

/// Rejects paths with control characters: sanitized, they could not be copied and used.
fn plain(path: &Path) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let harmless = sanitize(&shown);
    if path.to_str().is_some() && *harmless == *shown {
        return Ok(());
    }
    let help = "use a directory whose name has no control characters";
    Err(Failure::usage(format!(
        "error: {harmless} contains characters that cannot be printed\n  help: {help}"
    )))
}

/// The path of this program, which also contains the demo's servers.
fn program() -> Result<String, Failure> {
    let path = std::env::current_exe().map_err(|error| {
        Failure::usage(format!("error: the path of this program cannot be determined: {error}"))
    })?;
    plain(&path)?;
    Ok(path.display().to_string())
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn cannot_write(folder: &Path, error: &std::io::Error) -> Failure {
    let folder = folder.display().to_string();
    Failure::usage(format!("error: cannot write to {}: {error}", sanitize(&folder)))
}
