//! One refusal, wherever it is read: the agent's text, the audit record, `explain`, `can-i`, the live view and
//! the admin UI's explanation agree.

use std::process::Command;

use serde_json::{Value, json};

use super::harness::{Caller, Setup, names, setup};
use super::html::{encoded, escaped, in_prose, plain};
use super::kit::Site;

/// A call that is refused, and a few words that its reason must have.
struct Refused {
    agent: &'static str,
    /// `SERVER/TOOL` for a call through `execute_tool`, which asks under that name.
    name: &'static str,
    subject: &'static str,
    arguments: Value,
    reason: &'static str,
}

fn world() -> Setup {
    let operation = |schema: Value| json!({"type": "object", "properties": {"operation": schema}});
    let mut offered = names(&["look", "write", "both", "once", "secret", "plain"]);
    let more = [
        json!({"name": "do", "inputSchema": operation(json!({"type": "string"}))}),
        json!({"name": "modes", "inputSchema": operation(json!({"enum": ["x", "y"]}))}),
        json!({"name": "pick", "inputSchema": operation(json!({"enum": ["x", "y"]}))}),
    ];
    offered.as_array_mut().unwrap().extend(more);
    let own = |progressive: bool| {
        let mut agent = json!({
            "allow": {"servers": ["s", "toolward"], "tools": {"s": [
                {"tool": "look"}, "do.get", "do.list_*", "do.drop", "modes.z", "pick.x", "secret.*",
                {"tool": "plain", "when": "action == 'get'"},
                {"tool": "write", "when": "args.path.startsWith('/srv/')"},
                {"tool": "both", "when": "args.n > 1"}, {"tool": "both", "when": "args.m > 1"},
                {"tool": "once", "limit": "1/hour"},
            ]}},
            "deny": {"tools": {"s": ["secret", {"tool": "look", "when": "args.deep == true"},
                {"tool": "do.list_secret", "message": "Ask Ann."}, "do.drop"]}},
        });
        if progressive {
            agent["discovery"] = json!("progressive");
        }
        agent
    };
    setup()
        .set("builtin", json!(true))
        .stdio("s", "modern", offered)
        .with("s", "action_keys", json!(["operation", "verb"]))
        .stdio("vault", "modern", names(&["open"]))
        .agents(json!({"a": own(false), "b": own(true), "keeper": {"allow": {"servers": ["*"]}}}))
}

fn table() -> Vec<Refused> {
    let a =
        |name, subject, arguments, reason| Refused { agent: "a", name, subject, arguments, reason };
    let b =
        |name, subject, arguments, reason| Refused { agent: "b", name, subject, arguments, reason };
    vec![
        a("s__secret", "s/secret", json!({}), "`secret` in the deny list of agent `a`"),
        a("s__secret", "s/secret", json!({"operation": "get"}), "`secret` in the deny list"),
        a("s__modes", "s/modes", json!({"operation": "z"}), "no action of its schema is allowed"),
        a("s__modes", "s/modes", json!({"operation": "x"}), "no entry of the allow lists"),
        a(
            "s__nothing",
            "s/nothing",
            json!({"action": "get"}),
            "the server `s` has no tool `nothing`",
        ),
        a("vault__open", "vault/open", json!({}), "allow.servers of agent `a`"),
        a("vault__nothing", "vault/nothing", json!({}), "the server `vault` has no tool `nothing`"),
        a("s__do", "s/do", json!({"operation": "put"}), "covers `s/do.put`"),
        a("s__do", "s/do", json!({"verb": "put", "action": "get"}), "covers `s/do.put`"),
        a(
            "s__do",
            "s/do",
            json!({"operation": "list_secret"}),
            "`do.list_secret` in the deny list",
        ),
        a("s__do", "s/do", json!({"operation": "drop"}), "`do.drop` in the deny list"),
        a(
            "s__do",
            "s/do",
            json!({"operation": "get", "verb": "put"}),
            "ambiguous: `operation` names",
        ),
        a("s__do", "s/do", json!({"operation": 7}), "is not a string"),
        a("s__do", "s/do", json!({}), "the call has no action"),
        a("s__do", "s/do", json!({"action": "get"}), "the call has no action"),
        a("s__pick", "s/pick", json!({"operation": "y"}), "covers `s/pick.y`"),
        a("s__pick", "s/pick", json!({}), "no entry of the allow lists"),
        a("s__plain", "s/plain", json!({"action": "get"}), "which is false"),
        a("s__write", "s/write", json!({"path": "b.txt"}), "which is false"),
        a("s__write", "s/write", json!({"file": 1}), "needs the argument `path`"),
        a("s__both", "s/both", json!({"n": 0}), "needs the argument `m`"),
        a("s__look", "s/look", json!({"deep": true}), "`look` in the deny list"),
        b("s__look", "s/look", json!({"deep": false}), "progressive discovery"),
        // A deny condition that cannot be evaluated matches.
        b("s__look", "s/look", json!({}), "`look` in the deny list"),
        b("s__nothing", "s/nothing", json!({}), "the server `s` has no tool `nothing`"),
        b("s__secret", "s/secret", json!({}), "`secret` in the deny list"),
        b("s__do", "s/do", json!({"operation": "put"}), "covers `s/do.put`"),
    ]
}

/// The text that the agent got, with `ID` for the decision's id, and that id.
fn got(answer: &Value) -> (String, String) {
    let listed = &answer["result"]["_meta"]["io.toolward/refusal"];
    let (text, data) = match listed.is_object() {
        true => (&answer["result"]["content"][0]["text"], listed),
        false => (&answer["error"]["message"], &answer["error"]["data"]),
    };
    let id = data["decision_id"].as_str().unwrap_or_else(|| panic!("{answer}"));
    (text.as_str().unwrap().replace(id, "ID"), id.into())
}

fn record(site: &Site, id: &str) -> Value {
    let records = site.gate.records();
    records.into_iter().find(|record| record["id"] == id).unwrap()
}

/// The reason of a past decision, as `explain ID` and the live view have it.
fn is_the_past_reason(site: &Site, id: &str, reason: &str) {
    assert_eq!(site.command(&["explain", id])["reason"], reason);
    let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["explain", id, "--dir"])
        .arg(site.gate.file("audit"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(reason), "{reason}\n{said}");
    let one = site.part(&format!("live?id={id}"));
    assert!(plain(&one).contains(&in_prose(reason)), "{reason}\n{}", plain(&one));
    let rows = site.html("live");
    assert!(plain(&rows).contains(&in_prose(reason)), "{reason}\n{}", plain(&rows));
}

#[test]
fn a_refusal_has_one_reason_and_one_text() {
    let site = Site::of(world());
    site.table();
    for Refused { agent, name, subject, arguments, reason: words } in table() {
        let case = format!("{agent} {name} {arguments}");
        let (text, id) = got(&site.gate.agent(agent).call(name, arguments.clone()));
        let record = record(&site, &id);
        let reason = record["reason"].as_str().unwrap_or_else(|| panic!("{case}: {record}"));
        assert!(reason.contains(words), "{case}: {reason}");
        is_the_past_reason(&site, &id, reason);

        let given = arguments.to_string();
        let explained = site.command(&["explain", "--as", agent, subject, &given]);
        let direct = match explained.get("direct") {
            Some(direct) => direct,
            None => &explained,
        };
        assert_eq!(direct["reason"], reason, "{case}");
        assert_eq!(direct["step"], record["step"], "{case}");
        assert_eq!(direct["refusal"]["text"], text, "{case}");
        let can_i = site.command(&["can-i", "--as", agent, subject, &given]);
        let direct = can_i.get("direct").unwrap_or(&can_i);
        assert_eq!(direct["reason"], reason, "{case}");

        let (server, tool) = subject.split_once('/').unwrap();
        let arguments = encoded(&given);
        let view = format!("explain?agent={agent}&server={server}&tool={tool}&args={arguments}");
        let html = site.part(&view);
        assert!(plain(&html).contains(&in_prose(reason)), "{case}: {reason}\n{}", plain(&html));
        let lines: Vec<String> = text.lines().map(escaped).collect();
        let shown = format!("<pre class=\"refusal\">{}</pre>", lines.join("\n"));
        assert!(html.contains(&shown), "{case}: {text}\n{html}");
    }
}
