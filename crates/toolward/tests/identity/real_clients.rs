//! Each way to authenticate an agent, with a real client.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::certificates::{Papers, secure};
use crate::harness::*;
use crate::issuer::{Issuer, Key, now};
use crate::jwt::{AUDIENCE, dev, gate_with, turned_away};
use crate::peers::{At, Client, Peers, peers};
use crate::unix;

const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/identity");

/// The tools that the Python client lists with these options; `Err` with its error if it is rejected.
fn python(peers: &Peers, url: &str, options: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(peers.file("python/bin/python"));
    command.arg(Path::new(DRIVERS).join("client.py")).arg(url).args(options);
    run(command)
}

fn run(mut command: Command) -> Result<Value, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn url(gate: &Gate) -> String {
    format!("http://127.0.0.1:{}/mcp", gate.port)
}

fn tools(seen: Result<Value, String>) -> Value {
    seen.unwrap_or_else(|why| panic!("{why}"))["tools"].clone()
}

/// `a` may use `t`, `default` may use `more`.
fn agents() -> Value {
    let some = |tool: &str| json!({"allow": {"servers": ["*"], "tools": {"*": [tool]}}});
    json!({"a": some("t"), "default": some("more")})
}

#[test]
fn a_listed_token_identifies_the_agent_and_no_token_is_an_unnamed_caller() {
    let Some(peers) = peers() else { return };
    for denied in [true, false] {
        let gate = setup()
            .stdio("s", "legacy", names(&["t", "more"]))
            .agents(agents())
            .set("defaults", json!({"deny_on_missing_agent": denied}))
            .start();
        assert_eq!(
            tools(python(&peers, &url(&gate), &["--token", "token-of-agent-a"])),
            json!(["s__t"])
        );
        let wrong = python(&peers, &url(&gate), &["--token", "token-of-agent-b"]);
        assert!(wrong.is_err(), "{wrong:?}");
        let nothing = python(&peers, &url(&gate), &[]);
        match denied {
            true => assert!(nothing.is_err(), "{nothing:?}"),
            false => assert_eq!(tools(nothing), json!(["s__more"])),
        }
        assert!(turned_away(&gate, 1).contains(&"the token is not known".into()));
    }
}

#[test]
fn a_jwt_is_the_agent_whose_claims_it_has() {
    let Some(peers) = peers() else { return };
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate_with(&issuer, json!({}), dev()).start();
    let token = |more: Value| {
        let mut claims = issuer.claims(AUDIENCE, json!({"sub": "dev"}));
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        issuer.key("p").sign(&claims)
    };
    let seen = python(&peers, &url(&gate), &["--token", &token(json!({}))]);
    assert_eq!(tools(seen), json!(["s__t", "s__more"]));
    for wrong in [json!({"exp": now() - 100}), json!({"aud": "other"}), json!({"sub": "other"})] {
        let seen = python(&peers, &url(&gate), &["--token", &token(wrong.clone())]);
        assert!(seen.is_err(), "{wrong}: {seen:?}");
    }
}

#[test]
fn on_stdio_the_launch_or_a_token_in_the_environment_names_the_agent() {
    let Some(peers) = peers() else { return };
    let setup = setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"*": ["t"]}}},
            "b": {"allow": {"servers": ["*"]}}}));
    let file = setup.file().to_str().unwrap().to_string();
    let home = format!("HOME={}", setup.path("").display());
    let see = |variables: &[&str], flags: &[&str]| -> Vec<String> {
        let mut words = vec![
            "/usr/bin/env",
            &home,
            "TOKEN_OF_a=token-of-agent-a",
            "TOKEN_OF_b=token-of-agent-b",
        ];
        words.extend(variables);
        words.extend([env!("CARGO_BIN_EXE_toolward"), "stdio", "-c", &file]);
        words.extend(flags);
        let at = At::Command(words.into_iter().map(String::from).collect());
        let seen = peers.see(Client::Python, "", &json!([]), &at);
        let seen = seen["tools"].as_array().unwrap();
        seen.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(see(&[], &["--agent", "a"]), ["s__t"]);
    assert_eq!(see(&[], &["--agent", "b"]), ["s__t", "s__more"]);
    assert_eq!(see(&["TOOLWARD_TOKEN=token-of-agent-a"], &[]), ["s__t"]);
    assert_eq!(see(&["TOOLWARD_TOKEN=token-of-agent-b"], &["--agent", "b"]), ["s__t", "s__more"]);
}

#[test]
fn a_wrong_or_another_s_token_on_stdio_does_not_start() {
    for (token, flags) in [
        ("token-of-agent-c", &[][..]),
        ("token-of-agent-a", &["--agent", "b"][..]),
        ("eyJhbGciOiJub25lIn0.e30.", &[][..]),
    ] {
        let mut lines = setup()
            .stdio("s", "legacy", names(&["t"]))
            .agents(everyone())
            .env("TOOLWARD_TOKEN", token)
            .standard(flags);
        let answer = lines.ask(&initialize(LEGACY));
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert!(answer.to_string().contains("TOOLWARD_TOKEN"), "{answer}");
        assert!(!answer.to_string().contains(token), "{answer}");
        assert_eq!(lines.close().0, 3);
        assert!(lines.log("s").is_empty());
    }
}

#[test]
fn on_a_unix_socket_the_user_is_the_agent() {
    let Some(peers) = peers() else { return };
    let own = unix::own_uid();
    let some = |uid: u32, tool: &str| json!({"uid": uid, "tokens": [], "allow": {"servers": ["*"], "tools": {"*": [tool]}}});
    let gate = unix::gate(json!({"me": some(own, "t"), "other": some(own + 1, "more")}));
    let socket = gate.file("gate.sock");
    let see = |options: &[&str]| {
        let mut all = vec!["--unix", socket.to_str().unwrap()];
        all.extend(options);
        python(&peers, "http://localhost/mcp", &all)
    };
    assert_eq!(tools(see(&[])), json!(["s__t"]));
    let records = gate.records();
    let list = records.iter().find(|one| one["kind"] == "list").unwrap();
    assert_eq!((&list["agent"], &list["identity"]), (&json!("me"), &json!("uid")));
    assert!(see(&["--token", "x"]).is_err());
}

#[test]
fn with_a_certificate_the_client_is_the_agent() {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers(folder.path());
    papers.authority("ca");
    papers.sign("ca", "gate", "/CN=gate", "DNS:localhost");
    papers.sign("ca", "client", "/CN=reviewer", "DNS:client.example");
    let both = |name: &str| {
        let read = |end: &str| std::fs::read_to_string(papers.path(&format!("{name}.{end}")));
        std::fs::write(papers.path("both.pem"), read("pem").unwrap() + &read("key").unwrap())
    };
    both("client").unwrap();
    let setup = setup().agents(json!({"reviewer": {
        "certificates": ["CN=reviewer"], "tokens": [],
        "allow": {"servers": ["*"], "tools": {"s": ["t"]}}}}));
    let gate = secure(
        setup,
        json!({"cert": papers.path("gate.pem"), "key": papers.path("gate.key"),
            "client_ca": papers.path("ca.pem")}),
    );
    let (url, ca) = (format!("https://localhost:{}/mcp", gate.port), papers.path("ca.pem"));
    let (ca, both) = (ca.to_str().unwrap(), papers.path("both.pem"));
    let seen = python(&peers, &url, &["--ca", ca, "--cert", both.to_str().unwrap()]);
    assert_eq!(tools(seen), json!(["s__t"]));
    let seen = python(&peers, &url, &["--ca", ca]);
    assert!(seen.is_err(), "{seen:?}");
}

#[test]
fn a_client_that_knows_only_the_address_finds_its_way_to_a_token() {
    let Some(peers) = peers() else { return };
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    issuer.grant(json!({"sub": "dev"}), 300);
    for (client, path) in [("python", "/mcp"), ("python", "/mcp/s"), ("typescript", "/mcp")] {
        // Clients insist on the address that they were given, so it must be known before.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let base = format!("http://127.0.0.1:{port}");
        let gate = setup()
            .stdio("s", "legacy", names(&["t", "more"]))
            .set("listen", json!(format!("127.0.0.1:{port}")))
            .set("public_url", json!(base))
            .set("identity", issuer.identity(json!({})))
            .set(
                "agents",
                json!({"dev": {"claims": {"sub": "dev", "scope": "tools:use"},
                    "allow": {"servers": ["*"], "tools": {"s": ["t"]}}}}),
            )
            .start();
        let url = format!("{base}{path}");
        let seen = match client {
            "python" => python(&peers, &url, &["--oauth"]),
            _ => {
                let mut command = Command::new(peers.file("node"));
                command.arg(Path::new(DRIVERS).join("oauth.mjs")).arg(&url);
                run(command)
            }
        };
        let seen = seen.unwrap_or_else(|why| panic!("{client} at {path}: {why}"));
        let name = if path == "/mcp" { "s__t" } else { "t" };
        assert_eq!(seen["tools"], json!([name]), "{client}");
        assert_eq!(seen["scope"], "tools:use", "{client} asked for what the challenge said");
        let records = gate.records();
        let list = records.iter().find(|one| one["kind"] == "list").unwrap();
        assert_eq!((&list["agent"], &list["subject"]), (&json!("dev"), &json!("dev")));
    }
}
