//! The canonical form of a call's parameters, by which an approval recognizes the call.
//!
//! Keys are sorted and escape sequences normalized, because neither changes what a server reads. Numbers stay as they
//! were written: as doubles, 9007199254740992 and 9007199254740993 would be equal. Unicode is not normalized.

use toolward_wire::{Message, Raw, Shape, string};

/// Members of `params` that an approval does not cover: they do not reach the server as part of the call, or are its
/// name, which is compared separately.
const UNBOUND: [&str; 4] = ["_meta", "inputResponses", "requestState", "name"];

/// The parameters of a call that are forwarded.
pub(super) fn params(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match message.params() {
        Some(params) => object(params, |name| !UNBOUND.contains(&name), &mut out),
        None => out.extend_from_slice(b"{}"),
    }
    out
}

/// A value in its canonical form.
pub(super) fn value(raw: Raw<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(raw, &mut out);
    out
}

fn write(raw: Raw<'_>, out: &mut Vec<u8>) {
    match raw.shape() {
        Shape::Null | Shape::Bool | Shape::Number => out.extend_from_slice(raw.bytes()),
        Shape::String => string::write(&raw.as_str().unwrap_or_default(), out),
        Shape::Array => {
            out.push(b'[');
            for (at, (element, _)) in raw.elements().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(element, out);
            }
            out.push(b']');
        }
        Shape::Object => object(raw, |_| true, out),
    }
}

fn object(raw: Raw<'_>, keep: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    let mut members: Vec<_> = raw.members().map(|member| (member.name(), member.value)).collect();
    members.retain(|(name, _)| keep(name));
    members.sort_by(|one, other| one.0.cmp(&other.0));
    out.push(b'{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        string::write(&name, out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_wire::Sender;

    fn of(arguments: &str) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments},"_meta":{{"x":1}}}}}}"#
        );
        let message = Message::parse(body.into(), 1 << 20, Sender::Client).unwrap();
        String::from_utf8(params(&message)).unwrap()
    }

    #[test]
    fn spellings_of_the_same_value_are_equal() {
        let same = of(r#"{"a": "x/y", "b": [1, {"d": null, "c": "é"}]}"#);
        assert_eq!(same, r#"{"arguments":{"a":"x/y","b":[1,{"c":"é","d":null}]}}"#);
        assert_eq!(of(r#"{ "b":[1,{"c":"\u00e9","d":null}],"\u0061":"x\/y"}"#), same);
    }

    #[test]
    fn values_that_a_server_could_tell_apart_differ() {
        let pairs = [
            (r#"{"n":1}"#, r#"{"n":1.0}"#),
            (r#"{"n":1}"#, r#"{"n":1e0}"#),
            (r#"{"n":1}"#, r#"{"n":"1"}"#),
            (r#"{"n":0}"#, r#"{"n":-0}"#),
            (r#"{"n":9007199254740992}"#, r#"{"n":9007199254740993}"#),
            (r#"{"n":null}"#, r#"{}"#),
            (r#"{"n":[1,2]}"#, r#"{"n":[2,1]}"#),
            (r#"{"s":"é"}"#, r#"{"s":"e\u0301"}"#),
            (r#"{"s":"a"}"#, r#"{"s":"а"}"#),
            (r#"{"s":"a"}"#, r#"{"s":"a "}"#),
            (r#"{"a":{"b":1}}"#, r#"{"a":"{\"b\":1}"}"#),
        ];
        for (one, other) in pairs {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
}
