//! Rate limits that are counted in Redis, with a real server.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;
use super::redis::Server as Store;
use super::support::*;
use super::tls::Certificate;

/// A gateway whose limits are in a store, with a generous timeout.
fn counting_in(store: &Store, rate: &str) -> Setup {
    counting(json!({"store": store.url(), "timeout": "2s", "calls": rate}))
}

fn counting(limits: Value) -> Setup {
    with_tools(&["t", "u"]).set("limits", limits)
}

/// The response to a call while the store cannot be used.
fn unavailable(gate: &Gate, agent: &Agent) {
    let calls = gate.calls("s").len();
    let data = limited(&agent.call("s__t", json!({})));
    assert_eq!((&data["error"], &data["limit"]), (&json!("limits_unavailable"), &json!("store")));
    let record = refusals(gate).pop().unwrap();
    assert_eq!((&record["step"], &record["limit"]), (&json!("limit"), &json!("limits.store")));
    assert_eq!(record["id"], data["decision_id"]);
    assert_eq!(gate.calls("s").len(), calls, "nothing is forwarded");
}

fn passes_again(agent: &Agent) {
    eventually("calls pass again", || passed(&agent.call("s__t", json!({}))).then_some(()));
}

#[test]
fn two_gateways_hold_one_limit_together() {
    let store = Store::start();
    for rate in ["100/min", "100/day"] {
        let gates = [counting_in(&store, rate).start(), counting_in(&store, rate).start()];
        let agents: Vec<Agent> = gates.iter().map(|gate| gate.agent("a")).collect();
        agents.iter().for_each(|agent| drop(agent.list()));
        let begun = Instant::now();
        let clients: Vec<_> = (0..8)
            .map(|at| {
                let agent = agents[at % 2].clone();
                std::thread::spawn(move || {
                    (0..20).filter(|_| passed(&agent.call("s__t", json!({})))).count()
                })
            })
            .collect();
        let count: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        let more = if rate == "100/min" { begun.elapsed().as_millis() as usize / 600 } else { 0 };
        assert!((100..=100 + more).contains(&count), "{rate}: {count} in {:?}", begun.elapsed());
        let forwarded: usize = gates.iter().map(|gate| gate.calls("s").len()).sum();
        assert_eq!(forwarded, count);
        let data = limited(&agents[1].call("s__t", json!({})));
        let words = "all calls by all agents";
        assert_eq!((&data["limit"], &data["rate"]), (&json!(words), &json!(rate)));
        assert!(data["retry_after_ms"].as_u64().unwrap() > 0, "{data}");
    }
}

#[test]
fn a_call_is_one_round_trip_and_what_it_took_goes_back() {
    let store = Store::start();
    let setup = counting_in(&store, "5/day");
    let hook = program(&setup, "hook", "#!/bin/sh\ngrep -q '\"tool\":\"u\"' && exit 1\nexit 0\n");
    let gate = setup.set("hooks", json!([{"name": "h", "exec": [hook]}])).start();
    let a = gate.agent("a");
    for _ in 0..10 {
        assert_eq!(error(&a.call("s__u", json!({}))).0, -32602);
    }
    let count = (0..10).filter(|_| passed(&a.call("s__t", json!({})))).count();
    assert_eq!(count, 5);
    // Twenty calls consumed, ten returned their units; whole scripts were sent only to load them.
    let stats = store.ask(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_evalsha:calls=30,"), "{stats}");
    assert!(!stats.contains("cmdstat_eval:"), "{stats}");
    // A store that lost the scripts gets them again.
    store.ask(&["SCRIPT", "FLUSH"]);
    store.ask(&["FLUSHALL"]);
    assert!(passed(&a.call("s__t", json!({}))));
    // No key outlives its count.
    let key = store.ask(&["RANDOMKEY"]);
    assert!(key.starts_with("{toolward}:limit:limits.calls"), "{key}");
    let left: i64 = store.ask(&["PTTL", &key]).parse().unwrap();
    assert!(left > 0 && left <= 86_400_000 / 5 + 1, "{left}");
}

#[test]
fn calls_are_refused_while_the_store_is_unreachable() {
    let mut store = Store::absent();
    let gate = counting_in(&store, "1000/s").start();
    let a = gate.agent("a");
    // Listings are not limited here, and continue.
    assert_eq!(a.list(), ["s__t", "s__u"]);
    unavailable(&gate, &a);
    store.run();
    passes_again(&a);
    store.kill();
    eventually("the loss is noticed", || (!passed(&a.call("s__t", json!({})))).then_some(()));
    for _ in 0..5 {
        unavailable(&gate, &a);
    }
    store.run();
    passes_again(&a);
    // Log lines are written a little later than responses.
    eventually("it is logged both times", || {
        let said = gate.said.lock().unwrap().clone();
        let about = |words: &str| said.lines().filter(|line| line.contains(words)).count();
        (about("cannot be used") >= 2 && about("responds again") >= 2).then_some(())
    });
}

#[test]
fn a_store_that_does_not_answer_refuses_calls_in_its_time() {
    let store = Store::start();
    let gate =
        counting(json!({"store": store.url(), "timeout": "200ms", "calls": "1000/s"})).start();
    let a = gate.agent("a");
    passes_again(&a);
    store.signal("-STOP");
    for _ in 0..5 {
        unavailable(&gate, &a);
    }
    store.signal("-CONT");
    passes_again(&a);
}

#[test]
fn units_consumed_by_a_late_reply_are_returned() {
    let store = Store::start();
    let gate =
        counting(json!({"store": store.url(), "timeout": "300ms", "calls": "3/day"})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    // A client that disconnects while the store does not respond; the response is discarded.
    store.signal("-STOP");
    let connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__t"}));
    std::thread::sleep(Duration::from_millis(100));
    drop(connection);
    std::thread::sleep(Duration::from_millis(50));
    store.signal("-CONT");
    let mut count = 0;
    eventually("the late unit is returned", || {
        count += usize::from(passed(&a.call("s__t", json!({}))));
        count == 2
    });
    eventually("the limit is used up", || {
        let answer = a.call("s__t", json!({}));
        assert!(!passed(&answer), "{answer}");
        limited(&answer)["error"] == "limit_exceeded"
    });
}

#[test]
fn calls_that_are_refused_while_the_store_is_slow_take_nothing() {
    let store = Store::start();
    let limits = json!({"store": store.url(), "timeout": "100ms", "calls": "20/day"});
    let gate = counting(limits).start();
    let a = gate.agent("a");
    passes_again(&a);
    let used = intents(&gate).len();
    for pause in [0, 300] {
        store.signal("-STOP");
        let callers: Vec<_> = (0..15)
            .map(|_| {
                let a = a.clone();
                std::thread::spawn(move || passed(&a.call("s__t", json!({}))))
            })
            .collect();
        let count = callers.into_iter().map(|one| one.join().unwrap());
        assert_eq!(count.filter(|passed| *passed).count(), 0);
        std::thread::sleep(Duration::from_millis(pause));
        store.signal("-CONT");
    }
    let mut count = used;
    eventually("every unit is returned", || {
        count += usize::from(passed(&a.call("s__t", json!({}))));
        count == 20
    });
    eventually("the limit is used up", || {
        let answer = a.call("s__t", json!({}));
        assert!(!passed(&answer), "{answer}");
        limited(&answer)["error"] == "limit_exceeded"
    });
}

#[test]
fn with_the_memory_fallback_each_process_counts_by_itself_and_logs_it() {
    let mut store = Store::start();
    let limits = json!({
        "store": store.url(), "on_store_error": "memory", "timeout": "2s", "calls": "3/day",
    });
    let gate = counting(limits).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    assert!(intents(&gate)[0].get("limit_store").is_none());
    store.kill();
    let count = (0..6).filter(|_| passed(&a.call("s__t", json!({})))).count();
    assert_eq!(count, 3, "counted from zero, and enforced");
    let data = limited(&a.call("s__t", json!({})));
    assert_eq!(
        (&data["error"], &data["limit"]),
        (&json!("limit_exceeded"), &json!("all calls by all agents"))
    );
    assert_eq!(intents(&gate).last().unwrap()["limit_store"], "memory");
    let said = |words: &str| gate.said.lock().unwrap().contains(words);
    eventually("it is logged", || {
        said("this gateway counts in memory until it recovers").then_some(())
    });
    store.run();
    passes_again(&a);
    assert!(intents(&gate).last().unwrap().get("limit_store").is_none());
    eventually("it is logged", || said("limits are counted there").then_some(()));
}

#[test]
fn a_password_and_a_database_are_used_and_never_shown() {
    let mut store = Store::absent();
    store.password = Some("s3cr3t@1");
    store.run();
    let port = store.port;
    let gate_with = |password: &str| {
        let limits = json!({
            "store": format!("redis://:${{REDIS_PASSWORD}}@127.0.0.1:{port}/3"),
            "timeout": "2s",
            "calls": "2/day",
        });
        counting(limits).env("REDIS_PASSWORD", password).start()
    };
    let gate = gate_with("s3cr3t%401");
    let a = gate.agent("a");
    assert_eq!((0..5).filter(|_| passed(&a.call("s__t", json!({})))).count(), 2);
    let keys = store.ask(&["-n", "3", "DBSIZE"]);
    assert_eq!(keys, "1");
    let gate = gate_with("wrong");
    unavailable(&gate, &gate.agent("a"));
    let said = eventually("the reason is logged", || {
        let said = gate.said.lock().unwrap().clone();
        said.contains("rejects the password").then_some(said)
    });
    assert!(!said.contains("wrong"), "{said}");
}

#[test]
fn a_store_behind_tls_is_used_if_its_certificate_is_trusted_and_gets_the_password() {
    let mut store = Store::absent();
    let certificate = Certificate::new();
    store.tls = Some(certificate.clone());
    store.password = Some("s3cr3t");
    store.run();
    let setup = |password: &str| {
        let url = format!("rediss://:${{REDIS_PASSWORD}}@localhost:{}", store.port);
        counting(json!({"store": url, "timeout": "20s", "calls": "2/day"}))
            .env("REDIS_PASSWORD", password)
    };
    let trusting = |password: &str| setup(password).env("SSL_CERT_FILE", &certificate.path());
    let gate = trusting("s3cr3t").start();
    let a = gate.agent("a");
    assert_eq!((0..5).filter(|_| passed(&a.call("s__t", json!({})))).count(), 2);
    assert_eq!(store.ask(&["DBSIZE"]), "1");
    for gate in [setup("s3cr3t").start(), trusting("another").start()] {
        unavailable(&gate, &gate.agent("a"));
    }
}

#[test]
fn an_invalid_store_refuses_calls_or_the_start() {
    // Something else listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let store = format!("redis://127.0.0.1:{port}");
    let gate = counting(json!({"store": store, "timeout": "2s", "calls": "5/s"})).start();
    unavailable(&gate, &gate.agent("a"));
    for (url, why) in [("redis://h/x", "not a number"), ("${URL}", "only redis")] {
        let setup = counting(json!({"store": url, "calls": "5/s"})).env("URL", "http://h");
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("limits.store") && said.contains(why), "{said}");
    }
}
