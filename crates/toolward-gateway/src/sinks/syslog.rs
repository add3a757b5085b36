//! Records as syslog messages (RFC 5424): over TCP and TLS with octet counting (RFC 6587, RFC 5425),
//! or to a Unix socket.
//!
//! The message is the unchanged line of the log, so that a receiver can parse it as JSON and verify the
//! chain. Syslog has no acknowledgements: after a lost connection, the last part is sent again.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixDatagram, UnixStream};
use tokio_rustls::client::TlsStream;

use super::records::{Record, Records};
use crate::audit::line::time;
use crate::http_client::{ClientTls, connector};

/// How much may be lost with a connection: our send buffer, and the receiver's.
pub(super) const UNACKNOWLEDGED_BYTES: u64 = 1 << 20;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The largest write.
const MAX_WRITE_BYTES: usize = 64 << 10;

/// Where a syslog receiver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// Parses `tcp://HOST:PORT`, `tls://HOST:PORT` and `unix:PATH`.
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Address::Unix(path.into())),
                false => Err("the path of a Unix socket must be absolute".into()),
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(['/', '@', '?']) {
            return Err("it has no valid host".into());
        }
        let port = |otherwise: u16| match port {
            None => Ok(otherwise),
            Some(port) => port.parse().map_err(|_| format!("`{port}` is not a port")),
        };
        let host = host.to_owned();
        match scheme {
            "tcp" => Ok(Address::Tcp { host, port: port(601)? }),
            "tls" => Ok(Address::Tls { host, port: port(6514)? }),
            other => Err(format!("the scheme `{other}` is not known")),
        }
    }
}

/// The facilities by name, in the order of their codes.
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

pub struct Syslog {
    address: Address,
    facility: usize,
    tls: Option<ClientTls>,
    /// The fields between time and message id: host, program, process.
    origin: String,
    connection: Option<Connection>,
}

enum Connection {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Newline framing: that is what syslog daemons expect of a local stream.
    Unix(UnixStream),
    Datagram(UnixDatagram),
}

impl Syslog {
    /// `facility` is one of [`FACILITIES`].
    pub fn new(address: Address, facility: &str, tls: Option<ClientTls>) -> Syslog {
        let code = FACILITIES.iter().position(|name| *name == facility).unwrap_or(13);
        let host = rustix::system::uname();
        let host: String = host.nodename().to_string_lossy().chars().filter(is_print).collect();
        let host = if host.is_empty() { "-" } else { &host };
        let origin = format!("{host:.255} toolward {}", std::process::id());
        Syslog { address, facility: code, tls, origin, connection: None }
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) async fn deliver(&mut self, records: &Records) -> Result<(), String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await.map_err(|error| format!("cannot connect: {error}"))?,
        };
        let sent = self.send(&mut connection, records).await;
        sent.map_err(|error| format!("the connection was lost: {error}"))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&self) -> io::Result<Connection> {
        match &self.address {
            Address::Tcp { host, port } => Ok(Connection::Tcp(connect_tcp(host, *port).await?)),
            Address::Tls { host, port } => {
                let tcp = connect_tcp(host, *port).await?;
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let tls = connector(self.tls.as_ref())?.connect(name, tcp).await?;
                Ok(Connection::Tls(Box::new(tls)))
            }
            Address::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                match socket.connect(path) {
                    Ok(()) => Ok(Connection::Datagram(socket)),
                    // It is a stream socket.
                    Err(error) if error.raw_os_error() == Some(EPROTOTYPE) => {
                        Ok(Connection::Unix(UnixStream::connect(path).await?))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn send(&self, connection: &mut Connection, records: &Records) -> io::Result<()> {
        let counted = matches!(connection, Connection::Tcp(_) | Connection::Tls(_));
        let (mut out, mut message) = (Vec::with_capacity(MAX_WRITE_BYTES), String::new());
        for record in records.iter() {
            message.clear();
            self.write(&record, &mut message);
            if let Connection::Datagram(socket) = connection {
                socket.send(message.as_bytes()).await?;
                continue;
            }
            if counted {
                out.extend_from_slice(format!("{} ", message.len()).as_bytes());
            }
            out.extend_from_slice(message.as_bytes());
            if !counted {
                out.push(b'\n');
            }
            if out.len() >= MAX_WRITE_BYTES {
                connection.write(&out).await?;
                out.clear();
            }
        }
        connection.write(&out).await
    }

    /// Writes one message.
    fn write(&self, record: &Record<'_>, out: &mut String) {
        // Notice, or informational.
        let severity = if record.is_notable() { 5 } else { 6 };
        let priority = self.facility * 8 + severity;
        let (at, origin, text) = (time(record.micros), &self.origin, record.text);
        let kind: String = record.kind.chars().filter(is_print).take(32).collect();
        let kind = if kind.is_empty() { "-" } else { &kind };
        let _ = write!(out, "<{priority}>1 {at} {origin} {kind} - {text}");
    }
}

/// `EPROTOTYPE`: the socket is of another type.
const EPROTOTYPE: i32 = rustix::io::Errno::PROTOTYPE.raw_os_error();

fn is_print(c: &char) -> bool {
    c.is_ascii_graphic()
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect((host, port)).await?;
    // A small buffer bounds what is lost with a connection.
    rustix::net::sockopt::set_socket_send_buffer_size(&tcp, SEND_BUFFER_BYTES)?;
    rustix::net::sockopt::set_socket_keepalive(&tcp, true)?;
    Ok(tcp)
}

impl Connection {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Connection::Tcp(tcp) => {
                closed(tcp)?;
                tcp.write_all(bytes).await
            }
            Connection::Tls(tls) => {
                closed_tls(tls).await?;
                tls.write_all(bytes).await?;
                tls.flush().await
            }
            Connection::Unix(unix) => unix.write_all(bytes).await,
            Connection::Datagram(_) => Ok(()),
        }
    }
}

/// Notices that the receiver has closed the connection: a write would still succeed once.
fn closed(tcp: &TcpStream) -> io::Result<()> {
    let mut byte = [0];
    match tcp.try_read(&mut byte) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

async fn closed_tls(tls: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let mut byte = [0];
    tokio::select! {
        biased;
        read = tls.read(&mut byte) => match read {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
        () = std::future::ready(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::segment::Head;

    #[test]
    fn addresses_have_a_scheme() {
        let host = |text: &str| text.to_owned();
        assert_eq!(
            Address::parse("tcp://logs.example:514"),
            Ok(Address::Tcp { host: host("logs.example"), port: 514 })
        );
        assert_eq!(
            Address::parse("tls://[::1]"),
            Ok(Address::Tls { host: host("::1"), port: 6514 })
        );
        assert_eq!(Address::parse("unix:/dev/log"), Ok(Address::Unix("/dev/log".into())));
        for bad in ["logs:514", "udp://a:1", "tcp://", "tcp://a:x", "unix:dev", "tcp://u@h:1"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_has_the_fields_of_the_standard() {
        let line = r#"{"id":"1","time":"2026-11-18T09:30:00.000001Z","kind":"refusal","a":"b"}"#;
        let records = Records::new(format!("{line}\n").into_bytes(), Head::NOTHING, "audit".into());
        let syslog = Syslog::new(Address::Unix("/x".into()), "local0", None);
        let mut out = String::new();
        syslog.write(&records.iter().next().unwrap(), &mut out);
        let process = std::process::id();
        assert!(out.starts_with("<133>1 2026-11-18T09:30:00.000001Z "), "{out}");
        assert!(out.ends_with(&format!(" toolward {process} refusal - {line}")), "{out}");
    }
}
