//! Connections of the gateway to servers and hooks: TLS, proxies, compression and keep-alive.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use toolward_testkit::proxy::Proxy;

use super::harness::*;

/// Certificates made by openssl.
struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    fn new(dir: &Path) -> Certificates {
        let made = Certificates { dir: dir.to_path_buf() };
        for ca in ["ca", "other"] {
            made.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={ca} \
                 -keyout {ca}.key -out {ca}.pem"
            ));
        }
        made.sign("server", "DNS:tools.example,IP:127.0.0.1");
        made.sign("client", "DNS:gateway");
        made
    }

    fn sign(&self, name: &str, names: &str) {
        std::fs::write(self.dir.join("ext"), format!("subjectAltName={names}\n")).unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key \
             -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
             -out {name}.pem"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let made = command.args(arguments.split_whitespace()).current_dir(&self.dir).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().into()
    }

    /// A server that requires a client certificate. Its port.
    fn server(&self, setup: Setup, era: &str) -> (Setup, String) {
        let (certificate, key, ca) =
            (self.path("server.pem"), self.path("server.key"), self.path("ca.pem"));
        let variables =
            [("TLS_CERTIFICATE", &*certificate), ("TLS_KEY", &*key), ("TLS_CLIENT_CA", &*ca)];
        let setup = setup.web_with("s", era, names(&["t"]), &variables);
        let port = setup.url("s").rsplit(':').next().unwrap().trim_end_matches("/mcp").to_string();
        (setup, port)
    }

    fn tls(&self) -> Value {
        let (cert, key) = (self.path("client.pem"), self.path("client.key"));
        json!({"ca": self.path("ca.pem"), "cert": cert, "key": key})
    }
}

#[test]
fn a_server_with_a_private_ca_gets_the_client_certificate() {
    for era in ["legacy", "modern"] {
        let setup = setup();
        let made = Certificates::new(&setup.path(""));
        let (setup, port) = made.server(setup, era);
        let gate = setup
            .with("s", "url", json!(format!("https://127.0.0.1:{port}/mcp")))
            .with("s", "tls", made.tls())
            .agents(everyone())
            .start();
        assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
    }
    // Without the certificate, with another authority, or with the system's, the connection fails.
    let wrong = |tls: &dyn Fn(&Certificates) -> Value| {
        let setup = setup();
        let made = Certificates::new(&setup.path(""));
        let (setup, port) = made.server(setup, "modern");
        let gate = setup
            .with("s", "url", json!(format!("https://127.0.0.1:{port}/mcp")))
            .with("s", "tls", tls(&made))
            .agents(everyone())
            .start();
        let answer = gate.agent("a").call("s__t", json!({}));
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
        assert!(gate.calls("s").is_empty());
    };
    wrong(&|made| json!({"ca": made.path("ca.pem")}));
    wrong(&|made| {
        let mut tls = made.tls();
        tls["ca"] = json!(made.path("other.pem"));
        tls
    });
    wrong(&|made| {
        let mut tls = made.tls();
        tls.as_object_mut().unwrap().remove("ca");
        tls
    });
}

#[test]
fn another_certificate_authority_is_used_without_a_restart() {
    let setup = setup();
    let made = Certificates::new(&setup.path(""));
    let (setup, port) = made.server(setup, "modern");
    let trusted = setup.path("trusted.pem");
    std::fs::copy(made.path("other.pem"), &trusted).unwrap();
    let mut tls = made.tls();
    tls["ca"] = json!(trusted);
    let gate = setup
        .with("s", "url", json!(format!("https://127.0.0.1:{port}/mcp")))
        .with("s", "tls", tls)
        .agents(everyone())
        .start();
    let agent = gate.agent("a");
    let answer = agent.call("s__t", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    std::fs::copy(made.path("ca.pem"), &trusted).unwrap();
    eventually("the new authority is trusted", || {
        let answer = agent.call("s__t", json!({}));
        (answer["result"]["content"][0]["text"] == "did t").then_some(())
    });
}

#[test]
fn tls_files_that_cannot_be_used_do_not_start() {
    for (tls, expected) in [
        (json!({"ca": "missing.pem"}), "missing.pem"),
        (json!({"ca": "toolward.yaml"}), "`ca` is not a certificate in PEM"),
        (json!({"cert": "missing.pem"}), "needs `cert` and `key`"),
    ] {
        let server = json!({"url": "https://tools.example/mcp", "tls": tls});
        let (code, said) = setup().server("s", server).agents(everyone()).fails();
        assert!(code != 0 && said.contains(expected), "{said}");
    }
    let server = json!({"url": "http://tools.example/mcp", "tls": {"ca": "x"}});
    let (code, said) = setup().server("s", server).agents(everyone()).fails();
    assert!(code != 0 && said.contains("use `https`"), "{said}");
}

#[test]
fn servers_are_reached_through_the_proxy_of_the_environment() {
    let proxy = Proxy::start().unwrap();
    proxy.require("Basic dXNlcjpwQHNz");
    let url = format!("http://user:p%40ss@127.0.0.1:{}", proxy.port);
    // Over TLS, through a tunnel.
    let tls = setup();
    let made = Certificates::new(&tls.path(""));
    let (tls, port) = made.server(tls, "modern");
    let gate = tls
        .with("s", "url", json!(format!("https://tools.example:{port}/mcp")))
        .with("s", "tls", made.tls())
        .env("HTTPS_PROXY", &url)
        .agents(everyone())
        .start();
    assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
    let heads = proxy.heads();
    let connect = format!("CONNECT tools.example:{port} HTTP/1.1\r\n");
    assert!(heads.iter().all(|head| head.starts_with(&connect)), "{heads:?}");
    // The server does not get the proxy's credentials.
    let log = gate.log("s");
    let requests: Vec<&Value> = log.iter().filter(|entry| entry["headers"].is_object()).collect();
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|one| one["headers"]["proxy-authorization"].is_null()), "{log:?}");
    drop(gate);
    // Without TLS, the request target is the whole URL.
    let plain = setup().web("s", "legacy", names(&["t"]));
    let target = plain.url("s").replace("127.0.0.1", "tools.example");
    let gate =
        plain.with("s", "url", json!(target)).env("http_proxy", &url).agents(everyone()).start();
    assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
    let heads = proxy.heads();
    assert!(heads.iter().any(|head| head.starts_with(&format!("POST {target} HTTP/1.1"))));
    drop(gate);
    // Exceptions and loopback are reached directly.
    let before = proxy.heads().len();
    let direct = setup().web("s", "modern", names(&["t"]));
    let target = direct.url("s").replace("127.0.0.1", "tools.example");
    let gate = direct
        .server("x", json!({"url": target}))
        .env("HTTP_PROXY", &url)
        .env("NO_PROXY", ".elsewhere.example, tools.example")
        .agents(everyone())
        .start();
    assert_eq!(text(&gate.agent("a").call("s__t", json!({}))), "did t");
    let answer = gate.agent("a").call("x__t", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    assert_eq!(proxy.heads().len(), before);
}

#[test]
fn a_proxy_that_refuses_or_cannot_be_used_is_not_passed_by() {
    let proxy = Proxy::start().unwrap();
    proxy.require("Basic x");
    let refusing = format!("http://127.0.0.1:{}", proxy.port);
    for (url, expected) in [
        (&*refusing, "refuses a tunnel (status 407)"),
        ("socks5://127.0.0.1:1", "proxies with the scheme `socks5` are not supported"),
        ("http://127.0.0.1:1", "the proxy 127.0.0.1 cannot be reached"),
    ] {
        let gate = setup()
            .server("s", json!({"url": "https://tools.example/mcp"}))
            .env("HTTPS_PROXY", url)
            .agents(everyone())
            .start();
        let answer = gate.agent("a").call("s__t", json!({}));
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
        eventually("the reason is logged", || {
            gate.said.lock().unwrap().contains(expected).then_some(())
        });
    }
}

#[test]
fn compressed_responses_are_accepted_up_to_the_limit() {
    let tools = names(&["encodes", "encodes_events", "bomb", "t"]);
    let gate = setup()
        .web("w", "legacy", tools.clone())
        .web("m", "modern", tools)
        .set("limits_of", json!({"response_bytes": "16 MiB"}))
        .agents(everyone())
        .start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    for (server, client) in [("w", &session as &dyn Caller), ("m", &modern)] {
        for tool in ["encodes", "encodes_events"] {
            let answer = client.call(&format!("{server}__{tool}"), json!({}));
            assert_eq!(text(&answer), "odd", "{server} {tool}");
        }
        // A few hundred kilobytes that decompress to 100 MB.
        let answer = client.call(&format!("{server}__bomb"), json!({}));
        assert!(answer.to_string().contains("result_too_large"), "{answer}");
        assert_eq!(text(&client.call(&format!("{server}__t"), json!({}))), "did t");
    }
}

#[test]
fn servers_that_close_idle_connections_lose_no_calls() {
    let gate = setup()
        .web_with("s", "modern", names(&["leaves", "t"]), &[("IDLE", "1")])
        .agents(everyone())
        .start();
    let client = gate.agent("a");
    client.list();
    for _ in 0..5 {
        assert_eq!(text(&client.call("s__leaves", json!({}))), "odd");
    }
    for pause in [0, 400, 700, 1000, 1300] {
        std::thread::sleep(Duration::from_millis(pause));
        assert_eq!(text(&client.call("s__t", json!({}))), "did t", "after {pause} ms");
    }
    assert_eq!(gate.calls("s").len(), 10, "no call was repeated");
}
