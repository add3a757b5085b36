//! Policy bundles: what a gateway activates, and what it never does.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::harness::*;

/// Serves files of a directory, with entity tags.
const FILES: &str = r#"
import hashlib, http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = os.path.join(sys.argv[1], os.path.basename(self.path))
        if not os.path.exists(path):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = open(path, "rb").read()
        etag = '"' + hashlib.sha256(body).hexdigest() + '"'
        same = self.headers.get("If-None-Match") == etag
        open(os.path.join(sys.argv[1], "log"), "a").write("304\n" if same else "200\n")
        self.send_response(304 if same else 200)
        self.send_header("ETag", etag)
        if not same:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not same:
            self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// Makes bundles and serves them.
struct Publisher {
    folder: tempfile::TempDir,
    server: Child,
    port: u16,
    key: String,
}

impl Publisher {
    fn new() -> Publisher {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("public")).unwrap();
        let mut server = Command::new("python3")
            .args(["-c", FILES])
            .arg(folder.path().join("public"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = server.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let port = line.trim().parse().unwrap();
        let mut publisher = Publisher { folder, server, port, key: String::new() };
        publisher.key = publisher.keygen("bundle.key");
        publisher
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn public(&self) -> PathBuf {
        self.path("public/policy.tgz")
    }

    fn keygen(&self, name: &str) -> String {
        let output = toolward(&["bundle", "keygen", self.path(name).to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Signs a policy with a key; the bundle is not published.
    fn sign(&self, key: &str, revision: u32, policy: &Value) -> Vec<u8> {
        std::fs::write(self.path("policy.yaml"), policy.to_string()).unwrap();
        let (key, out) = (self.path(key), self.path("signed.tgz"));
        let output = toolward(&[
            "bundle",
            "sign",
            "--key",
            key.to_str().unwrap(),
            "--revision",
            &revision.to_string(),
            "-o",
            out.to_str().unwrap(),
            self.path("policy.yaml").to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{output:?}");
        std::fs::read(out).unwrap()
    }

    fn publish(&self, bytes: &[u8]) {
        std::fs::write(self.path("next"), bytes).unwrap();
        std::fs::rename(self.path("next"), self.public()).unwrap();
    }

    fn setup(&self) -> Setup {
        let url = format!("http://127.0.0.1:{}/policy.tgz", self.port);
        setup()
            .stdio("s", "legacy", names(&["one", "two", "three"]))
            .agents(everyone())
            .set("policies", json!([{"bundle": url, "key": self.key, "poll": "300ms"}]))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn toolward(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_toolward")).args(arguments).output().unwrap()
}

/// A policy that allows these tools.
fn only(tools: &[&str]) -> Value {
    json!({"allowed_tools": tools})
}

fn listed(gate: &Gate) -> Vec<String> {
    gate.agent("a").session().list()
}

/// The bundles that a gateway has stored.
fn stored(gate: &Gate) -> Vec<(PathBuf, Vec<u8>)> {
    let folders = std::fs::read_dir(gate.file("state/bundles")).into_iter().flatten().flatten();
    let file = |folder: &Path| {
        (folder.join("bundle.tgz"), std::fs::read(folder.join("bundle.tgz")).unwrap())
    };
    folders.map(|folder| file(&folder.path())).collect()
}

#[test]
fn a_newer_bundle_is_activated_and_nothing_else_ever_is() {
    let publisher = Publisher::new();
    let first = publisher.sign("bundle.key", 5, &only(&["one"]));
    publisher.publish(&first);
    let mut gate = publisher.setup().start();
    assert_eq!(listed(&gate), ["s__one"]);
    let second = publisher.sign("bundle.key", 6, &only(&["one", "two"]));
    publisher.publish(&second);
    eventually("the newer bundle is active", || listed(&gate) == ["s__one", "s__two"]);
    assert_eq!(stored(&gate)[0].1, second);

    // Each is rejected with its reason, and the active one stays.
    publisher.keygen("other.key");
    let wide = only(&["one", "two", "three"]);
    let failing = {
        let mut policy = wide.clone();
        policy["tests"] = json!([{"as": "a", "deny": ["s/three"]}]);
        std::fs::write(publisher.path("policy.yaml"), policy.to_string()).unwrap();
        let refused = toolward(&[
            "bundle",
            "sign",
            "--key",
            publisher.path("bundle.key").to_str().unwrap(),
            "--revision",
            "9",
            "-o",
            publisher.path("failing.tgz").to_str().unwrap(),
            publisher.path("policy.yaml").to_str().unwrap(),
        ]);
        assert!(!refused.status.success(), "a policy whose tests fail is not signed");
        failing_bundle(&publisher, &policy)
    };
    let good = publisher.sign("bundle.key", 10, &wide);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    let cases: [(&str, Vec<u8>); 6] = [
        ("signature is not valid", publisher.sign("other.key", 11, &wide)),
        ("6 was active already", first.clone()),
        ("6 was active already", publisher.sign("bundle.key", 6, &wide)),
        ("reload", failing),
        ("cut short", good[..good.len() - 9].to_vec()),
        ("policy.tgz", flipped),
    ];
    for (reason, bytes) in cases {
        let before = gate.said.lock().unwrap().len();
        publisher.publish(&bytes);
        eventually(reason, || {
            let said = gate.said.lock().unwrap();
            let new = &said[before..];
            (new.contains(reason) && new.contains("ERROR")).then_some(())
        });
        assert_eq!(listed(&gate), ["s__one", "s__two"], "{reason}");
        assert_eq!(stored(&gate)[0].1, second, "{reason}");
    }

    // The last good one is used without the server, and after a restart.
    std::fs::remove_file(publisher.public()).unwrap();
    gate.restart();
    assert_eq!(listed(&gate), ["s__one", "s__two"]);
    publisher.publish(&good);
    eventually("a good bundle is active again", || listed(&gate).len() == 3);
    // An unchanged bundle is not downloaded again.
    eventually("it is recognized", || {
        let log = std::fs::read_to_string(publisher.path("public/log")).unwrap();
        log.ends_with("304\n304\n")
    });
    // An older bundle in the state directory is rejected too: revisions never go back.
    gate.kill();
    std::fs::write(&stored(&gate)[0].0, &second).unwrap();
    gate.restart();
    assert_eq!(listed(&gate).len(), 3, "the newer one was fetched again");
}

/// A signed bundle of a policy whose tests fail, which the program would not make.
fn failing_bundle(publisher: &Publisher, policy: &Value) -> Vec<u8> {
    use toolward_config::bundle::{Bundle, SigningKey};
    let key = std::fs::read(publisher.path("bundle.key")).unwrap();
    let files = vec![("policy.yaml".to_owned(), policy.to_string().into_bytes())];
    Bundle { revision: 9, files }.seal(&SigningKey::read(&key).unwrap()).unwrap()
}

#[test]
fn a_gateway_does_not_start_with_a_first_bundle_that_is_not_valid() {
    let publisher = Publisher::new();
    let other = publisher.keygen("other.key");
    let bundle = publisher.sign("other.key", 1, &only(&["one"]));
    publisher.publish(&bundle);
    let (code, said) = publisher.setup().fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("its signature is not valid"), "{said}");
    let listed =
        toolward(&["bundle", "verify", "--key", &other, publisher.public().to_str().unwrap()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("revision 1, 1 file") && listed.contains("policy.yaml"), "{listed}");
    let wrong = toolward(&[
        "bundle",
        "verify",
        "--key",
        &publisher.key,
        publisher.public().to_str().unwrap(),
    ]);
    assert_eq!(wrong.status.code(), Some(3));
    let again = toolward(&["bundle", "keygen", publisher.path("other.key").to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(3), "a key is never replaced");
}
