//! Authentication of the admin UI: without the token, a request gets no data.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde_json::json;

use super::event_stream::Watch;
use super::harness::{eventually, everyone, names, setup};
use super::html::between;
use super::kit::Site;

/// A word that occurs only in the admin UI's data.
const MARK: &str = "tool_that_nobody_may_read_of";

fn site() -> Site {
    Site::of(setup().agents(everyone()).stdio("s", "modern", names(&[MARK])))
}

const VIEWS: [&str; 12] = [
    "",
    "banners",
    "rows?from=0",
    "explain?agent=a&server=s&tool=x",
    "ask",
    "ask/tools?tool=",
    "live",
    "live/events",
    "policy",
    "servers",
    "events",
    "nothing",
];

#[test]
fn without_the_token_every_path_has_the_same_response_without_data() {
    let site = site();
    assert!(site.table().contains(MARK));
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let mut headers = headers.to_vec();
        headers.push(("Connection", "close"));
        site.whole(&site.bytes(&format!("GET {path} HTTP/1.1"), &headers, ""))
    };
    let login = ask("/", &[]);
    assert!(login.starts_with("HTTP/1.1 401 "), "{login}");
    assert!(login.contains("name=\"token\"") && !login.contains(MARK), "{login}");
    assert!(!login.contains("Set-Cookie"), "{login}");
    let wrong_path = "/0123456789abcdef/";
    for view in VIEWS {
        for path in [&*site.path, wrong_path, "/"] {
            if path != "/" || !view.is_empty() {
                let path = format!("{path}{view}");
                assert_eq!(ask(&path, &[]), login, "{path}");
            }
        }
    }
    for path in
        ["/status", "/mcp", "/healthz", "/metrics", "//", "/.", site.path.trim_end_matches('/')]
    {
        assert_eq!(ask(path, &[]), login, "{path}");
    }
    // The right cookie under another path, and wrong cookies under the right path, get the same
    // response.
    let cookie = &*site.cookie;
    let wrong = format!("toolward={}", "0".repeat(64));
    let with_token = format!("toolward={}", site.token);
    for (path, headers) in [
        (wrong_path, ("Cookie", cookie)),
        (&*site.path, ("Cookie", &*wrong)),
        (&*site.path, ("Cookie", &*with_token)),
        (&*site.path, ("Cookie", "toolward=")),
        (&*site.path, ("Authorization", "Bearer wrong")),
        (&*site.path, ("Authorization", "Basic Og==")),
        ("/status", ("Authorization", "Bearer wrong")),
        ("/status", ("Cookie", cookie)),
        ("/?token=wrong", ("Accept", "*/*")),
        ("/?token=", ("Accept", "*/*")),
    ] {
        assert_eq!(ask(path, &[headers]), login, "{path} {headers:?}");
    }
    // They are counted in the audit log.
    let mut gate = site.gate;
    gate.signal("-TERM");
    gate.ended();
    let folder = gate.file("audit");
    let counted = crate::audit_log::all(&folder);
    let why = "the admin UI's token is wrong";
    assert!(
        counted.iter().any(|one| one["kind"] == "turned-away" && one["reason"] == why),
        "{counted:?}"
    );
}

#[test]
fn the_token_is_accepted_in_each_form() {
    let site = site();
    assert!(site.token.len() >= 32, "{}", site.token);
    let kept = site.gate.file("state/admin.token");
    assert_eq!(std::fs::read_to_string(&kept).unwrap().trim(), site.token);
    assert_eq!(std::fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);

    let reply = site.raw(&format!("GET /?token={} HTTP/1.1", site.token), &[], "");
    let cookie = reply.header("set-cookie").unwrap();
    let attributes: Vec<&str> = cookie.split("; ").skip(1).collect();
    assert_eq!(attributes, [&*format!("Path={}", site.path), "HttpOnly", "SameSite=Strict"]);
    assert!(!cookie.contains(&site.token) && !site.path.contains(&site.token[..16]), "{cookie}");
    assert!(site.path.len() == 18, "{}", site.path);

    let reply = site.post("/login", &format!("token={}", site.token));
    assert_eq!((reply.status, reply.header("location")), (303, Some(&*site.path)));
    assert_eq!(reply.header("set-cookie"), Some(cookie));
    assert_eq!(site.post("/login", "token=wrong").status, 401);
    assert_eq!(site.post("/login", "").status, 401);

    let bearer = format!("Bearer {}", site.token);
    let reply = site.raw(&format!("GET {} HTTP/1.1", site.path), &[("Authorization", &bearer)], "");
    assert_eq!(reply.status, 200);
    let reply = site.raw("GET /status HTTP/1.1", &[("Authorization", &bearer)], "");
    let status = reply.json();
    assert_eq!(status["page"], format!("http://127.0.0.1:{}/", site.port));
    assert_eq!(status["servers"][0]["name"], "s");
    let other = ("Cookie", &*format!("a=b; {} ; toolward=x", site.cookie));
    assert_eq!(site.raw(&format!("GET {} HTTP/1.1", site.path), &[other], "").status, 200);
}

#[test]
fn response_headers_keep_other_origins_out() {
    let site = site();
    let login = site.raw("GET / HTTP/1.1", &[], "");
    let entered = site.raw(&format!("GET /?token={} HTTP/1.1", site.token), &[], "");
    let page = site.get("", &[]);
    let refused = site.raw("GET / HTTP/1.1", &[("Host", "evil.example")], "");
    let malformed = site.raw("GET / HTTP/9.9", &[], "");
    let html = String::from_utf8(page.body.clone()).unwrap();
    let style = html.split("href=\"../").nth(2).unwrap().split('"').next().unwrap();
    let asset = site.raw(&format!("GET /{style} HTTP/1.1"), &[], "");
    assert_eq!(
        (asset.status, asset.header("content-type")),
        (200, Some("text/css; charset=utf-8"))
    );
    assert!(asset.header("cache-control").unwrap().contains("immutable"));
    for reply in [&login, &entered, &page, &refused, &malformed, &asset] {
        let policy = reply.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("same-origin"));
        assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"));
        assert!(reply.header("access-control-allow-origin").is_none());
    }
    for reply in [&login, &entered, &page, &refused] {
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
    // Nothing is inline, so the Content-Security-Policy can forbid inline scripts and styles.
    for inline in ["<script>", " style=", " onclick=", "javascript:"] {
        assert!(!html.contains(inline), "{inline}");
    }
    for missing in ["/assets/", "/assets/x/page.css", "/assets/../state/admin.token"] {
        assert_eq!(site.raw(&format!("GET {missing} HTTP/1.1"), &[], "").status, 404, "{missing}");
    }
}

#[test]
fn other_origins_can_neither_post_nor_fetch() {
    let site = site();
    let own = site.origin();
    let other_port = format!("http://127.0.0.1:{}", site.port.wrapping_add(1));
    let form = format!("token={}", site.token);
    let post = |path: &str, headers: &[(&str, &str)]| {
        let mut all = vec![("Cookie", &*site.cookie)];
        all.extend(headers);
        site.raw(&format!("POST {path} HTTP/1.1"), &all, &form).status
    };
    let ask = format!("{}ask", site.path);
    for path in ["/login", &*ask] {
        assert_eq!(post(path, &[]), 403, "without an origin");
        for origin in
            [&*other_port, "null", "http://evil.example", "http://localhost", "", "file://"]
        {
            assert_eq!(post(path, &[("Origin", origin)]), 403, "{origin}");
        }
        let foreign = [("Origin", &*own), ("Sec-Fetch-Site", "cross-site")];
        assert_eq!(post(path, &foreign), 403);
        assert_ne!(post(path, &[("Origin", &*own), ("Sec-Fetch-Site", "same-origin")]), 403);
    }
    for view in VIEWS.iter().filter(|view| !view.contains("events")) {
        for from in ["cross-site", "same-site", "anything", ""] {
            let reply = site.get(view, &[("Sec-Fetch-Site", from)]);
            assert_eq!(reply.status, 403, "{view} {from}");
        }
        let reply = site.get(view, &[("Sec-Fetch-Site", "same-origin")]);
        assert_ne!(reply.status, 403, "{view}");
    }
    let twice = [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(site.get("", &twice).status, 403);
    // Only these two accept a body.
    assert_eq!(site.post(&site.path, "x=y").status, 405);
    assert_eq!(site.post(&format!("{}policy", site.path), "x=y").status, 405);
    for method in ["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"] {
        let line = format!("{method} {} HTTP/1.1", site.path);
        assert_eq!(site.raw(&line, &[("Cookie", &site.cookie)], "").status, 405, "{method}");
    }
}

#[test]
fn a_foreign_host_name_is_refused() {
    let site = site();
    let port = site.port;
    let with = |host: &str| site.get("", &[("Host", host)]).status;
    for host in
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0"]
    {
        assert_eq!(with(host), 403, "{host}");
        assert_eq!(with(&format!("{host}:{port}")), 403, "{host}");
    }
    for host in [
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        format!("127.0.0.1:{port}"),
        "localhost:9".into(),
    ] {
        assert_eq!(with(&host), 200, "{host}");
    }
}

#[test]
fn requests_with_two_readings_are_refused() {
    let site = site();
    let host = format!("Host: 127.0.0.1:{}", site.port);
    let origin = format!("Origin: {}", site.origin());
    let cookie = format!("Cookie: {}", site.cookie);
    let smuggled = format!("GET {} HTTP/1.1\r\n{host}\r\n{cookie}\r\n\r\n", site.path);
    let attacks = [
        format!(
            "POST /login HTTP/1.1\r\n{host}\r\n{origin}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /login HTTP/1.1\r\n{host}\r\n{origin}\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{smuggled}",
            smuggled.len()
        ),
        format!("GET / HTTP/1.1\r\n{host}\r\nHost: evil.example\r\n\r\n"),
        format!("GET / HTTP/1.1\n{host}\n\n"),
        format!("GET http://evil.example/ HTTP/1.1\r\n{host}\r\n\r\n"),
        format!(
            "POST /login HTTP/1.1\r\n{host}\r\n{origin}\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n"
        ),
    ];
    for attack in attacks {
        let answer = site.whole(&attack);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{attack:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{attack:?}: {answer}");
        assert!(!answer.contains(MARK), "{answer}");
    }
    // The body of a rejected request is not read, and bytes after it are not parsed as a request.
    let long = format!("POST /login HTTP/1.1\r\n{host}\r\nContent-Length: 300000\r\n\r\n");
    let answer = site.whole(&(long + &"x".repeat(1000)));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let get =
        format!("GET / HTTP/1.1\r\n{host}\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len());
    let answer = site.whole(&get);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let large =
        format!("POST /login HTTP/1.1\r\n{host}\r\n{origin}\r\nContent-Length: 300000\r\n\r\n");
    assert!(site.whole(&large).starts_with("HTTP/1.1 413 "));
}

#[test]
fn wrong_tokens_are_answered_one_after_the_other() {
    let site = site();
    let port = site.port;
    let guess = site.bytes("GET /?token=guess HTTP/1.1", &[], "");
    let tried = || {
        let mut connection = super::wire::Connection::open(port);
        connection.send(guess.as_bytes());
        connection.reply().status
    };
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(tried(), 401));
        }
    });
    // A lower bound, which a busy machine cannot break.
    assert!(begun.elapsed().as_millis() >= 900, "{:?}", begun.elapsed());
    // Many connections without the token are closed, and a browser with the token is still served.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..20).map(|_| scope.spawn(tried)).collect();
        assert_eq!(site.get("ask", &[]).status, 200);
        crowd.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
}

#[test]
fn the_agents_endpoint_and_the_admin_ui_are_separate() {
    let site = site();
    let mut agent = site.gate.agent("a");
    let view = site.gate.raw(site.bytes(
        &format!("GET {} HTTP/1.1", site.path),
        &[("Cookie", &site.cookie)],
        "",
    ));
    assert_eq!(view.status, 404);
    let bearer = format!("Bearer {}", site.token);
    let view = site.gate.raw(site.bytes("GET /status HTTP/1.1", &[("Authorization", &bearer)], ""));
    assert_eq!(view.status, 404);
    // An agent's token opens nothing here, and the admin token identifies no agent.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let origin = site.origin();
    for token in [&*site.token, "token-of-agent-a"] {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("Authorization", &*bearer),
            ("Origin", &*origin),
            ("Content-Type", "application/json"),
        ];
        let reply = site.raw("POST /mcp HTTP/1.1", &headers, &body);
        assert_eq!(reply.status, 401, "{reply:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains(MARK));
    }
    let bearer = format!("Bearer {}", site.token);
    agent.token = None;
    let headers = [("Authorization", &*bearer), ("MCP-Protocol-Version", "2025-06-18")];
    assert_eq!(agent.send("POST", &headers, &body).status, 401);
}

#[test]
fn open_views_are_notified_of_changes() {
    let site = site();
    let before = site.table();
    let mut events = TcpStream::connect(("127.0.0.1", site.port)).unwrap();
    events.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let line = format!("GET {}events HTTP/1.1", site.path);
    events.write_all(site.bytes(&line, &[("Cookie", &site.cookie)], "").as_bytes()).unwrap();
    let mut lines = BufReader::new(events).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    assert!(
        lines
            .by_ref()
            .take_while(|line| !line.is_empty())
            .any(|line| line == "Content-Type: text/event-stream")
    );
    // The stream is open once it has sent something.
    assert!(lines.any(|line| line == ": here"));
    let config = site.gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"b\": {", "\"bee\": {")).unwrap();
    assert!(lines.any(|line| line == "event: changed"));
    let html = eventually("the new agent is there", || {
        let html = site.html("");
        html.contains("data-agent=\"bee\"").then_some(html)
    });
    assert!(!html.contains("data-agent=\"b\""), "{html}");
    // A view rendered before the change is notified at once, and one rendered after it is not.
    let first = |seen: &str| {
        let mut watch = Watch::open(&site, &format!("events?seen={seen}"), &[]);
        watch.next(Duration::from_millis(300)).map(|told| told.event)
    };
    assert_eq!(first(between(&before, "data-seen=\"", "\"")[0]).as_deref(), Some("changed"));
    eventually("a view that is made now hears of nothing", || {
        first(between(&site.html(""), "data-seen=\"", "\"")[0]).is_none().then_some(())
    });
    // A rejected reload is shown in every view.
    std::fs::write(&config, "agents: [").unwrap();
    eventually("the refusal is shown", || {
        site.html("ask").contains("The last reload was rejected").then_some(())
    });
}
