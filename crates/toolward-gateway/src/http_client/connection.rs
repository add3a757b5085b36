//! One connection to an origin, between two requests or with one in flight.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use toolward_wire::http::{HeadLimits, ResponseHead, read_response};

use super::SendError;

/// The maximum number of bytes per read.
pub(crate) const MAX_READ_BYTES: usize = 32 << 10;
/// An idle connection keeps no larger buffer.
const MAX_IDLE_BUFFER_BYTES: usize = 16 << 10;
/// Many servers close idle connections after 5 s and do not announce it.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// The upper bound on an announced keep-alive.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(60);

pub(crate) struct Connection {
    stream: Stream,
    /// Bytes of the response that have been read and not used.
    pub(crate) buffer: BytesMut,
    /// The largest size that the buffer has had.
    largest: usize,
    /// How long the connection may be idle after the current response.
    keep_alive: Duration,
    /// When the connection became idle.
    pub(super) idle_since: Instant,
}

pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Connection {
        let (buffer, largest) = (BytesMut::new(), 0);
        let (keep_alive, idle_since) = (Duration::ZERO, Instant::now());
        Connection { stream, buffer, largest, keep_alive, idle_since }
    }

    /// Writes a whole request.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        // After an error, TLS does not report how much was written.
        let is_tls = matches!(self.stream, Stream::Tls(_));
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let failed = |error| SendError { error, sent: is_tls || written > 0 };
            match self.stream.write(rest).await {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) => return Err(failed(error)),
            }
        }
        self.stream.flush().await.map_err(|error| SendError { error, sent: true })
    }

    /// Reads more bytes into the buffer. Returns false at the end of the stream.
    pub(crate) async fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(4096);
        let read = self.stream.read_buf(&mut (&mut self.buffer).limit(MAX_READ_BYTES)).await?;
        self.largest = self.largest.max(self.buffer.len());
        Ok(read > 0)
    }

    /// Reads the head of a response.
    pub(crate) async fn response(&mut self) -> io::Result<ResponseHead> {
        let limits = HeadLimits::default();
        loop {
            let head = read_response(&mut self.buffer, &limits);
            if let Some(head) = head.map_err(|problem| io::Error::other(problem.to_string()))? {
                self.keep_alive = keep_alive(&head);
                return Ok(head);
            }
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Prepares the connection for the next request. Returns how long it may wait for one, or
    /// `None` if the connection cannot be used again.
    pub(super) fn idle(&mut self) -> Option<Duration> {
        if !self.buffer.is_empty() || self.keep_alive.is_zero() {
            return None;
        }
        self.idle_since = Instant::now();
        if self.largest > MAX_IDLE_BUFFER_BYTES {
            (self.buffer, self.largest) = (BytesMut::new(), 0);
        }
        Some(self.keep_alive)
    }

    /// How much longer the connection may be idle.
    pub(super) fn time_left(&self) -> Duration {
        self.keep_alive.saturating_sub(self.idle_since.elapsed())
    }

    /// Whether the other side has neither closed the connection nor sent unsolicited bytes.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer).is_pending()
    }
}

/// How long a connection may be idle after a response: as announced by `Keep-Alive: timeout=N`,
/// less a margin for the time a request is on its way, or [`KEEP_ALIVE`].
fn keep_alive(head: &ResponseHead) -> Duration {
    if !head.keep_alive {
        return Duration::ZERO;
    }
    let parameters = head.headers.get("keep-alive").unwrap_or_default().split(',');
    let timeout = parameters.filter_map(|one| one.split_once('=')).find_map(|(name, value)| {
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| value.trim().trim_matches('"').parse::<u32>().ok()).flatten()
    });
    timeout.map_or(KEEP_ALIVE, |seconds| {
        let announced = Duration::from_secs(seconds.into());
        let margin = Duration::from_secs(1).min(announced / 2);
        (announced - margin).min(MAX_KEEP_ALIVE)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_as_long_as_the_server_announces() {
        let of = |fields: &str| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            let mut head = BytesMut::from(head.as_bytes());
            keep_alive(&read_response(&mut head, &HeadLimits::default()).unwrap().unwrap())
        };
        assert_eq!(of(""), KEEP_ALIVE);
        assert_eq!(of("Keep-Alive: max=3\r\n"), KEEP_ALIVE);
        assert_eq!(of("Keep-Alive: timeout=5\r\n"), Duration::from_secs(4));
        assert_eq!(of("Keep-Alive: max=9, Timeout=30\r\n"), Duration::from_secs(29));
        assert_eq!(of("Keep-Alive: timeout=1\r\n"), Duration::from_millis(500));
        assert_eq!(of("Keep-Alive: timeout=0\r\n"), Duration::ZERO);
        assert_eq!(of("Keep-Alive: timeout=86400\r\n"), MAX_KEEP_ALIVE);
        assert_eq!(of("Keep-Alive: timeout=30\r\nConnection: close\r\n"), Duration::ZERO);
    }
}
