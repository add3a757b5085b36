//! The destination of requests: an address, the proxy on the way to it, and how its identity is
//! verified.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use toolward_wire::http::{HeadLimits, read_response};

use super::connection::{Connection, Stream};
use super::proxy::{self, Proxy};
use super::tls::{self, ClientTls};
use super::{Address, write_head};

/// The timeout for opening a connection: TCP, the proxy and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Origin {
    pub(super) address: Address,
    tls: Option<ClientTls>,
    proxy: Option<Result<Proxy, String>>,
    /// The addresses of the host, if it is resolved already.
    resolved: Option<Vec<SocketAddr>>,
}

impl Origin {
    pub(super) fn new(address: Address, tls: Option<ClientTls>) -> Origin {
        let proxy = proxy::from_environment().of(&address);
        Origin { address, tls, proxy, resolved: None }
    }

    /// The same, with connections only to these addresses.
    pub(super) fn resolved(self, to: Option<&[SocketAddr]>) -> Origin {
        Origin { resolved: to.map(<[SocketAddr]>::to_vec), ..self }
    }

    /// Whether a proxy is on the way.
    pub(super) fn is_proxied(&self) -> bool {
        self.proxy.is_some()
    }

    /// The head of a request. A proxy gets requests for `http://` with the whole URL as their
    /// target.
    pub(super) fn request(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        length: Option<usize>,
    ) -> io::Result<Vec<u8>> {
        let authority = &self.address.authority;
        let Some(Ok(proxy)) = self.proxy.as_ref().filter(|_| !self.address.tls) else {
            return write_head((method, target, authority), fields, length);
        };
        let mut all = fields.to_vec();
        let authorization = proxy.authorization();
        all.extend(authorization.as_deref().map(|value| ("Proxy-Authorization", value)));
        let mut head = write_head((method, target, authority), &all, length)?;
        let target_at = method.len() + 1;
        head.splice(target_at..target_at, format!("http://{authority}").into_bytes());
        Ok(head)
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(self.open())).await;
        let stream = opened.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the connection timed out"))
        })?;
        Ok(Connection::new(stream))
    }

    async fn open(&self) -> io::Result<Stream> {
        let address = &self.address;
        let tcp = match &self.proxy {
            None => match &self.resolved {
                Some(to) => connect_tcp(&to[..]).await?,
                None => connect_tcp((&*address.host, address.port)).await?,
            },
            Some(Err(why)) => return Err(io::Error::other(why.clone())),
            Some(Ok(proxy)) => {
                let tcp = connect_tcp((&*proxy.host, proxy.port)).await.map_err(|error| {
                    let why = format!("the proxy {} cannot be reached: {error}", proxy.host);
                    io::Error::new(error.kind(), why)
                })?;
                if address.tls { tunnel(tcp, proxy, address).await? } else { tcp }
            }
        };
        if !address.tls {
            return Ok(Stream::Plain(tcp));
        }
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let connector = tls::connector(self.tls.as_ref())?;
        Ok(Stream::Tls(Box::new(connector.connect(name, tcp).await?)))
    }
}

async fn connect_tcp(to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(to).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Requests a tunnel to an address from a proxy.
async fn tunnel(mut tcp: TcpStream, proxy: &Proxy, address: &Address) -> io::Result<TcpStream> {
    let host = match address.host.contains(':') {
        true => format!("[{}]:{}", address.host, address.port),
        false => format!("{}:{}", address.host, address.port),
    };
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
    if let Some(value) = proxy.authorization() {
        request += &format!("Proxy-Authorization: {value}\r\n");
    }
    tcp.write_all((request + "\r\n").as_bytes()).await?;
    let mut buffer = BytesMut::new();
    let head = loop {
        let head = read_response(&mut buffer, &HeadLimits::default());
        if let Some(head) = head.map_err(|problem| io::Error::other(problem.to_string()))? {
            break head;
        }
        if tcp.read_buf(&mut buffer).await? == 0 {
            let why = format!("the proxy {} closed the connection", proxy.host);
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
    };
    // The origin sends nothing before the TLS handshake begins.
    if !(200..300).contains(&head.status) || !buffer.is_empty() {
        let why = format!("the proxy {} refuses a tunnel (status {})", proxy.host, head.status);
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
    }
    Ok(tcp)
}

impl Proxy {
    /// The value of `Proxy-Authorization`.
    fn authorization(&self) -> Option<String> {
        self.credentials.as_ref().map(|pair| format!("Basic {}", STANDARD.encode(pair)))
    }
}
