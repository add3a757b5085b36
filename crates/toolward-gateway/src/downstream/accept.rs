//! Listening sockets, their threads, and graceful shutdown.
//!
//! Each thread has its own runtime and serves the connections it accepted: a request is answered on the
//! thread where it began.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connection;
pub use super::connection::Ending;
use super::connection_limit::Connections;
use super::http::Endpoint;
use super::peer::Peer;
use super::timer_keepalive;
use super::tls::Tls;
use crate::methods::logins;

/// Pause after a failed `accept`, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Blocking threads per serving thread, for parsing long messages and resolving host names.
const MAX_BLOCKING_THREADS: usize = 16;
/// Interval of the sweep for idle sessions and connections.
const SWEEP: Duration = Duration::from_secs(10);
/// Interval at which the certificate files are checked for changes.
const LOOK: Duration = Duration::from_secs(2);

/// The mode of a socket file if agents are identified by user id.
const FOR_EVERYONE: u32 = 0o666;

/// Maximum connections waiting to be accepted; the kernel caps it at `net.core.somaxconn`. With the
/// standard library's 128, clients of a burst wait a second until their kernel resends the SYN.
const BACKLOG: i32 = 4096;

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Socket {
    pub fn tcp(address: SocketAddr) -> io::Result<Socket> {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Socket::Tcp(listener))
    }

    /// Listens on a socket file that only this user can open, or everyone if agents are identified by
    /// user id. A stale socket file is replaced.
    pub fn unix(path: PathBuf, for_everyone: bool) -> io::Result<Socket> {
        match std::fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::other("the file exists and is not a socket"));
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(&path).is_err() => {
                std::fs::remove_file(&path)?;
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Socket::admit(&path, for_everyone)?;
        listener.set_nonblocking(true)?;
        Ok(Socket::Unix(listener, path))
    }

    /// Removes a socket file at shutdown; a file of another kind at its path is kept.
    pub fn remove(path: &Path) {
        let is_socket = |found: std::fs::Metadata| found.file_type().is_socket();
        if std::fs::symlink_metadata(path).is_ok_and(is_socket) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Sets the mode of a socket file, for everyone or for this user only.
    pub fn admit(path: &Path, for_everyone: bool) -> io::Result<()> {
        let mode = if for_everyone { FOR_EVERYONE } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    }

    pub fn is_for_everyone(path: &Path) -> io::Result<bool> {
        let mode = std::fs::metadata(path)?.permissions().mode();
        Ok(mode & FOR_EVERYONE == FOR_EVERYONE)
    }

    /// The address it listens on, for display.
    pub fn address(&self) -> String {
        match self {
            Socket::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".into(), |address| address.to_string())
            }
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The file of a unix socket.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Socket::Tcp(_) => None,
            Socket::Unix(_, path) => Some(path.clone()),
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener, _) => listener.as_fd(),
        }
    }

    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(listener) => Socket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, path) => Socket::Unix(listener.try_clone()?, path.clone()),
        })
    }
}

/// How long in-flight requests may take during shutdown.
#[derive(Debug, Clone, Copy)]
pub struct Grace {
    pub otherwise: Duration,
    /// If another process serves already, so that no one waits for this one to exit.
    pub handed_over: Duration,
}

/// Serves until `ending` changes; in-flight requests then get their grace period.
pub fn serve(
    endpoint: Arc<Endpoint>,
    sockets: Vec<Socket>,
    threads: usize,
    most: usize,
    ending: &watch::Receiver<Ending>,
    grace: Grace,
) -> io::Result<()> {
    let open = Connections::new(most);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..threads.max(1) {
            let sockets: Vec<Socket> =
                sockets.iter().map(Socket::try_clone).collect::<Result<_, _>>()?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(MAX_BLOCKING_THREADS)
                .build()?;
            let (endpoint, open, ending) = (endpoint.clone(), open.clone(), ending.clone());
            let name = format!("toolward-{number}");
            let sweeps = number == 0;
            workers.push(std::thread::Builder::new().name(name).spawn_scoped(
                scope,
                move || {
                    runtime.block_on(worker(endpoint, sockets, open, ending, grace, sweeps));
                    runtime.shutdown_background();
                },
            )?);
        }
        // From here on only the threads hold the sockets; they close them at shutdown.
        drop(sockets);
        Ok(())
    })
}

async fn worker(
    endpoint: Arc<Endpoint>,
    sockets: Vec<Socket>,
    open: Arc<Connections>,
    mut ending: watch::Receiver<Ending>,
    grace: Grace,
    sweeps: bool,
) {
    timer_keepalive::keep_time();
    for socket in sockets {
        tokio::spawn(accept(endpoint.clone(), socket, open.clone(), ending.clone()));
    }
    if sweeps {
        look_after_credentials(&endpoint);
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP.min(endpoint.sessions.idle_time())).await;
                endpoint.sessions.sweep(&endpoint.gateway);
                let gateway = &endpoint.gateway;
                let active = gateway.active();
                gateway.context.servers.sweep(&active.servers);
                active.servers.iter().for_each(|server| logins::record(&gateway.context, server));
            }
        });
    }
    let _ = ending.wait_for(|ending| *ending != Ending::No).await;
    endpoint.sessions.close();
    let drained = async {
        while open.count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut aborting = ending.clone();
    tokio::select! {
        _ = tokio::time::timeout(grace.otherwise, drained) => {}
        _ = aborting.wait_for(|ending| *ending == Ending::AtOnce) => {}
    }
    if *ending.borrow() == Ending::HandedOver {
        // Idle connections are no longer waited for; in-flight requests are.
        let finished = async {
            while endpoint.is_busy() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(grace.handed_over.saturating_sub(grace.otherwise), finished) => {}
            _ = ending.wait_for(|ending| ending.is_final()) => {}
        }
    }
    if sweeps {
        // A request that has outlasted the grace period still holds its server, hence the timeout.
        let gateway = &endpoint.gateway;
        let servers = gateway.active().servers.clone();
        let closed = gateway.context.servers.close(&servers);
        tokio::select! {
            _ = tokio::time::timeout(grace.otherwise, closed) => {}
            _ = aborting.wait_for(|ending| *ending == Ending::AtOnce) => {}
        }
    }
}

/// Fetches the issuer's keys before the first caller needs them, and reloads the certificate when its
/// files change.
fn look_after_credentials(endpoint: &Arc<Endpoint>) {
    let keys = endpoint.clone();
    tokio::spawn(async move {
        for issuer in &keys.gateway.active().identities.issuers {
            issuer.prepare().await;
        }
    });
    if let Some(tls) = endpoint.tls.clone() {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                tls.reload();
            }
        });
    }
}

async fn accept(
    endpoint: Arc<Endpoint>,
    socket: Socket,
    open: Arc<Connections>,
    mut ending: watch::Receiver<Ending>,
) {
    let over = ending.clone();
    let accepting = async {
        match socket {
            Socket::Tcp(listener) => {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                loop {
                    match listener.accept().await {
                        Ok((stream, from)) => {
                            let _ = stream.set_nodelay(true);
                            let peer = Peer { address: Some(from.ip()), ..Peer::default() };
                            match &endpoint.tls {
                                None => open.spawn(&endpoint, peer, stream, &over),
                                Some(tls) => open.spawn_tls(&endpoint, tls, peer, stream, &over),
                            }
                        }
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    }
                }
            }
            Socket::Unix(listener, _) => {
                let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            let uid = stream.peer_cred().ok().map(|other| other.uid());
                            let peer = Peer { uid, ..Peer::default() };
                            open.spawn(&endpoint, peer, stream, &over);
                        }
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    }
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = ending.wait_for(|ending| *ending != Ending::No) => {}
    }
}

impl Connections {
    fn spawn<S>(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        peer: Peer,
        stream: S,
        ending: &watch::Receiver<Ending>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(admission) = self.admit(&peer.origin()) else { return };
        let (endpoint, ending) = (endpoint.clone(), ending.clone());
        tokio::spawn(async move {
            connection::serve(endpoint, peer, stream, ending, &admission).await;
        });
    }

    /// Spawns a connection after its TLS handshake, with the client certificate.
    fn spawn_tls(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        tls: &Arc<Tls>,
        mut peer: Peer,
        stream: TcpStream,
        ending: &watch::Receiver<Ending>,
    ) {
        let Some(admission) = self.admit(&peer.origin()) else { return };
        let (endpoint, tls, ending) = (endpoint.clone(), tls.clone(), ending.clone());
        tokio::spawn(async move {
            let accepted = tokio::select! {
                accepted = tls.accept(stream) => accepted,
                () = admission.evicted() => return,
            };
            match accepted {
                Ok((stream, certificate)) => {
                    (peer.certificate, peer.chain) = certificate.unzip();
                    peer.secure = true;
                    connection::serve(endpoint, peer, stream, ending, &admission).await;
                }
                Err(_) => endpoint.turned_away(&peer, None, "the TLS handshake failed"),
            }
        });
    }
}
