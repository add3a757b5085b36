//! Whether the admin UI is served, and at which address.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::{Setup, eventually, everyone, names, setup};
use super::kit::{Site, entrance};

fn plain() -> Setup {
    setup().agents(everyone()).stdio("s", "modern", names(&["one"]))
}

fn status(state: &std::path::Path, json: bool) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.arg("status").arg("--state").arg(state);
    if json {
        command.arg("--json");
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn it_can_be_switched_off() {
    let gate = plain().start();
    gate.agent("a").modern("tools/list", json!({}));
    assert!(!gate.said.lock().unwrap().contains("page"));
    assert!(!gate.file("state/admin.token").exists());
    let said: Value = serde_json::from_str(&status(&gate.file("state"), true)).unwrap();
    assert_eq!(said[0]["page"], Value::Null);
}

#[test]
fn status_has_the_address_and_not_the_token() {
    let site = Site::of(plain());
    let address = format!("http://127.0.0.1:{}/", site.port);
    let state = site.gate.file("state");
    let said: Value = serde_json::from_str(&status(&state, true)).unwrap();
    assert_eq!(said[0]["page"], address);
    let text = status(&state, false);
    assert!(text.contains(&format!("  admin    {address}\n")), "{text}");
    assert!(!text.contains(&site.token) && !said.to_string().contains(&site.token));
}

#[test]
fn a_stated_address_that_is_taken_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = plain().set("admin", json!(address)).fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains(&address) && said.contains("for the admin UI"), "{said}");
}

#[test]
fn a_default_address_in_use_leaves_a_gateway_without_admin_ui() {
    // The port is in use: by this test, or by a gateway that runs on this machine.
    let _taken = TcpListener::bind("127.0.0.1:7411");
    let setup = plain();
    let file = setup.file();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config.as_object_mut().unwrap().remove("admin");
    let file = setup.path("without.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let said = setup.path("said");
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["serve", "-c"])
        .arg(&file)
        .env("HOME", setup.path(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let said = eventually("it listens", || {
        let said = std::fs::read_to_string(&said).unwrap();
        said.contains("listening on").then_some(said)
    });
    let _ = gateway.kill();
    let _ = gateway.wait();
    assert!(said.contains("the admin UI is off: 127.0.0.1:7411"), "{said}");
    assert!(!said.contains("?token="), "{said}");
}

#[test]
fn it_does_not_reach_beyond_this_machine() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7411"] {
        let (code, said) = plain().set("admin", json!(address)).fails();
        assert_eq!(code, 3, "{said}");
        assert!(
            said.contains("can be reached from other machines") && said.contains("ssh -L"),
            "{said}"
        );
    }
}

#[test]
fn a_token_file_that_others_can_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let setup = plain().set("admin", json!("127.0.0.1:0"));
    std::fs::create_dir(setup.path("state")).unwrap();
    let file = setup.path("state/admin.token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = setup.fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("can be read by others"), "{said}");
}

#[test]
fn the_address_outlives_the_process_and_the_token_can_be_changed() {
    let mut site = Site::of(plain());
    let (first, path) = (site.token.clone(), site.path.clone());
    site.gate.restart();
    let (port, token) = entrance(&site.gate);
    assert_eq!(token, first);
    site.port = port;
    assert_eq!(site.get("", &[]).status, 200);
    std::fs::remove_file(site.gate.file("state/admin.token")).unwrap();
    site.gate.restart();
    let (port, token) = entrance(&site.gate);
    assert_ne!(token, first);
    site.port = port;
    let reply = site.get("", &[]);
    assert_eq!(reply.status, 401);
    let reply = site.raw(&format!("GET /?token={token} HTTP/1.1"), &[], "");
    assert_ne!(reply.header("location"), Some(&*path));
}

#[test]
fn the_next_gateway_takes_over_the_admin_ui() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (listen, admin) = (free(), free());
    let site = Site::at(plain().set("listen", json!(listen)).set("admin", json!(admin)));
    let mut events = super::wire::Connection::open(site.port);
    let line = format!("GET {}events HTTP/1.1", site.path);
    events.send(site.bytes(&line, &[("Cookie", &site.cookie)], "").as_bytes());
    assert_eq!(events.head().status, 200);
    let mut next = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["serve", "--take-over", "-c"])
        .arg(site.gate.file("toolward.yaml"))
        .env("HOME", site.gate.file(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut site = site;
    // An open stream does not keep the old process running.
    assert_eq!(site.gate.ended(), 0);
    let html = eventually("the admin UI is served", || {
        let html = site.html("");
        html.contains("data-tool=\"one\"").then_some(html)
    });
    let said: Value = serde_json::from_str(&status(&site.gate.file("state"), true)).unwrap();
    let _ = next.kill();
    let _ = next.wait();
    assert!(html.contains("Who sees what"));
    assert_eq!(said[0]["page"], format!("http://{admin}/"));
    assert_eq!(said[0]["process"], next.id());
}
