//! Fuzzes the exchange state machine with any order of events.
//!
//! A request ends at most once and nothing follows. Ids and tokens return to the client as the
//! client wrote them, and the server only sees its own.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolward_wire::exchange::{Event, Exchange, ExchangeEnd, ServerRequests, Step};
use toolward_wire::{Era, Id, Kind, MAX_RESPONSE_BYTES, Message, Raw, Sender, jsonrpc};

const IDS: [&str; 6] = ["1", "\"c-1\"", "\"\\u0063-1\"", "-9", "40", "\"40\""];

// The first byte selects the request, each further one the next event.
fuzz_target!(|data: &[u8]| {
    let mut bytes = data.iter().copied();
    let mut next = || bytes.next();
    let Some(options) = next() else { return };
    let id = IDS[usize::from(options % 6)];
    let era = if options & 8 == 0 { Era::Legacy } else { Era::Modern };
    let requests = if options & 16 == 0 { ServerRequests::Refuse } else { ServerRequests::Pass };
    let method = if options & 32 == 0 { "tools/call" } else { "prompts/get" };
    let token = (options & 64 == 0).then_some(IDS[usize::from(options / 7 % 6)]);
    let meta = match token {
        Some(token) => format!(r#","_meta":{{"progressToken":{token}}}"#),
        None => String::new(),
    };
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"t"{meta}}}}}"#
    );
    let request = parse(request.into(), Sender::Client);
    let row = request.row(Sender::Client, era).unwrap();
    let mut exchange = Exchange::new(&request, row, era, 40, requests);

    let mut run = Run { id, token, era, requests, minted: 40, open: Vec::new(), ends: 0 };
    run.addressed(&exchange, &request);
    while let Some(op) = next() {
        let pick = next().unwrap_or_default();
        let dropped = exchange.dropped();
        let was_done = exchange.is_done();
        let step = match op % 16 {
            0 => exchange.cancelled(),
            1 => exchange.timed_out(),
            2 => exchange.gone(),
            3 => exchange.unreadable(),
            4 => exchange.declined(),
            5 => {
                let request = of(IDS[usize::from(pick % 6)]);
                let response = r#"{"jsonrpc":"2.0","id":"gateway","result":{"action":"accept"}}"#;
                let step = exchange.answered(&request, &parse(response.into(), Sender::Client));
                run.answered(&request, &step, was_done);
                step
            }
            _ => exchange.upstream(parse(run.server_message(op, pick).into(), Sender::Server)),
        };
        assert!(exchange.dropped() >= dropped);
        if was_done {
            assert!(step.event.is_none(), "{:?} after the end", step.event);
            assert!(exchange.is_done());
        }
        run.step(step, exchange.is_done(), &exchange);
    }
    assert!(run.ends <= 1 && (run.ends == 1) == exchange.is_done());
});

fn parse(body: Bytes, sender: Sender) -> Message {
    Message::parse(body, MAX_RESPONSE_BYTES, sender).unwrap()
}

fn of(raw: &str) -> Id {
    Id::of(Raw::scan(raw.as_bytes(), 64).unwrap()).unwrap()
}

struct Run {
    id: &'static str,
    token: Option<&'static str>,
    era: Era,
    requests: ServerRequests,
    minted: u64,
    /// The ids of requests from the server without a response.
    open: Vec<Id>,
    ends: u32,
}

impl Run {
    /// Checks that the request to the server has only the generated id and token.
    fn addressed(&self, exchange: &Exchange, request: &Message) {
        assert_eq!(exchange.minted(), &Id::number(self.minted));
        let sent = parse(exchange.address(request.edit()).finish(), Sender::Client);
        assert_eq!(sent.id(), Some(&Id::number(self.minted)));
        assert_eq!(sent.progress_token(), self.token.map(|_| Id::number(self.minted)));
        assert_eq!(sent.param("name"), request.param("name"));
    }

    fn server_message(&self, op: u8, pick: u8) -> String {
        let minted = self.minted.to_string();
        let id = match pick % 8 {
            at @ 0..6 => IDS[usize::from(at)],
            _ => &minted,
        };
        let result = match pick / 8 % 8 {
            0..3 => r#"{"content":[]}"#,
            3 => r#"{"resultType":"complete"}"#,
            4 => r#"{"resultType":"input_required","inputRequests":{}}"#,
            5 => r#"{"resultType":"other"}"#,
            6 => r#"{"resultType":7}"#,
            _ => "{}",
        };
        let notification = |method: &str, params: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}}"#
            )
        };
        let request = |method: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
        };
        match op % 16 {
            6 | 7 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            8 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"m"}}}}"#),
            9 => r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}"#.into(),
            10 => notification("progress", &format!(r#""progressToken":{id},"progress":1"#)),
            11 => notification("message", r#""level":"info","data":1"#),
            12 => notification("cancelled", &format!(r#""requestId":{id}"#)),
            13 => notification("tools/list_changed", ""),
            14 => request("ping"),
            _ => request(match pick / 8 % 4 {
                0 | 1 => "elicitation/create",
                2 => "sampling/createMessage",
                _ => "rm/everything",
            }),
        }
    }

    fn answered(&mut self, request: &Id, step: &Step, was_done: bool) {
        let known = self.open.iter().position(|open| open == request);
        match &step.upstream {
            Some(body) => {
                assert!(!was_done);
                let sent = parse(body.clone(), Sender::Client);
                let open = self.open.swap_remove(known.expect("a response without a request"));
                assert_eq!(sent.id().unwrap().raw(), open.raw());
            }
            None => assert!(known.is_none() || was_done || self.era == Era::Modern),
        }
    }

    fn step(&mut self, step: Step, done: bool, exchange: &Exchange) {
        if let Some(body) = step.upstream {
            let sent = parse(body, Sender::Client);
            // A cancellation contains the server's id, never the client's.
            if sent.kind() == Kind::Notification {
                assert_eq!(sent.method().unwrap(), "notifications/cancelled");
                assert_eq!(sent.param("requestId").and_then(Id::of), Some(Id::number(self.minted)));
                assert!(done);
            }
        }
        if let Some(message) = step.elsewhere {
            assert_eq!(message.method().unwrap(), "notifications/tools/list_changed");
        }
        match step.event {
            None => {}
            Some(Event::Notify(body)) => {
                let notification = parse(body, Sender::Server);
                if notification.method().unwrap() == "notifications/progress" {
                    let token = notification.param("progressToken").unwrap();
                    assert_eq!(Some(token.bytes()), self.token.map(str::as_bytes));
                }
            }
            Some(Event::ServerRequest(id, message)) => {
                assert_eq!((self.requests, self.era), (ServerRequests::Pass, Era::Legacy));
                assert_eq!(message.id(), Some(&id));
                assert!(!self.open.contains(&id), "duplicate request");
                self.open.push(id);
            }
            Some(Event::Done(end)) => {
                self.ends += 1;
                assert!(done);
                match end {
                    ExchangeEnd::Response { message, body } => {
                        let sent = parse(body.concat().into(), Sender::Server);
                        assert_eq!(sent.id().unwrap().raw(), self.id.as_bytes());
                        assert_eq!(sent.kind(), message.kind());
                        assert_eq!(sent.result(), message.result());
                    }
                    ExchangeEnd::InputRequired(message) => {
                        assert_eq!((self.requests, self.era), (ServerRequests::Pass, Era::Modern));
                        assert_eq!(message.id(), Some(&Id::number(self.minted)));
                    }
                    ExchangeEnd::Failed(failure) => {
                        let body = jsonrpc::error_body(
                            exchange.id(),
                            -32603,
                            &format!("{failure:?}"),
                            None,
                        );
                        assert_eq!(parse(body, Sender::Server).id(), exchange.id());
                    }
                }
            }
        }
    }
}
