//! Measures the throughput of the scanner: `cargo run --release -p toolward-wire --example measure
//! [FILE…]`. Files contain JSON, such as saved tool lists. Without files, built-in bodies are used.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use toolward_wire::http::{self, HeadLimits};
use toolward_wire::scan::{Strictness, scan};
use toolward_wire::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Message, Sender};

fn main() -> std::io::Result<()> {
    let call = br#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/srv/project/src/main.rs","offset":120,"limit":40},"_meta":{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    measure("call", call);
    let each = time(|| {
        let message = Message::parse(black_box(call[..].into()), MAX_REQUEST_BYTES, Sender::Client);
        let _ = black_box(message);
    });
    println!("{:<24}{:>10}{:>13.0} ns per message", "call, parsed", call.len(), each);
    let head = b"POST /mcp HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: agent/1.0\r\n\
        Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
        Mcp-Session-Id: 0f6a8f1e-8c1d-4a39-9d0e-6f0c4f6d2a51\r\nMcp-Protocol-Version: 2025-11-25\r\n\
        Authorization: Bearer abcdefghijklmnopqrstuvwxyz\r\nContent-Length: 280\r\n\r\n";
    let each = time(|| {
        let mut buffer = BytesMut::from(black_box(&head[..]));
        let _ = black_box(http::read_request(&mut buffer, &HeadLimits::default()));
    });
    println!("{:<24}{:>10}{:>13.0} ns per head", "request head", head.len(), each);
    let mut text =
        br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#.to_vec();
    text.extend(b"A line of a requested file, with \\\"quotes\\\".\\n".repeat(2000));
    text.extend(br#""}]}}"#);
    measure("text response", &text);
    let numbers: Vec<String> = (0..20_000).map(|n| format!("{}.{}", n * 37, n % 100)).collect();
    measure("numbers", format!("[{}]", numbers.join(",")).as_bytes());
    for file in std::env::args().skip(1) {
        let name = file.rsplit('/').next().unwrap_or(&file);
        measure(name, &std::fs::read(&file)?);
    }
    Ok(())
}

fn measure(name: &str, body: &[u8]) {
    if let Err(error) = scan(body, MAX_RESPONSE_BYTES, Strictness::Everywhere) {
        println!("{name:<24}{:>10} rejected: {error}", body.len());
        return;
    }
    let each = time(|| {
        let outline = scan(black_box(body), MAX_RESPONSE_BYTES, Strictness::Everywhere);
        let _ = black_box(outline.is_ok());
    });
    let rate = body.len() as f64 / each * 1000.0;
    println!("{name:<24}{:>10}{each:>13.0} ns {rate:>9.0} MB/s", body.len());
}

/// Nanoseconds per iteration: the best of several rounds, since other load only adds time.
fn time(mut turn: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(400) {
        let (start, mut turns) = (Instant::now(), 0u32);
        while start.elapsed() < Duration::from_millis(4) {
            for _ in 0..8 {
                turn();
            }
            turns += 8;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / turns as f64);
    }
    best
}
