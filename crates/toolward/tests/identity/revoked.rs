//! Credentials that were valid when a connection or stream started, and are no longer.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use serde_json::json;

use crate::certificates::{Papers, secure};
use crate::harness::*;
use crate::issuer::{Issuer, Key};
use crate::jwt::{AUDIENCE, begin, dev, gate_with, turned_away, with};

#[test]
fn streams_end_when_the_key_of_their_token_is_revoked() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let setup = gate_with(&issuer, json!({"jwks": "keys.json"}), dev());
    let file = setup.path("keys.json");
    let write = |keys: &[&Key]| {
        let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        std::fs::write(&file, json!({"keys": keys}).to_string()).unwrap();
    };
    let (old, new) = (issuer.key("p"), Key::new("q", "EC"));
    write(&[&old, &new]);
    let gate = setup.start();
    let token = |key: &Key| key.sign(&issuer.claims(AUDIENCE, json!({"sub": "dev"})));
    let (ends, stays) = (with(&gate, token(&old)).session(), with(&gate, token(&new)).session());
    let (mut ends, mut stays) = (ends.listen(None), stays.listen(None));
    write(&[&new]);
    // The keys are refreshed without any request.
    eventually("the stream ends", || ends.is_closed().then_some(()));
    assert!(stays.is_silent(Duration::from_millis(300)));
    assert_eq!(begin(&with(&gate, token(&old))).status, 401);
}

#[test]
fn tokens_without_a_subject_do_not_share_sessions() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let agents = json!({"dev": {"claims": {"groups": "dev"}, "allow": {"servers": ["*"]}}});
    let gate = gate_with(&issuer, json!({}), agents).start();
    let token = |more: serde_json::Value| {
        let mut claims = issuer.claims(AUDIENCE, json!({"groups": "dev"}));
        let all = claims.as_object_mut().unwrap();
        all.remove("sub");
        all.extend(more.as_object().unwrap().clone());
        with(&gate, issuer.key("p").sign(&claims))
    };
    let list = |session: &Session, agent: Agent| {
        let other = Session { agent, ..session.clone() };
        other.post(&request(json!(1), "tools/list", json!({}))).status
    };
    let one = token(json!({"azp": "one"})).session();
    assert_eq!(list(&one, token(json!({"azp": "one", "jti": "renewed"}))), 200);
    assert_eq!(list(&one, token(json!({"azp": "two"}))), 404);
    assert_eq!(list(&one, token(json!({}))), 404);
    assert_eq!(list(&one, token(json!({"sub": "one"}))), 404);
    let own = token(json!({"jti": "1"})).session();
    assert_eq!(list(&own, own.agent.clone()), 200);
    assert_eq!(list(&own, token(json!({"jti": "2"}))), 404);
}

/// A request on a connection that stays open; returns the status, or `None` if it is closed.
fn on(stream: &mut (impl Read + Write), body: &str) -> Option<u16> {
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut some) {
            Ok(read @ 1..) => answer.extend_from_slice(&some[..read]),
            _ => return None,
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.get(9..12)?.parse().ok()
}

/// An open stream over TLS.
fn listening(stream: &mut (impl Read + Write)) {
    let body = initialize(LEGACY).to_string();
    let length = body.len();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut some = vec![0; 64 << 10];
    let read = stream.read(&mut some).unwrap();
    let answer = String::from_utf8_lossy(&some[..read]).into_owned();
    let session = answer
        .lines()
        .find_map(|line| line.strip_prefix("Mcp-Session-Id: "))
        .unwrap_or_else(|| panic!("{answer}"));
    write!(
        stream,
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\
         Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {LEGACY}\r\n\r\n"
    )
    .unwrap();
    let read = stream.read(&mut some).unwrap();
    let answer = String::from_utf8_lossy(&some[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Waits for the end of a stream.
fn ends(stream: &mut impl Read) {
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(1..) => {}
            Ok(0) => return,
            Err(error) => {
                let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                return assert!(!late, "the stream does not end");
            }
        }
    }
}

const CA: &str = "[ca]
default_ca = d
[d]
database = index.txt
serial = serial.txt
new_certs_dir = .
default_md = sha256
policy = p
x509_extensions = e
[p]
commonName = supplied
[e]
basicConstraints = critical,CA:FALSE
subjectAltName = DNS:x.example
";

/// A time this many seconds from now, as openssl expects it.
fn stamp(seconds: u64) -> String {
    let time = format!("@{}", crate::issuer::now() + seconds);
    let mut date = std::process::Command::new("date");
    let said = date.args(["-u", "+%Y%m%d%H%M%SZ", "-d", &time]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_string()
}

fn gate(papers: &Papers<'_>) -> Gate {
    let agent = json!({"certificates": ["CN=reviewer"], "tokens": [], "allow": {"servers": ["*"]}});
    let tls = json!({
        "cert": papers.path("gate.pem"),
        "key": papers.path("gate.key"),
        "client_ca": papers.path("clients.pem"),
    });
    secure(setup().agents(json!({"reviewer": agent})), tls)
}

#[test]
fn a_certificate_whose_authority_was_removed_loses_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers(folder.path());
    for authority in ["ca", "old", "new"] {
        papers.authority(authority);
    }
    papers.sign("ca", "gate", "/CN=gate", "DNS:localhost");
    papers.sign("old", "before", "/CN=reviewer", "DNS:x.example");
    papers.sign("new", "after", "/CN=reviewer", "DNS:x.example");
    let read = |name: &str| std::fs::read_to_string(papers.path(name)).unwrap();
    std::fs::write(papers.path("clients.pem"), read("old.pem") + &read("new.pem")).unwrap();
    let gate = gate(&papers);
    let body = initialize(LEGACY).to_string();
    let mut before = papers.connect(gate.port, Some("before"));
    let mut after = papers.connect(gate.port, Some("after"));
    assert_eq!((on(&mut before, &body), on(&mut after, &body)), (Some(200), Some(200)));
    let mut stream = papers.connect(gate.port, Some("before"));
    listening(&mut stream);
    std::fs::write(papers.path("clients.pem"), read("new.pem")).unwrap();
    // The files are checked every two seconds.
    ends(&mut stream);
    assert_eq!(on(&mut before, &body), Some(401));
    assert_eq!(on(&mut before, &body), None, "the connection is closed");
    assert_eq!(on(&mut after, &body), Some(200));
    let why = "the client's certificate is no longer valid";
    assert!(turned_away(&gate, 1).contains(&why.into()));
}

#[test]
fn a_certificate_that_ends_loses_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers(folder.path());
    papers.authority("ca");
    papers.authority("clients");
    papers.sign("ca", "gate", "/CN=gate", "DNS:localhost");
    // Only `openssl ca` accepts an end time in seconds.
    std::fs::write(papers.path("ca.cnf"), CA).unwrap();
    std::fs::write(papers.path("index.txt"), "").unwrap();
    std::fs::write(papers.path("serial.txt"), "01").unwrap();
    let mut arguments = vec!["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    arguments.extend(["-nodes", "-subj", "/CN=reviewer", "-keyout", "short.key"]);
    arguments.extend(["-out", "short.csr"]);
    papers.openssl(&arguments);
    let (begins, end) = (stamp(0), stamp(5));
    let mut arguments =
        vec!["ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", "clients.pem"];
    arguments.extend(["-keyfile", "clients.key", "-in", "short.csr", "-out", "short.pem"]);
    arguments.extend(["-startdate", &begins, "-enddate", &end]);
    papers.openssl(&arguments);
    let gate = gate(&papers);
    let body = initialize(LEGACY).to_string();
    let mut short = papers.connect(gate.port, Some("short"));
    assert_eq!(on(&mut short, &body), Some(200));
    let mut stream = papers.connect(gate.port, Some("short"));
    listening(&mut stream);
    ends(&mut stream);
    assert_eq!(on(&mut short, &body), Some(401));
    assert_eq!(on(&mut short, &body), None, "the connection is closed");
}
