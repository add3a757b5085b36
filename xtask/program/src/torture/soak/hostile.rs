//! Clients that try to make the gateway hold as much as possible, each in its own way, again and again.

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::client::body;

const MIB: usize = 1 << 20;
/// Between two attacks of one kind.
const PAUSE: Duration = Duration::from_millis(500);
/// How long connections are held open.
const HOLD: Duration = Duration::from_secs(2);

type Attack = fn(&Target) -> Result<()>;

const ATTACKS: [Attack; 9] = [
    long_hello,
    many_sessions,
    announced_bodies,
    calls_that_are_left,
    unread_stream,
    finished_streams,
    silent_connections,
    burst_of_results,
    unread_continue,
];

/// Starts one thread per attack.
pub(super) fn start(
    port: u16,
    token: &'static str,
    ended: &Arc<AtomicBool>,
    attacks: &Arc<AtomicU64>,
) -> Vec<JoinHandle<()>> {
    let run = |attack: Attack| {
        let (ended, attacks) = (ended.clone(), attacks.clone());
        std::thread::spawn(move || {
            // The lowest priority, which on Linux is a thread's own: what is measured is the time that
            // the gateway spends on attacks, not the time that the attackers take from it.
            let _ = rustix::process::nice(19);
            let target = Target { port, token };
            while !ended.load(Ordering::Acquire) {
                // It does not matter whether the gateway accepts, refuses or interrupts the attack.
                let _ = attack(&target);
                attacks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        })
    };
    ATTACKS.into_iter().map(run).collect()
}

struct Target {
    port: u16,
    token: &'static str,
}

impl Target {
    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    fn head(&self, method: &str, more: &str, length: usize) -> String {
        format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Type: \
             application/json\r\nAccept: application/json, text/event-stream\r\n{more}Content-Length: \
             {length}\r\n\r\n",
            self.port, self.token
        )
    }

    fn send(&self, method: &str, more: &str, body: &str) -> Result<TcpStream> {
        let mut stream = self.connect()?;
        stream.write_all(self.head(method, more, body.len()).as_bytes())?;
        stream.write_all(body.as_bytes())?;
        Ok(stream)
    }

    /// Begins a session; the header that names it.
    fn session(&self) -> Result<String> {
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#;
        let answer = read_some(&mut self.send("POST", "", hello)?)?;
        let lower = answer.to_ascii_lowercase();
        let at = lower.find("mcp-session-id: ").ok_or(std::io::ErrorKind::InvalidData)?;
        let id = answer[at..].split("\r\n").next().unwrap_or_default();
        Ok(format!("{id}\r\n"))
    }

    fn modern(&self, tool: &str, arguments: &str) -> Result<TcpStream> {
        let more = format!(
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        );
        let plain = body("tools/call", "h", Some((tool, "")));
        let body = plain.replace("{\"text\":\"\"}", arguments);
        let body = body.replace("\"_meta\":{", "\"_meta\":{\"progressToken\":1,");
        self.send("POST", &more, &body)
    }
}

/// Reads the data that is available at once.
fn read_some(stream: &mut TcpStream) -> Result<String> {
    let mut room = [0; 16 << 10];
    let count = stream.read(&mut room)?;
    Ok(String::from_utf8_lossy(room.get(..count).unwrap_or_default()).into_owned())
}

/// Reads a response until the connection is closed, or until nothing arrives for a second.
fn read_all(stream: &mut TcpStream) -> Result<usize> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut room, mut read) = (vec![0; 64 << 10], 0);
    while let Ok(count @ 1..) = stream.read(&mut room) {
        read += count;
    }
    Ok(read)
}

/// `initialize` with megabytes of capabilities.
fn long_hello(target: &Target) -> Result<()> {
    let long = "x".repeat(3 * MIB);
    let hello = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{"x":"{long}"}},"clientInfo":{{"name":"soak","version":"1"}}}}}}"#
    );
    for _ in 0..5 {
        read_some(&mut target.send("POST", "", &hello)?)?;
    }
    Ok(())
}

/// Sessions that begin and end.
fn many_sessions(target: &Target) -> Result<()> {
    for _ in 0..20 {
        let session = target.session()?;
        read_some(&mut target.send("DELETE", &session, "")?)?;
    }
    Ok(())
}

/// Bodies that are announced and never sent.
fn announced_bodies(target: &Target) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..60 {
        let mut stream = target.connect()?;
        stream.write_all(target.head("POST", "", 4 * MIB - 1).as_bytes())?;
        stream.write_all(b"{")?;
        held.push(stream);
    }
    std::thread::sleep(HOLD);
    Ok(())
}

/// Calls in a session with large arguments, whose client disconnects.
fn calls_that_are_left(target: &Target) -> Result<()> {
    let session = target.session()?;
    let long = "x".repeat(MIB);
    for id in 0..10 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"heavy__hang","arguments":{{"x":"{long}"}}}}}}"#
        );
        drop(target.send("POST", &session, &call)?);
    }
    std::thread::sleep(HOLD);
    read_some(&mut target.send("DELETE", &session, "")?)?;
    Ok(())
}

/// A stream of large notifications that is not read.
fn unread_stream(target: &Target) -> Result<()> {
    let stream = target.modern("heavy__flood", r#"{"count":8,"bytes":4000000}"#)?;
    std::thread::sleep(HOLD);
    drop(stream);
    Ok(())
}

/// Streams of a session that are read to their end.
fn finished_streams(target: &Target) -> Result<()> {
    let session = target.session()?;
    for id in 0..4 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"heavy__large","arguments":{{"bytes":2000000}},"_meta":{{"progressToken":{id}}}}}}}"#
        );
        let more = format!("{session}Connection: close\r\n");
        read_all(&mut target.send("POST", &more, &call)?)?;
    }
    Ok(())
}

/// Connections that never send anything.
fn silent_connections(target: &Target) -> Result<()> {
    let held: Vec<_> = (0..300).filter_map(|_| target.connect().ok()).collect();
    std::thread::sleep(HOLD);
    drop(held);
    Ok(())
}

/// Large results at the same time; half of them are not read.
fn burst_of_results(target: &Target) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(target.modern("heavy__large", r#"{"bytes":8000000}"#)?);
    }
    for stream in held.iter_mut().step_by(2) {
        read_all(stream)?;
    }
    Ok(())
}

/// Many requests with `Expect: 100-continue` that read nothing.
fn unread_continue(target: &Target) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut stream = target.connect()?;
        let head = target.head("POST", "Expect: 100-continue\r\n", MIB);
        stream.write_all(head.as_bytes())?;
        held.push(stream);
    }
    std::thread::sleep(HOLD);
    Ok(())
}
