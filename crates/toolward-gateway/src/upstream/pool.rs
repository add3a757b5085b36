//! Connections to a server on HTTP, kept for the next request.
//!
//! A connection stays with the thread that opened it, so that an answer wakes the task that waits for
//! it without a hop between threads.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use toolward_wire::http::{HeadLimits, ResponseHead, read_response};

use super::address::Address;

const CONNECT: Duration = Duration::from_secs(10);
/// Servers close idle connections after a while; ours goes first.
const IDLE: Duration = Duration::from_secs(20);
/// Idle connections that a thread keeps to one server.
const KEPT: usize = 64;
const SHELVES: usize = 64;
/// Read at once, at most.
pub(crate) const MAX_READ: usize = 32 << 10;
/// An idle connection keeps no larger buffer.
const MAX_IDLE_BUFFER: usize = 16 << 10;

thread_local! {
    /// This thread's shelf.
    static SHELF: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES)
    };
}

pub(crate) struct Pool {
    address: Address,
    shelves: Arc<Vec<Mutex<Shelf>>>,
}

/// Idle connections of one thread, the newest last.
#[derive(Default)]
struct Shelf {
    idle: Vec<Connection>,
    /// A task closes those that have been idle for too long.
    has_timer: bool,
}

/// A connection between two requests, or with one under way.
pub(crate) struct Connection {
    stream: Stream,
    /// Bytes of the answer that have been read and not used.
    pub(crate) buffer: BytesMut,
    /// How many bytes the buffer has held at once.
    largest: usize,
    since: Instant,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Pool {
    pub(crate) fn new(address: Address) -> Pool {
        let shelves = (0..SHELVES).map(|_| Mutex::default()).collect();
        Pool { address, shelves: Arc::new(shelves) }
    }

    /// A connection on which nothing is under way.
    pub(crate) async fn take(&self) -> io::Result<Connection> {
        while let Some(mut idle) = self.shelf(|shelf| shelf.idle.pop()) {
            if idle.since.elapsed() < IDLE && idle.is_quiet() {
                return Ok(idle);
            }
        }
        let opened = Box::pin(Connection::open(&self.address));
        let connected = tokio::time::timeout(CONNECT, opened).await;
        connected.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))
        })
    }

    /// Gives back a connection whose answer has been read to its end.
    pub(crate) fn put(&self, mut connection: Connection) {
        if !connection.buffer.is_empty() {
            return;
        }
        connection.since = Instant::now();
        if connection.largest > MAX_IDLE_BUFFER {
            (connection.buffer, connection.largest) = (BytesMut::new(), 0);
        }
        let needs_timer = self.shelf(|shelf| {
            if shelf.idle.len() < KEPT {
                shelf.idle.push(connection);
            }
            !std::mem::replace(&mut shelf.has_timer, true)
        });
        if needs_timer {
            tokio::spawn(expire(Arc::downgrade(&self.shelves), SHELF.with(Cell::get)));
        }
    }

    fn shelf<T>(&self, with: impl FnOnce(&mut Shelf) -> T) -> T {
        let at = SHELF.with(Cell::get);
        with(&mut self.shelves[at].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Closes connections of one shelf when they have been idle for too long; ends when none is left.
async fn expire(shelves: Weak<Vec<Mutex<Shelf>>>, at: usize) {
    let mut pause = IDLE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shelves) = shelves.upgrade() else { return };
        let Some(shelf) = shelves.get(at) else { return };
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.idle.retain(|connection| connection.since.elapsed() < IDLE);
        let Some(oldest) = shelf.idle.iter().map(|connection| connection.since).min() else {
            *shelf = Shelf::default();
            return;
        };
        pause = IDLE.saturating_sub(oldest.elapsed());
    }
}

impl Connection {
    pub(crate) async fn open(address: &Address) -> io::Result<Connection> {
        let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
        tcp.set_nodelay(true)?;
        let stream = if address.tls {
            let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
            Stream::Tls(Box::new(tls()?.connect(name, tcp).await?))
        } else {
            Stream::Plain(tcp)
        };
        Ok(Connection { stream, buffer: BytesMut::new(), largest: 0, since: Instant::now() })
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads more; false at the end.
    pub(crate) async fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(4096);
        let read = self.stream.read_buf(&mut (&mut self.buffer).limit(MAX_READ)).await?;
        self.largest = self.largest.max(self.buffer.len());
        Ok(read > 0)
    }

    pub(crate) async fn response(&mut self) -> io::Result<ResponseHead> {
        let limits = HeadLimits::default();
        loop {
            let head = read_response(&mut self.buffer, &limits);
            if let Some(head) = head.map_err(|problem| io::Error::other(problem.to_string()))? {
                return Ok(head);
            }
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Whether the server has neither closed it nor said anything unasked.
    fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer).is_pending()
    }
}

/// The system's certificates, read once.
fn tls() -> io::Result<TlsConnector> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone().into());
    }
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be read is not trusted; the others are.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone().into())
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
