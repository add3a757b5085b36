//! HTTP framing and request heads: ambiguous input is rejected.

use std::io::Write;

use serde_json::json;

use super::harness::*;

fn gate() -> Gate {
    setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start()
}

const HEAD: &str = "Authorization: Bearer token-of-agent-a\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

#[test]
fn ambiguous_framing_is_rejected_and_the_connection_closed() {
    let gate = gate();
    let body = initialize(LEGACY).to_string();
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let good = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{HEAD}Content-Length: {length}\r\n\r\n{body}"
    );
    assert_eq!(gate.raw(&good).status, 200);
    let post = |fields: &str, body: &str| format!("POST /mcp HTTP/1.1\r\n{HEAD}{fields}\r\n{body}");
    let cl = format!("Content-Length: {length}\r\n");
    let host = "Host: localhost\r\n";
    let te = "Transfer-Encoding: chunked\r\n";
    let with = |fields: &str| post(&format!("{host}{cl}{fields}"), &body);
    for (what, bytes) in [
        ("CL and TE", post(&format!("{host}{cl}{te}"), &chunked)),
        ("TE and CL", post(&format!("{host}{te}{cl}"), &chunked)),
        ("two CL", post(&format!("{host}{cl}{cl}"), &body)),
        ("two different CL", post(&format!("{host}{cl}Content-Length: 3\r\n"), &body)),
        ("a list of CL", post(&format!("{host}Content-Length: {length}, {length}\r\n"), &body)),
        ("a signed CL", post(&format!("{host}Content-Length: +{length}\r\n"), &body)),
        ("a hex CL", post(&format!("{host}Content-Length: 0x{length:x}\r\n"), &body)),
        ("two TE", post(&format!("{host}{te}{te}"), &chunked)),
        ("TE identity", post(&format!("{host}Transfer-Encoding: identity\r\n"), &body)),
        (
            "TE gzip, chunked",
            post(&format!("{host}Transfer-Encoding: gzip, chunked\r\n"), &chunked),
        ),
        ("TE xchunked", post(&format!("{host}Transfer-Encoding: xchunked\r\n"), &chunked)),
        ("space before colon", post(&format!("{host}Content-Length : {length}\r\n"), &body)),
        ("TE with space", post(&format!("{host}Transfer-Encoding : chunked\r\n{cl}"), &chunked)),
        ("no host", post(&cl, &body)),
        ("two hosts", with("Host: localhost\r\n")),
        ("a foreign host", post(&format!("Host: evil.example\r\n{cl}"), &body)),
        ("a host like ours", post(&format!("Host: localhost.evil.example\r\n{cl}"), &body)),
        ("a host with a user", post(&format!("Host: localhost@evil.example\r\n{cl}"), &body)),
        ("an empty host", post(&format!("Host:\r\n{cl}"), &body)),
        ("another host in the target", good.replacen("/mcp", "http://evil.example/mcp", 1)),
        ("another port in the target", good.replacen("/mcp", "http://localhost:1/mcp", 1)),
        ("bare LF", good.replace("\r\n", "\n")),
        ("one bare LF", good.replacen("localhost\r\n", "localhost\n", 1)),
        ("a bare CR", good.replacen("localhost\r\n", "localhost\rX: y\r\n", 1)),
        ("a folded header", with("X-Long: a\r\n b\r\n")),
        ("a fold first", good.replacen("\r\nHost", "\r\n Host", 1)),
        ("a header without a colon", with("nonsense\r\n")),
        ("an empty name", with(": x\r\n")),
        ("a NUL", with("X: a\0b\r\n")),
        ("two authorizations", with("Authorization: Bearer token-of-agent-b\r\n")),
        ("two content types", with("Content-Type: application/json\r\n")),
        ("two sessions", with("Mcp-Session-Id: a\r\nmcp-session-id: b\r\n")),
        ("two origins", with("Origin: http://localhost\r\nOrigin: http://evil.example\r\n")),
        (
            "two versions",
            with(&format!("MCP-Protocol-Version: {LEGACY}\r\nMCP-Protocol-Version: {MODERN}\r\n")),
        ),
        ("two last events", with("Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n")),
        ("a version of its own", good.replacen("HTTP/1.1", "HTTP/1.2", 1)),
        ("HTTP/2", good.replacen("HTTP/1.1", "HTTP/2.0", 1)),
        ("HTTP/0.9", "GET /mcp\r\n\r\n".into()),
        ("spaces in the line", good.replacen("POST ", "POST  ", 1)),
        ("a tab in the line", good.replacen("POST ", "POST\t", 1)),
        ("a fragment", good.replacen("/mcp", "/mcp#x", 1)),
        (
            "a chunk extension",
            post(&format!("{host}{te}"), &chunked.replacen("\r\n", ";a=b\r\n", 1)),
        ),
        (
            "a chunk without its end",
            post(&format!("{host}{te}"), &chunked.replacen("}\r\n0", "}0", 1)),
        ),
        ("a chunk size with a sign", post(&format!("{host}{te}"), &format!("+{chunked}"))),
        ("a chunk size with 0x", post(&format!("{host}{te}"), &format!("0x{chunked}"))),
        ("a chunk size with LF", post(&format!("{host}{te}"), &chunked.replacen("\r\n", "\n", 1))),
        ("a huge chunk size", post(&format!("{host}{te}"), "ffffffffffffffff1\r\n")),
        (
            "a trailer",
            post(
                &format!("{host}{te}"),
                &chunked
                    .replace("0\r\n\r\n", "0\r\nAuthorization: Bearer token-of-agent-b\r\n\r\n"),
            ),
        ),
    ] {
        let mut connection = gate.connect();
        connection.send(bytes.as_bytes());
        // Bytes after it are not parsed.
        connection.send(good.as_bytes());
        let reply = connection.try_reply().unwrap_or_else(|| panic!("{what}: no answer"));
        let expected: &[u16] = match what {
            "TE identity" | "TE gzip, chunked" | "TE xchunked" => &[400, 501],
            "a version of its own" | "HTTP/2" => &[400, 505],
            "a huge chunk size" => &[400, 413],
            _ => &[400],
        };
        assert!(expected.contains(&reply.status), "{what}: {reply:?}");
        assert!(connection.is_closed(), "{what}: the connection is still open");
    }
    assert!(gate.log("s").is_empty());
}

#[test]
fn well_framed_requests_are_read_however_they_arrive() {
    let gate = gate();
    let session = gate.agent("a").session();
    let body = request(json!(1), "tools/call", json!({"name": "s__t"})).to_string();
    let head = |fields: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: LOCALHOST:{}\r\n{HEAD}Mcp-Session-Id: {}\r\n{fields}\r\n",
            gate.port, session.id
        )
    };
    let (one, two) = body.split_at(30);
    let chunks = format!("{:x}\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    let chunked = head("Transfer-Encoding: chunked\r\n") + &chunks;
    let plain = head(&format!("Content-Length: {}\r\n", body.len())) + &body;
    assert_eq!(text(&gate.raw(&chunked).json()), "did t");
    assert_eq!(text(&gate.raw(chunked.replacen("chunked\r\n", "Chunked\r\n", 1)).json()), "did t");
    let absolute = plain.replacen("/mcp", &format!("http://localhost:{}/mcp", gate.port), 1);
    assert_eq!(text(&gate.raw(absolute).json()), "did t");
    assert_eq!(text(&gate.raw(plain.replacen("/mcp", "/mcp?x=1&y", 1)).json()), "did t");

    // Byte by byte, several on one connection, and several at once: the responses are in order.
    let mut connection = gate.connect();
    for byte in plain.as_bytes() {
        connection.send(&[*byte]);
    }
    assert_eq!(text(&connection.reply().json()), "did t");
    connection.send(chunked.as_bytes());
    assert_eq!(text(&connection.reply().json()), "did t");
    let many: String = (10..20)
        .map(|id| {
            plain.replacen("\"id\":1,", &format!("\"id\":{id},"), 1).replacen(
                &format!("Content-Length: {}", body.len()),
                &format!("Content-Length: {}", body.len() + 1),
                1,
            )
        })
        .collect();
    connection.send(many.as_bytes());
    for id in 10..20 {
        assert_eq!(connection.reply().json()["id"], id);
    }
    // A client that waits for `100 Continue` before it sends the body.
    let expecting = head(&format!("Content-Length: {}\r\nExpect: 100-continue\r\n", body.len()));
    connection.send(expecting.as_bytes());
    assert_eq!(connection.head().status, 100);
    connection.send(body.as_bytes());
    assert_eq!(text(&connection.reply().json()), "did t");
    connection.send(expecting.replace("token-of-agent-a", "token-of-agent-x").as_bytes());
    assert_eq!(
        connection.head().status,
        401,
        "an unauthenticated client is not asked for its body"
    );

    let closing = plain.replacen("\r\nHost", "\r\nConnection: close\r\nHost", 1);
    let mut connection = gate.connect();
    connection.send(closing.as_bytes());
    assert_eq!(connection.reply().status, 200);
    assert!(connection.is_closed());
    let old = plain.replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(gate.raw(old).status, 200);
}

#[test]
fn sizes_kinds_and_origins() {
    let gate = gate();
    let a = gate.agent("a");
    let begin = initialize(LEGACY).to_string();
    let post = |headers: &[(&str, &str)], body: &str| a.send("POST", headers, body).status;
    let long = "x".repeat(70_000);
    assert_eq!(post(&[("X-Long", &long)], &begin), 431);
    let many: Vec<(&str, &str)> = (0..2000).map(|_| ("X", "y")).collect();
    assert_eq!(post(&many, &begin), 431);

    let most = 4 << 20;
    let filled = |size: usize| {
        let empty = request(json!(1), "ping", json!({"x": ""})).to_string();
        empty.replace("\"\"", &format!("\"{}\"", "x".repeat(size - empty.len())))
    };
    let session = a.session();
    assert_eq!(a.send("POST", &session.headers(), &filled(most)).status, 200);
    let reply = a.send("POST", &session.headers(), &filled(most + 1));
    assert_eq!((reply.status, reply.code()), (200, -32602), "its id is known");
    assert_eq!(a.send("POST", &[], &filled(most + 1)).status, 413);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20)).repeat(5);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
    );
    assert_eq!(gate.raw(head + &chunk).status, 413);
    // Unauthenticated requests are rejected regardless of their size.
    let reply = gate.nobody().send("POST", &[], &filled(1 << 20));
    assert_eq!(reply.status, 401);

    for encoding in ["gzip", "identity", "br", ""] {
        assert_eq!(post(&[("Content-Encoding", encoding)], &begin), 415, "{encoding}");
    }
    for kind in [
        "text/plain",
        "application/jsonx",
        "application/x-www-form-urlencoded",
        "",
        "multipart/form-data",
        "text/json",
        "application/json-rpc",
    ] {
        assert_eq!(post(&[("Content-Type", kind)], &begin), 415, "{kind}");
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/json;x=y"] {
        assert_eq!(post(&[("Content-Type", kind)], &begin), 200, "{kind}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "",
        "http://localhost.evil.example",
        "file://",
        "http://localhost@evil.example",
        "http://127.0.0.1.evil.example",
        "https://localhost:x@evil.example",
        "http://evil.example/http://localhost",
    ] {
        assert_eq!(post(&[("Origin", origin)], &begin), 403, "{origin}");
        assert_eq!(a.send("GET", &[("Origin", origin)], "").status, 403, "{origin}");
    }
    for origin in ["http://localhost:3000", "http://127.0.0.1"] {
        assert_eq!(post(&[("Origin", origin)], &begin), 200, "{origin}");
    }
    for accept in ["text/html", "image/*"] {
        assert_eq!(post(&[("Accept", accept)], &begin), 406, "{accept}");
    }
}

#[test]
fn only_the_exact_paths_exist() {
    let gate = gate();
    let a = gate.agent("a");
    let begin = initialize(LEGACY);
    for path in [
        "/mcp/",
        "//mcp",
        "/MCP",
        "/mcp%2Fs",
        "/mcp/../mcp",
        "/mcp/s/",
        "/mcp//s",
        "/mcp/s/x",
        "/mcp/S",
        "/mcp/%73",
        "/./mcp",
        "/mcp/.",
        "/mcp/..",
        "/mcp;x",
        "/mcp/s;x",
        "/",
        "/mcpx",
        "/m%63p",
        "/mcp/s%00",
        "/mcp/s.",
        "/mcp\\s",
        "/metrics",
        "/admin",
    ] {
        let status = a.at(path).post(&[], &begin).status;
        assert!(status == 404 || (path.contains('\\') && status == 400), "{path}: {status}");
    }
    for path in ["/mcp", "/mcp/s", "/mcp?", "/mcp/s?a=/mcp/x"] {
        assert_eq!(a.at(path).post(&[], &begin).status, 200, "{path}");
    }
    for (path, word) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let reply = gate.nobody().at(path).send("GET", &[], "");
        assert_eq!((reply.status, reply.body), (200, word.into()));
    }
    for target in ["mcp", "*", "localhost:80"] {
        let bytes = a.at(target).request("POST", &[], &begin.to_string());
        assert!(matches!(gate.raw(bytes).status, 400 | 404), "{target}");
    }
}

#[test]
fn slow_clients_delay_no_other_client() {
    let gate = gate();
    let mut slow: Vec<_> = (0..200)
        .map(|at| {
            let mut connection = gate.connect();
            let start =
                ["POST /mcp HTT", "P", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: "][at % 3];
            connection.send(start.as_bytes());
            connection
        })
        .collect();
    for connection in &mut slow {
        let _ = connection.stream.write_all(b"1");
    }
    // A client that never reads its stream.
    let session = gate.agent("a").session();
    let _deaf = session.listen(None);
    assert_eq!(text(&session.call("s__t", json!({}))), "did t");
}
