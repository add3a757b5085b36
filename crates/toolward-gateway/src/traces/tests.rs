use bytes::Bytes;
use toolward_wire::Sender;

use super::*;

fn message(meta: &str) -> Message {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{meta}}}}}"#);
    Message::parse(Bytes::from(body), usize::MAX, Sender::Client).unwrap()
}

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

#[tokio::test]
async fn the_client_decides_and_otherwise_chance() {
    let traces = Traces::default();
    assert!(traces.begin(&message(&format!(r#"{{"traceparent":"{SAMPLED}"}}"#))).is_none());
    let (_spans, _) = traces.enable(0.0).unwrap();
    assert!(traces.begin(&message("{}")).is_none());
    let traced = traces.begin(&message(&format!(r#"{{"traceparent":"{SAMPLED}"}}"#))).unwrap();
    assert_eq!(format!("{:x}", traced.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(format!("{:016x}", traced.parent), "00f067aa0ba902b7");
    let always = Traces::default();
    let (_spans, _) = always.enable(1.0).unwrap();
    assert!((0..100).all(|_| always.begin(&message("{}")).is_some()));
    // A client that traces but does not sample is not overruled.
    assert!(always.begin(&message(&format!(r#"{{"traceparent":"{UNSAMPLED}"}}"#))).is_none());
    assert!(with_header(Some(UNSAMPLED), async { always.begin(&message("{}")) }).await.is_none());
    assert!(with_header(Some("nonsense"), async { always.begin(&message("{}")) }).await.is_some());
}

#[tokio::test]
async fn the_message_is_the_parent_and_the_header_a_link() {
    let traces = Traces::default();
    let (spans, _) = traces.enable(0.0).unwrap();
    let header = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01";
    let of_message = message(&format!(r#"{{"traceparent":"{SAMPLED}"}}"#));
    let traced = with_header(Some(header), async { traces.begin(&of_message) }).await.unwrap();
    within(traced.clone(), async {
        let call = TracedCall::begin().unwrap();
        decided("decision-1");
        assert!(call.parent().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert_eq!(ids().1.as_deref(), Some("decision-1"));
        traces.end_call(&call, "tools/call", "", Duration::from_millis(1));
    })
    .await;
    traces.end(&traced, "tools/call", "denied");
    let (client, server) = (spans.recv().unwrap(), spans.recv().unwrap());
    assert!(!client.is_server && server.is_server);
    assert_eq!((client.parent, client.trace), (server.id, server.trace));
    assert_eq!(server.link.map(|(_, span)| span), Some(0xbbbb_bbbb_bbbb_bbbb));
    assert_eq!(server.facts.decision.as_deref(), Some("decision-1"));
    assert_eq!(server.error_type, "denied");
}

#[test]
fn a_full_queue_drops_spans_and_counts_them() {
    let traces = Traces::default();
    let (spans, counts) = traces.enable(1.0).unwrap();
    for _ in 0..MAX_QUEUE + 10 {
        let traced = traces.begin(&message("{}")).unwrap();
        traces.end(&traced, "ping", "");
    }
    assert_eq!(counts.dropped.load(Ordering::Relaxed), 10);
    assert_eq!(spans.try_iter().count(), MAX_QUEUE);
}

#[test]
fn a_ratio_is_about_right() {
    let traces = Traces::default();
    let (_spans, _) = traces.enable(0.1).unwrap();
    let traced = (0..20_000).filter(|_| traces.begin(&message("{}")).is_some()).count();
    assert!((1700..2300).contains(&traced), "{traced}");
}
