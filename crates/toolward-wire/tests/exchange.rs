//! The exchange state machine: one end per request, and no other request's bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use toolward_wire::exchange::{
    Event, Exchange, ExchangeEnd, Failure, ServerRequests, Step, cancelled_request,
};
use toolward_wire::{Era, Id, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Message, Sender};

fn request(params: &str) -> Message {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{{"name":"a"{params}}}}}"#
    );
    Message::parse(body.into(), MAX_REQUEST_BYTES, Sender::Client).unwrap()
}

fn server(body: &str) -> Message {
    Message::parse(body.to_string().into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap()
}

fn exchange(params: &str, era: Era, questions: ServerRequests) -> Exchange {
    let request = request(params);
    let row = request.row(Sender::Client, era).unwrap();
    Exchange::new(&request, row, era, 42, questions)
}

fn notified(step: Step) -> Option<String> {
    match step.event {
        Some(Event::Notify(body)) => Some(String::from_utf8(body.to_vec()).unwrap()),
        _ => None,
    }
}

fn answered(step: Step) -> Option<String> {
    match step.event {
        Some(Event::Done(ExchangeEnd::Response { body, .. })) => {
            Some(String::from_utf8(body.concat()).unwrap())
        }
        _ => None,
    }
}

fn failed(step: &Step) -> Option<Failure> {
    match step.event {
        Some(Event::Done(ExchangeEnd::Failed(failure))) => Some(failure),
        _ => None,
    }
}

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":42 ,"progress":0.50}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":42,"result":{"content":[]}}"#;

#[test]
fn progress_carries_the_clients_own_token() {
    for token in [r#""\u0074""#, "7", r#""42""#] {
        let params = format!(r#","_meta":{{"progressToken":{token}}}"#);
        let mut exchange = exchange(&params, Era::Legacy, ServerRequests::Refuse);
        let out = exchange.address(request(&params).edit()).finish();
        let out = String::from_utf8(out.to_vec()).unwrap();
        assert!(out.contains(r#""progressToken":42"#) && out.contains(r#""id":42"#), "{out}");
        let told = notified(exchange.upstream(server(PROGRESS))).unwrap();
        assert_eq!(told, PROGRESS.replace("42", token));
        let other = PROGRESS.replace("42", "43");
        assert!(notified(exchange.upstream(server(&other))).is_none());
        let text = PROGRESS.replace("42", "\"42\"");
        assert!(notified(exchange.upstream(server(&text))).is_none());
        assert_eq!(exchange.dropped(), 2);
    }
    let mut silent = exchange("", Era::Legacy, ServerRequests::Refuse);
    assert!(!silent.address(request("").edit()).finish().windows(5).any(|w| w == b"_meta"));
    assert!(notified(silent.upstream(server(PROGRESS))).is_none());
    assert_eq!(silent.dropped(), 1);
}

#[test]
fn the_response_has_the_clients_id_and_ends_the_exchange() {
    let mut exchange = exchange("", Era::Legacy, ServerRequests::Refuse);
    assert!(answered(exchange.upstream(server(&ANSWER.replace("42", "41")))).is_none());
    assert!(answered(exchange.upstream(server(&ANSWER.replace("42", "\"42\"")))).is_none());
    let body = answered(exchange.upstream(server(ANSWER))).unwrap();
    assert_eq!(body, ANSWER.replace("42", "\"c-1\""));
    assert!(answered(exchange.upstream(server(ANSWER))).is_none());
    assert!(exchange.cancelled().event.is_none());
    assert!(exchange.gone().event.is_none());
    assert_eq!(exchange.dropped(), 3);

    let error = r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#;
    let mut other = self::exchange("", Era::Legacy, ServerRequests::Refuse);
    assert!(answered(other.upstream(server(error))).unwrap().contains(r#""id":"c-1""#));
}

#[test]
fn cancellation_is_sent_to_the_server_once() {
    let mut exchange = exchange("", Era::Legacy, ServerRequests::Refuse);
    let step = exchange.cancelled();
    assert_eq!(failed(&step), Some(Failure::Cancelled));
    let told = Message::parse(step.upstream.unwrap(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
    assert_eq!(cancelled_request(&told), Some(Id::number(42)));
    let again = exchange.timed_out();
    assert!(again.event.is_none() && again.upstream.is_none());
    assert!(answered(exchange.upstream(server(ANSWER))).is_none());

    let mut other = self::exchange("", Era::Modern, ServerRequests::Refuse);
    let step = other.gone();
    assert_eq!(failed(&step), Some(Failure::Gone));
    assert!(step.upstream.is_none());
}

#[test]
fn list_changed_is_unrelated_and_log_messages_are_opt_in() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let own = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let mut modern = exchange(own, Era::Modern, ServerRequests::Refuse);
    assert!(modern.upstream(server(changed)).elsewhere.is_some());
    assert!(notified(modern.upstream(server(log))).is_none());
    let wants = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/logLevel":"info"}"#;
    let mut wanting = exchange(wants, Era::Modern, ServerRequests::Refuse);
    assert_eq!(notified(wanting.upstream(server(log))).as_deref(), Some(log));
}

#[test]
fn legacy_server_requests_are_refused_or_passed_with_the_servers_id() {
    let ask = r#"{"jsonrpc":"2.0","id":"s-9","method":"elicitation/create","params":{}}"#;
    let mut refusing = exchange("", Era::Legacy, ServerRequests::Refuse);
    let step = refusing.upstream(server(ask));
    assert!(step.event.is_none());
    assert!(String::from_utf8_lossy(&step.upstream.unwrap()).contains("-32601"));
    let ping = refusing.upstream(server(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#));
    assert_eq!(&ping.upstream.unwrap()[..], br#"{"jsonrpc":"2.0","id":0,"result":{}}"#);

    let mut passing = exchange("", Era::Legacy, ServerRequests::Pass);
    let Some(Event::ServerRequest(id, _)) = passing.upstream(server(ask)).event else {
        panic!("the request did not pass");
    };
    let reply = br#"{"jsonrpc":"2.0","id":77,"result":{"action":"decline"}}"#;
    let reply = Message::parse(reply[..].into(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
    assert!(passing.answered(&Id::text("other"), &reply).upstream.is_none());
    let sent = passing.answered(&id, &reply).upstream.unwrap();
    assert_eq!(&sent[..], br#"{"jsonrpc":"2.0","id":"s-9","result":{"action":"decline"}}"#);
    assert!(passing.answered(&id, &reply).upstream.is_none());
    assert!(passing.upstream(server(&ask.replace("elicitation/create", "x/y"))).event.is_none());
}

#[test]
fn modern_results_of_unknown_type_are_failures() {
    let result = |kind: &str| {
        server(&format!(r#"{{"jsonrpc":"2.0","id":42,"result":{{"resultType":{kind}}}}}"#))
    };
    let run = |kind: &str, questions| exchange("", Era::Modern, questions).upstream(result(kind));
    assert!(answered(run("\"complete\"", ServerRequests::Refuse)).is_some());
    assert_eq!(failed(&run("\"task\"", ServerRequests::Pass)), Some(Failure::BadAnswer));
    assert_eq!(failed(&run("7", ServerRequests::Pass)), Some(Failure::BadAnswer));
    assert_eq!(failed(&run("\"input_required\"", ServerRequests::Refuse)), Some(Failure::Asked));

    let mut asked = exchange("", Era::Modern, ServerRequests::Pass);
    let step = asked.upstream(result("\"input_required\""));
    assert!(matches!(step.event, Some(Event::Done(ExchangeEnd::InputRequired(_)))));
    assert!(answered(asked.upstream(server(ANSWER))).is_none());
    // A modern server sends no requests.
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#;
    let step = exchange("", Era::Modern, ServerRequests::Pass).upstream(server(ask));
    assert!(step.event.is_none() && step.upstream.is_none());
}

proptest! {
    #[test]
    fn an_exchange_ends_exactly_once(
        inputs in prop::collection::vec(0..8usize, 0..12), modern in any::<bool>(), pass in any::<bool>(),
    ) {
        let era = if modern { Era::Modern } else { Era::Legacy };
        let questions = if pass { ServerRequests::Pass } else { ServerRequests::Refuse };
        let mut exchange = exchange(r#","_meta":{"progressToken":1}"#, era, questions);
        let mut ended = 0;
        for input in inputs.into_iter().chain([7]) {
            let step = match input {
                0 => exchange.upstream(server(ANSWER)),
                1 => exchange.upstream(server(PROGRESS)),
                2 => exchange.upstream(server(&ANSWER.replace("\"content\":[]", "\"resultType\":\"input_required\""))),
                3 => exchange.upstream(server(r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#)),
                4 => exchange.cancelled(),
                5 => exchange.timed_out(),
                6 => exchange.undeliverable(),
                _ => exchange.gone(),
            };
            if ended > 0 {
                prop_assert!(step.event.is_none());
            }
            if let Some(Event::Done(_)) = step.event {
                ended += 1;
            }
        }
        prop_assert_eq!(ended, 1);
        prop_assert!(exchange.is_done());
    }
}
