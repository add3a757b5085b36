//! Prompts and resources of the echo server: a prompt returns its arguments, and a resource its URI.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Outcome, Reply};
use crate::json::{member, quote, string};

/// The terms of a modern list.
const TERMS: &[u8] = b"\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":\"private\",";
const COMPLETE: &[u8] = b"\"resultType\":\"complete\",";

/// The resources of a server, and the prompt `echo`.
pub struct Others {
    /// The JSON array of resources.
    resources: Vec<u8>,
    uris: HashSet<Vec<u8>>,
}

/// The URI of a resource.
pub fn uri(number: usize) -> String {
    format!("bench://docs/{number:06}")
}

impl Others {
    /// Creates this many resources, each with an entry of about `bytes` bytes or more.
    pub fn new(count: usize, bytes: usize) -> Others {
        let words = "A page of the handbook, with all that was found out about it so far. ";
        let resource = |number: usize| {
            let mut resource = json!({
                "uri": uri(number),
                "name": format!("Page {number}"),
                "description": "",
                "mimeType": "text/plain",
            });
            let missing = bytes.saturating_sub(resource.to_string().len());
            resource["description"] =
                json!(words.chars().cycle().take(missing).collect::<String>());
            resource
        };
        let resources = Value::Array((0..count).map(resource).collect());
        Others {
            resources: resources.to_string().into_bytes(),
            uris: (0..count).map(|number| uri(number).into_bytes()).collect(),
        }
    }

    /// The capabilities that it adds to those of the tools.
    pub(super) fn capabilities() -> Value {
        json!({"tools": {}, "prompts": {}, "resources": {"subscribe": true}})
    }

    /// Appends the response to a request; `None` if it is about something else.
    pub(super) fn answer(
        &self,
        method: &[u8],
        params: &[u8],
        modern: bool,
        reply: &mut Reply<'_>,
    ) -> Option<Outcome> {
        let terms = if modern { TERMS } else { b"" };
        let complete = if modern { COMPLETE } else { b"" };
        Some(match method {
            b"prompts/list" => {
                let prompts = br#""prompts":[{"name":"echo","arguments":[{"name":"number"}]}]}"#;
                reply.result(&[b"{", terms, prompts])
            }
            b"prompts/get" if string(params, "name") == Some(b"echo") => {
                let mut text = Vec::new();
                quote(member(params, "arguments").unwrap_or(b"{}"), &mut text);
                let content: &[u8] =
                    br#""messages":[{"role":"user","content":{"type":"text","text":"#;
                reply.result(&[b"{", complete, content, &text, b"}}]}"])
            }
            b"resources/list" => {
                reply.result(&[b"{", terms, b"\"resources\":", &self.resources, b"}"])
            }
            b"resources/templates/list" => {
                reply.result(&[b"{", terms, b"\"resourceTemplates\":[]}"])
            }
            b"resources/read" => {
                let uri = string(params, "uri").unwrap_or_default();
                if !self.uris.contains(uri) {
                    return Some(reply.error(200, -32602, "unknown resource"));
                }
                let contents =
                    [b"\"contents\":[{\"uri\":\"", uri, b"\",\"text\":\"", uri, b"\"}]}"];
                let terms = if modern { TERMS } else { b"" };
                reply.result(&[&[b"{", terms][..], &contents].concat())
            }
            b"resources/subscribe" | b"resources/unsubscribe" if !modern => reply.result(&[b"{}"]),
            _ => return None,
        })
    }
}

/// The notification that a resource changed, as a line.
pub(super) fn updated(uri: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(
        br#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"#,
    );
    quote(uri, out);
    out.extend_from_slice(b"}}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &str, params: &Value, modern: bool) -> Value {
        let mut out = Vec::new();
        let mut reply = Reply { out: &mut out, id: b"1" };
        let others = Others::new(3, 200);
        let params = params.to_string();
        others.answer(method.as_bytes(), params.as_bytes(), modern, &mut reply).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn lists_have_the_requested_size() {
        let list = answer("resources/list", &json!({}), true);
        let resources = list["result"]["resources"].as_array().unwrap();
        assert_eq!((resources.len(), &resources[2]["uri"]), (3, &json!(uri(2))));
        assert!((190..230).contains(&resources[0].to_string().len()), "{}", resources[0]);
        assert_eq!(list["result"]["ttlMs"], 60000);
        let legacy = answer("prompts/list", &json!({}), false);
        assert_eq!(legacy["result"]["prompts"][0]["name"], "echo");
        assert_eq!(legacy["result"]["ttlMs"], Value::Null);
    }

    #[test]
    fn prompts_return_their_arguments_and_resources_their_uri() {
        let params = json!({"name": "echo", "arguments": {"number": "12"}});
        let prompt = answer("prompts/get", &params, true);
        let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), params["arguments"]);
        let read = answer("resources/read", &json!({"uri": uri(1)}), false);
        assert_eq!(read["result"]["contents"][0], json!({"uri": uri(1), "text": uri(1)}));
        let unknown = answer("resources/read", &json!({"uri": "bench://other"}), false);
        assert_eq!(unknown["error"]["code"], -32602);
    }
}
