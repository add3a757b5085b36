//! Connections are limited, and connections without a token are evicted first.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::event_stream::Watch;
use super::harness::{everyone, names, setup};
use super::kit::Site;

fn site() -> Site {
    Site::of(setup().agents(everyone()).stdio("s", "modern", names(&["x"])))
}

fn connect(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", site.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Whether a connection has been closed, without waiting for it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_crowd_without_the_token_does_not_shut_others_out() {
    let site = site();
    let mut follows = Watch::open(&site, "events", &[]);
    // They reconnect again and again, some silent, some with half a request.
    let mut crowd: Vec<TcpStream> = Vec::new();
    for round in 0..3 {
        for number in 0..100 {
            let mut stream = connect(&site);
            if number % 2 == 0 {
                let _ = stream.write_all(b"POST /login HTTP/1.1\r\nHost: 127");
            }
            crowd.push(stream);
        }
        assert_eq!(site.get("ask", &[]).status, 200, "round {round}");
        assert_eq!(site.raw("GET / HTTP/1.1", &[], "").status, 401, "round {round}");
    }
    // The oldest were evicted, and the open event streams continue.
    assert!(crowd.iter_mut().take(200).all(is_closed));
    let config = site.gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"b\": {", "\"bee\": {")).unwrap();
    follows.event("changed");
    let said = site.gate.said.lock().unwrap().clone();
    assert_eq!(said.matches("connections are in use").count(), 1, "{said}");
}

#[test]
fn a_client_that_does_not_finish_its_first_request_is_disconnected_in_seconds() {
    let site = site();
    let origin = format!("Origin: {}", site.origin());
    let host = format!("Host: 127.0.0.1:{}", site.port);
    let body =
        format!("POST /login HTTP/1.1\r\n{host}\r\n{origin}\r\nContent-Length: 9\r\n\r\ntok");
    let begun = Instant::now();
    let mut waiting: Vec<TcpStream> = ["", "GET / HT", &body]
        .iter()
        .map(|part| {
            let mut stream = connect(&site);
            stream.write_all(part.as_bytes()).unwrap();
            stream
        })
        .collect();
    for stream in &mut waiting {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    // Far less than the minute that agents have, even on a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}
