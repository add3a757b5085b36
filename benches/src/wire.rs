//! The cost of parsing and rewriting one call: the steps of `toolward-wire` between a client and a
//! server over HTTP, with messages of ordinary size.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use toolward_wire::exchange::{Exchange, ServerRequests};
use toolward_wire::headers::{self, StandardHeaders};
use toolward_wire::http::{
    self, BodyReader, HeadLimits, RequestHead, ResponseBody, ResponseHead, write_request,
    write_response,
};
use toolward_wire::method::NameAt;
use toolward_wire::{
    Era, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Message, MethodRow, Sender, meta, string,
};

const REQUEST_HEAD: &str = "POST /mcp HTTP/1.1\r\n\
    Host: 127.0.0.1:7410\r\n\
    Accept: application/json, text/event-stream\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 380\r\n\
    Authorization: Bearer 4f1c2a7e9b3d5c6a8e0f1b2d3c4a5e6f\r\n\
    MCP-Protocol-Version: 2026-07-28\r\n\
    Mcp-Method: tools/call\r\n\
    Mcp-Name: tracker__search_issues\r\n\
    User-Agent: example-client/1.4.2\r\n\
    \r\n";

const CALL: &str = r#"{"jsonrpc":"2.0","id":417,"method":"tools/call","params":{"name":"tracker__search_issues","arguments":{"query":"crash on start","state":"open","limit":20,"labels":["bug","regression"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"example-client","version":"1.4.2"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

const RESPONSE_HEAD: &str = "HTTP/1.1 200 OK\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 254\r\n\
    Date: Mon, 16 Nov 2026 03:00:00 GMT\r\n\
    \r\n";

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":90417,"result":{"resultType":"complete","content":[{"type":"text","text":"{\"query\":\"crash on start\",\"state\":\"open\",\"limit\":20,\"found\":[{\"number\":1841,\"title\":\"Crash on start without network\"}]}"}],"isError":false}}"#;

/// The fields of a call's audit record, each written as a JSON string.
const SAID: [&str; 11] = [
    "reviewer",
    "token",
    "417",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "tracker__search_issues",
    "tracker",
    "search_issues",
    "allow",
    "agent-allow",
    "hint:read-only toolward.yaml:21:19",
    "`hint:read-only` in the allow list of agent `reviewer` covers `tracker/search_issues`",
];

/// The messages, and the input of each step.
pub struct Traffic {
    call: Message,
    answer: Message,
    head: RequestHead,
    row: &'static MethodRow,
}

/// A step, by the name under which the program starts itself with it.
pub struct Step {
    pub name: &'static str,
    pub what: &'static str,
    take: fn(&Traffic),
}

/// In the order of a call.
pub const STEPS: [Step; 12] = [
    step("read-request", "read a request's head", |_| {
        black_box(request_head());
    }),
    step("headers", "find what a gateway asks of it", |traffic| {
        for name in ["authorization", "content-type", "mcp-session-id", headers::PROTOCOL_VERSION] {
            black_box(traffic.head.headers.get(black_box(name)));
        }
        for name in ["origin", "content-encoding"] {
            black_box(traffic.head.headers.count(black_box(name)));
        }
    }),
    step("parse-call", "parse a call", |_| {
        black_box(parse(CALL, MAX_REQUEST_BYTES, Sender::Client));
    }),
    step("admit", "row, terms and headers of a call", |traffic| {
        let (call, sent) = (black_box(&traffic.call), &traffic.head.headers);
        let standard = StandardHeaders {
            protocol_version: sent.get(headers::PROTOCOL_VERSION),
            method: sent.get(headers::METHOD),
            name: sent.get(headers::NAME),
        };
        let row = call.row(Sender::Client, Era::Modern).expect("the method is known");
        black_box(call.request_meta().expect("the terms are there"));
        standard.check(call, row).expect("the headers repeat the body");
        black_box(call.name(row.name_at).expect("a call has a name"));
    }),
    step("arguments", "walk a call's arguments", |traffic| {
        let arguments = black_box(&traffic.call).arguments().expect("there are arguments");
        black_box(arguments.case_collision());
        for (name, value) in arguments.members() {
            black_box((name, value.as_str()));
        }
    }),
    step("record", "quote the fields of a record", |_| {
        let mut out = Vec::with_capacity(640);
        for text in SAID {
            string::write(black_box(text), &mut out);
        }
        black_box(out);
    }),
    step("edit-call", "address a call to a server", |traffic| {
        black_box(address(traffic));
    }),
    step("write-request", "write a request's head", |_| {
        let mut out = Vec::with_capacity(512);
        let fields = black_box([
            ("Accept", "application/json, text/event-stream"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "search_issues"),
        ]);
        let (target, host) = black_box(("/mcp", "127.0.0.1:7411"));
        write_request(&mut out, "POST", target, host, &fields, Some(black_box(380)))
            .expect("the fields can be written");
        black_box(out);
    }),
    step("read-response", "read a response's head", |_| {
        black_box(response_head());
    }),
    step("parse-answer", "parse an answer", |_| {
        black_box(parse(ANSWER, MAX_RESPONSE_BYTES, Sender::Server));
    }),
    step("edit-answer", "hand an answer to the client", |traffic| {
        let mut exchange = exchange(traffic);
        for member in traffic.answer.result_members() {
            black_box(member.name());
        }
        let _ = black_box(exchange.upstream(black_box(&traffic.answer).clone()));
    }),
    step("write-response", "write a response's head", |_| {
        let mut out = Vec::with_capacity(256);
        let fields = black_box([("Content-Type", "application/json")]);
        let body = ResponseBody::Length(black_box(254));
        write_response(&mut out, black_box(200), &fields, body, true)
            .expect("the fields can be written");
        black_box(out);
    }),
];

const fn step(name: &'static str, what: &'static str, take: fn(&Traffic)) -> Step {
    Step { name, what, take }
}

/// Repeats a step.
pub fn work(name: &str, count: usize) {
    let traffic = Traffic::new();
    let step = STEPS.iter().find(|step| step.name == name);
    let step = step.unwrap_or_else(|| panic!("there is no step called {name}"));
    for _ in 0..count {
        (step.take)(black_box(&traffic));
    }
}

impl Traffic {
    fn new() -> Traffic {
        let call = parse(CALL, MAX_REQUEST_BYTES, Sender::Client);
        let row = call.row(Sender::Client, Era::Modern).expect("the method is known");
        assert!(matches!(row.name_at, NameAt::Param("name")));
        Traffic {
            answer: parse(ANSWER, MAX_RESPONSE_BYTES, Sender::Server),
            call,
            head: request_head(),
            row,
        }
    }
}

fn parse(body: &'static str, limit: usize, sender: Sender) -> Message {
    let body = Bytes::from_static(black_box(body).as_bytes());
    Message::parse(body, limit, sender).expect("the message is well-formed")
}

fn request_head() -> RequestHead {
    let mut buffer = BytesMut::from(black_box(REQUEST_HEAD));
    let head = http::read_request(&mut buffer, &HeadLimits::default());
    let head = head.expect("the head is well-formed").expect("the head is whole");
    black_box(BodyReader::new(head.body, MAX_REQUEST_BYTES).expect("the body is small enough"));
    head
}

fn response_head() -> ResponseHead {
    let mut buffer = BytesMut::from(black_box(RESPONSE_HEAD));
    let head = http::read_response(&mut buffer, &HeadLimits::default());
    head.expect("the head is well-formed").expect("the head is whole")
}

fn exchange(traffic: &Traffic) -> Exchange {
    let call = black_box(&traffic.call);
    Exchange::new(call, traffic.row, Era::Modern, black_box(90417), ServerRequests::Refuse)
}

/// Addresses a call from a modern client to a modern server, under the tool's own name.
fn address(traffic: &Traffic) -> (Bytes, Exchange) {
    let exchange = exchange(traffic);
    let edit = exchange.address(traffic.call.edit());
    let edit = edit.set_meta(meta::CLIENT_CAPABILITIES, &b"{}"[..]);
    (edit.set_param_str("name", black_box("search_issues")).finish(), exchange)
}
