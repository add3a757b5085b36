//! Credentials that servers get: the gateway's own, or an agent's if configured, and never the
//! client's.

use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key, Mood};

/// The values of a header that a server got.
fn headers(gate: &Gate, name: &str) -> Vec<String> {
    let log = gate.log("w");
    log.iter().map(|one| one["headers"][name].as_str().unwrap_or("none").to_string()).collect()
}

#[test]
fn an_agent_s_own_headers_go_to_the_server_for_that_agent_only() {
    for era in ["legacy", "modern"] {
        let gate = setup()
            .web("w", era, names(&["t"]))
            .with("w", "headers", json!({"Authorization": "Bearer ${ALL}", "X-Team": "blue"}))
            .with("w", "headers_for", json!({"a": {"authorization": "Bearer ${OF_A}"}}))
            .env("ALL", "for-all")
            .env("OF_A", "for-a")
            .agents(everyone())
            .start();
        let count = || gate.log("w").len();
        for (agent, expected) in
            [("a", "Bearer for-a"), ("b", "Bearer for-all"), ("a", "Bearer for-a")]
        {
            let before = count();
            let agent = gate.agent(agent);
            let answer = match era {
                "legacy" => agent.session().call("w__t", json!({})),
                _ => agent.call("w__t", json!({})),
            };
            assert_eq!(text(&answer), "did t", "{era}");
            let calls = gate.log("w");
            let calls = calls
                .iter()
                .skip(before)
                .filter(|one| one["body"].as_str().is_some_and(|body| body.contains("tools/call")));
            let shown: Vec<&Value> = calls.map(|one| &one["headers"]["authorization"]).collect();
            assert_eq!(shown, [&json!(expected)], "{era}");
        }
        assert!(headers(&gate, "x-team").iter().all(|team| team == "blue"), "{era}");
        let all = json!(gate.log("w")).to_string();
        assert!(!all.contains("token-of-agent-a") && !all.contains("token-of-agent-b"));
    }
}

#[test]
fn the_gateway_gets_tokens_for_a_server_and_renews_them() {
    for era in ["legacy", "modern"] {
        let issuer = Issuer::start(vec![Key::new("p", "EC")]);
        // Short-lived enough that the second call needs another one.
        issuer.grant(json!({"sub": "gate"}), 1);
        let gate = setup()
            .web("w", era, names(&["t"]))
            .with(
                "w",
                "oauth",
                json!({"token_url": format!("{}/token", issuer.url), "client_id": "gate/1",
                    "client_secret": "${SECRET}", "scope": "read write"}),
            )
            .with("w", "headers_for", json!({"b": {"Authorization": "Bearer ${OF_B}"}}))
            .env("SECRET", "s&cret")
            .env("OF_B", "for-b")
            .agents(everyone())
            .start();
        let call = |agent: &str| match era {
            "legacy" => gate.agent(agent).session().call("w__t", json!({})),
            _ => gate.agent(agent).call("w__t", json!({})),
        };
        assert_eq!(text(&call("a")), "did t", "{era}");
        let tokens = |gate: &Gate| -> Vec<String> {
            let mut tokens = headers(gate, "authorization");
            tokens.sort();
            tokens.dedup();
            tokens
        };
        let first = tokens(&gate);
        assert!(first.iter().all(|token| token.starts_with("Bearer eyJ")), "{first:?}");
        eventually("the token is renewed", || {
            assert_eq!(text(&call("a")), "did t", "{era}");
            (tokens(&gate).len() > first.len()).then_some(())
        });
        let asked = issuer.asked("/token");
        let form = &asked[0].1;
        assert!(form.starts_with("grant_type=client_credentials&resource=http%3A%2F%2F"), "{form}");
        assert!(form.ends_with("&scope=read+write") && !form.contains("cret"), "{form}");
        assert_eq!(text(&call("b")), "did t");
        assert!(tokens(&gate).contains(&"Bearer for-b".into()));
        let all = json!(gate.log("w")).to_string();
        assert!(!all.contains("token-of-agent-a") && !all.contains("s&cret"));
    }
}

#[test]
fn a_token_that_the_server_takes_back_is_replaced_once() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    issuer.grant(json!({"sub": "gate"}), 300);
    let oauth = json!({"token_url": format!("{}/token", issuer.url), "client_id": "gate/1",
        "client_secret": "${SECRET}"});
    let gate = setup()
        .web_with("w", "modern", names(&["t"]), &[("FIRST_STATUS", "401")])
        .with("w", "oauth", oauth)
        .env("SECRET", "s&cret")
        .agents(everyone())
        .start();
    assert_eq!(text(&gate.agent("a").call("w__t", json!({}))), "did t");
    assert_eq!(issuer.asked("/token").len(), 2);
    let calls = gate.calls("w");
    assert_eq!(calls.len(), 1, "nothing is sent twice that was taken");
}

#[test]
fn without_a_token_the_server_is_not_asked() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    for (secret, url) in
        [("wrong", format!("{}/token", issuer.url)), ("s&cret", format!("{}/none", issuer.url))]
    {
        let gate = setup()
            .web("w", "modern", names(&["t"]))
            .with(
                "w",
                "oauth",
                json!({"token_url": url, "client_id": "gate/1", "client_secret": "${SECRET}"}),
            )
            .stdio("s", "legacy", names(&["t"]))
            .env("SECRET", secret)
            .agents(everyone())
            .start();
        assert_eq!(gate.agent("a").list(), ["s__t"]);
        let answer = gate.agent("a").call("w__t", json!({}));
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert!(gate.log("w").is_empty(), "it was asked without a token");
        let said = eventually("it is logged", || {
            let said = gate.said.lock().unwrap().clone();
            let logged = said.contains("w: ") && said.contains("failed to get a token for it");
            logged.then_some(said)
        });
        assert!(!said.contains(secret), "{said}");
    }
    for url in ["http://id.example/token", "${URL}"] {
        let oauth = json!({"token_url": url, "client_id": "a", "client_secret": "${S}"});
        let mut setup = setup()
            .server("w", json!({"url": "https://w.example/mcp", "oauth": oauth}))
            .env("S", "secret-of-w")
            .agents(everyone());
        if url == "${URL}" {
            setup = setup.env("URL", "http://id.example/token");
        }
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("token_url") && !said.contains("secret-of-w"), "{said}");
    }
}

#[test]
fn a_server_that_rejects_the_gateway_is_reported() {
    for status in [401, 403] {
        let issuer = Issuer::start(vec![Key::new("p", "EC")]);
        issuer.feel(Mood::Says(status, String::new(), String::new()));
        let url = json!({"url": format!("{}/keys", issuer.url)});
        let gate = setup().server("w", url).agents(everyone()).start();
        let answer = gate.agent("a").modern_reply(
            json!(1),
            "tools/call",
            json!({"name": "w__t", "arguments": {}}),
        );
        let answer = answer.json();
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let why = format!("it rejects the gateway's credentials ({status})");
        assert!(said.contains(&why), "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    }
}
