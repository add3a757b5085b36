//! Call timeouts: an idle timeout, which progress restarts, and a total.

use serde_json::{Value, json};

use super::harness::*;

const SERVERS: [(&str, &str); 4] =
    [("s", "legacy"), ("w", "legacy"), ("n", "modern"), ("m", "modern")];

fn steps(server: &str, count: u32, every: f64, token: Option<u32>) -> Value {
    let mut params = json!({"name": format!("{server}__steps")});
    params["arguments"] = json!({"count": count, "every": every});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token});
    }
    params
}

/// A gateway with servers of both protocol versions on both transports, and a way to call them.
fn with_timeouts(timeout: &str, most: &str) -> (Gate, impl Fn(&str, Value) -> Value) {
    let mut set = setup().agents(json!({
        "a": {"allow": {"servers": ["s", "w"]}},
        "b": {"allow": {"servers": ["n", "m"]}},
    }));
    for (server, era) in SERVERS {
        set = match server {
            "s" | "n" => set.stdio(server, era, names(&["steps"])),
            _ => set.web(server, era, names(&["steps"])),
        };
        set = set.with(server, "timeout", json!(timeout)).with(server, "max_timeout", json!(most));
    }
    let gate = set.start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    session.list();
    modern.list();
    let call = move |server: &str, params: Value| match server {
        "s" | "w" => session.post(&request(json!(1), "tools/call", params)).json(),
        _ => modern.modern_reply(json!(1), "tools/call", params).json(),
    };
    (gate, call)
}

#[test]
fn progress_restarts_the_timeout() {
    let (_gate, call) = with_timeouts("1s", "1m");
    for (server, _) in SERVERS {
        let answer = call(server, steps(server, 8, 0.3, Some(1)));
        assert_eq!(text(&answer), "stepped", "{server}: 2.4 s with a pause of at most 0.3 s");
        let answer = call(server, steps(server, 8, 0.3, None));
        let error = &answer["error"];
        assert_eq!(error["data"]["error"], "server_timeout", "{server}: {answer}");
        // The server may have executed the call: a client that repeats it repeats its effects.
        assert_eq!(error["data"]["retryable"], false, "{server}: {answer}");
        assert_eq!(error["data"]["may_have_effects"], true, "{server}: {answer}");
        assert!(error["message"].as_str().unwrap().contains("may have been carried out"));
    }
}

#[test]
fn no_progress_extends_a_call_beyond_max_timeout() {
    let (gate, call) = with_timeouts("1s", "2s");
    for (server, _) in SERVERS {
        let answer = call(server, steps(server, 40, 0.2, Some(1)));
        assert_eq!(answer["error"]["data"]["error"], "server_timeout", "{server}: {answer}");
        if matches!(server, "s" | "w" | "n") {
            let minted = gate.calls(server).last().unwrap()["id"].clone();
            eventually("the server is notified", || {
                let told = gate.heard(server, "notifications/cancelled");
                told.iter().any(|one| one["params"]["requestId"] == minted).then_some(())
            });
        }
    }
}

#[test]
fn a_timeout_longer_than_max_timeout_is_a_configuration_error() {
    for timeout in [json!("2m"), json!({"t*": "2m"})] {
        let (code, said) = setup()
            .stdio("s", "legacy", names(&["t"]))
            .with("s", "timeout", timeout)
            .with("s", "max_timeout", json!("1m"))
            .agents(everyone())
            .fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("`timeout` is longer than `max_timeout`"), "{said}");
    }
}
