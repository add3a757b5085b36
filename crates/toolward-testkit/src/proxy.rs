//! A forward proxy on loopback: tunnels for `CONNECT`, and requests whose target is a whole URL.
//!
//! Every host name leads to loopback, so that tests can use names that do not exist.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A running proxy. It ends with the process.
pub struct Proxy {
    pub port: u16,
    /// The head of each request.
    heads: Arc<Mutex<Vec<String>>>,
    /// The required value of `Proxy-Authorization`.
    required: Arc<Mutex<Option<String>>>,
}

impl Proxy {
    pub fn start() -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (heads, required) = (Arc::default(), Arc::default());
        let proxy = Proxy { port, heads, required };
        let (heads, required) = (proxy.heads.clone(), proxy.required.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heads, required) = (heads.clone(), required.clone());
                std::thread::spawn(move || serve(stream, &heads, &required));
            }
        });
        Ok(proxy)
    }

    /// Refuses requests without this `Proxy-Authorization`.
    pub fn require(&self, authorization: &str) {
        *locked(&self.required) = Some(authorization.into());
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        locked(&self.heads).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    mut client: TcpStream,
    heads: &Mutex<Vec<String>>,
    required: &Mutex<Option<String>>,
) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let head = read_head(&mut reader)?;
    locked(heads).push(head.clone());
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let mut body = vec![0; field("content-length").and_then(|it| it.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    if let Some(required) = &*locked(required)
        && field("proxy-authorization") != Some(required)
    {
        return client
            .write_all(b"HTTP/1.1 407 Denied\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if method == "CONNECT" {
        let server = connect(target)?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        return relay(client, server);
    }
    // One connection for each request, announced to both sides: a client that reused it would lose
    // its next request.
    let rest = target.strip_prefix("http://").unwrap_or(target);
    let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
    let mut server = connect(authority)?;
    let path = rest.get(authority.len()..).unwrap_or("/");
    server.write_all(closing(&head.replacen(target, path, 1)).as_bytes())?;
    server.write_all(&body)?;
    let mut response = BufReader::new(server);
    client.write_all(closing(&read_head(&mut response)?).as_bytes())?;
    io::copy(&mut response, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// The head of a message, with the empty line after it.
fn read_head(reader: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// The head of the last message on a connection.
fn closing(head: &str) -> String {
    head.replacen("\r\n", "\r\nConnection: close\r\n", 1)
}

/// Connects to the port of `HOST:PORT`, on loopback.
fn connect(authority: &str) -> io::Result<TcpStream> {
    let port = authority.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    TcpStream::connect(("127.0.0.1", port.ok_or(io::ErrorKind::InvalidInput)?))
}

fn relay(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut from_server, mut to_client) = (server, client);
    io::copy(&mut from_server, &mut to_client)?;
    to_client.shutdown(Shutdown::Write)
}
