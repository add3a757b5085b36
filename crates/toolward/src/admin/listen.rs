//! Listener and thread of the admin UI.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use toolward_config::config::Config;
use toolward_config::sanitize;
use toolward_gateway::downstream::accept::{Ending, Socket};

use super::AdminUi;
use super::answer::Tries;
use super::auth::TokenAuth;
use super::connection;
use super::connection_limit::{Admission, ConnectionLimit, MAX_CONNECTIONS};
use super::lists::Lists;
use crate::exit::Failure;
use crate::identity::reachable;
use crate::reload::Reloader;

/// After a failed `accept`, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// The niceness of the admin thread relative to calls.
const NICE: i32 = 10;

/// The bound socket of the admin UI, before it serves.
pub(crate) struct Admin {
    socket: Socket,
    door: TokenAuth,
}

/// The parts of the process that the admin UI uses.
pub(crate) struct ServeContext<'a> {
    pub(crate) reloader: &'a Arc<Reloader>,
    /// The runtime on which tool lists are fetched.
    pub(crate) asking: Handle,
    pub(crate) ending: watch::Receiver<Ending>,
}

impl Admin {
    /// The configured socket, or the one that another process `gave`. `None`: there is no admin UI, because
    /// it is off or because another gateway uses the default address.
    pub(crate) fn open(
        config: &Config,
        state: &Path,
        gave: impl FnOnce(SocketAddr) -> Option<Socket>,
    ) -> Result<Option<Admin>, Failure> {
        let Some(address) = config.admin else { return Ok(None) };
        Admin::may_open(config)?;
        let socket = match gave(address).map_or_else(|| Socket::tcp(address), Ok) {
            Ok(socket) => socket,
            Err(error) if !config.admin_stated => {
                tracing::warn!(
                    target: "admin",
                    "the admin UI is off: {address}: {error}; set `admin` to another address"
                );
                return Ok(None);
            }
            Err(error) => {
                let message =
                    format!("error: cannot listen on {address} for the admin UI: {error}");
                let help = "another gateway may use it; set `admin` to another address, or `off`";
                return Err(Failure::invalid(format!("{message}\n  help: {help}")));
            }
        };
        let door = TokenAuth::in_folder(state).map_err(|error| {
            Failure::invalid(format!("error: {}", sanitize(&error.to_string())))
        })?;
        Ok(Some(Admin { socket, door }))
    }

    /// Rejects addresses beyond loopback: the admin UI is for this machine only.
    pub(crate) fn may_open(config: &Config) -> Result<(), Failure> {
        match config.admin {
            Some(address) if !address.ip().is_loopback() => Err(Failure::invalid(format!(
                "error: `admin: {address}` can be reached from other machines\n  \
                 help: use 127.0.0.1, and reach it through an SSH tunnel \
                 (`ssh -L 7411:127.0.0.1:7411 HOST`) or a reverse proxy that authenticates users"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether the token in a state directory can be used, if there is one.
    pub(crate) fn check_token(state: &Path) -> std::io::Result<()> {
        TokenAuth::check(state)
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The URL of the admin UI, without its token.
    pub(crate) fn address(&self) -> String {
        format!("http://{}/", self.socket.address())
    }

    /// The URL of the admin UI, with its token.
    pub(crate) fn entrance(&self) -> String {
        format!("{}?token={}", self.address(), self.door.token())
    }

    /// Serves the admin UI on its own thread until the process ends.
    pub(crate) fn serve(self, serving: ServeContext<'_>) -> Result<(), Failure> {
        let ServeContext { reloader, asking, ending } = serving;
        let config = reloader.begun();
        let (address, entrance) = (self.address(), self.entrance());
        let Socket::Tcp(listener) = self.socket else { return Ok(()) };
        let page = Arc::new(AdminUi {
            reloader: reloader.clone(),
            lists: Lists::new(asking, config.list_timeout),
            begun: Instant::now(),
            door: self.door,
            reachable: reachable(config),
            tries: Tries::default(),
            rejected: Default::default(),
            matrix: Default::default(),
        });
        let weak = Arc::downgrade(&page);
        let _ = reloader.replacing.set(Arc::new(move |active| {
            if let Some(page) = weak.upgrade() {
                page.reloading(active);
            }
        }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("page".into()).spawn(move || {
            // On Linux, this applies to the thread only.
            let _ = rustix::process::nice(NICE);
            runtime.block_on(accept(page, listener, ending));
            runtime.shutdown_background();
        })?;
        let _ = reloader.page.set(address);
        tracing::info!(target: "admin", "admin UI: {entrance}");
        Ok(())
    }
}

async fn accept(page: Arc<AdminUi>, listener: TcpListener, mut ending: watch::Receiver<Ending>) {
    let limit = Arc::new(ConnectionLimit::default());
    let over = ending.clone();
    let accepting = async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Admission { connection: open, log } = limit.admit(Instant::now());
            if log {
                tracing::warn!(
                    target: "admin",
                    "all {MAX_CONNECTIONS} connections are in use; the oldest one without the token is closed"
                );
            }
            // A connection beyond the limit is closed at once; browsers reconnect.
            let Some(open) = open else { continue };
            let _ = stream.set_nodelay(true);
            let (page, over, limit) = (page.clone(), over.clone(), limit.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = connection::serve(page, from.ip(), stream, over, &open) => {}
                    () = open.evicted() => {}
                }
                limit.remove(&open);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = ending.wait_for(|ending| *ending != Ending::No) => {}
    }
    // Requests in flight are answered; event streams reconnect to the next process.
    while !limit.is_empty() {
        tokio::time::sleep(PAUSE).await;
    }
}
