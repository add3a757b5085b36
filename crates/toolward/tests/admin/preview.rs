//! The preview of a candidate policy, which changes nothing and reads nothing that the candidate names.

use std::net::TcpListener;

use serde_json::json;

use super::harness::{Setup, names, setup};
use super::html::{between, encoded, plain, unescaped};
use super::kit::Site;

const LAYER: &str = "\
agents:
  reader:
    allow: { servers: ['*'], tools: { files: [read] } }
  keeper:
    allow: { servers: ['*'] }
    deny: { tools: { files: [drop] } }
";

/// A gateway whose rules are in a policy file of their own.
fn ready() -> Setup {
    let setup = setup().stdio("files", "modern", names(&["read", "write", "drop"]));
    std::fs::write(setup.path("layer.yaml"), LAYER).unwrap();
    setup.agents(json!({"reader": {}, "keeper": {}})).set("policies", json!(["layer.yaml"]))
}

fn preview(site: &Site, text: &str) -> String {
    let form = format!("text={}", encoded(text));
    let reply = site.post(&format!("{}preview", site.path), &form);
    assert_eq!(reply.status, 200, "{reply:?}");
    unescaped(&String::from_utf8(reply.body).unwrap())
}

fn part(html: &str, class: &str) -> String {
    plain(between(html, &format!("<section class=\"{class}\">"), "</section>")[0])
}

#[test]
fn it_shows_cells_widening_failed_tests_and_past_calls_and_changes_nothing() {
    let site = Site::of(ready());
    site.table();
    let call = |agent: &str, name: &str| {
        site.gate.agent(agent).modern("tools/call", json!({"name": name, "arguments": {}}));
    };
    call("reader", "files__read");
    call("reader", "files__read");
    call("keeper", "files__write");
    call("keeper", "files__drop");
    assert!(site.html("policy").contains("href=\"preview\""));
    assert!(site.html("preview").contains("Nothing is applied or stored"));
    let records = site.gate.records().len();
    let version = site.command(&["status"])[0]["policy"]["version"].clone();
    let candidate = "\
agents:
  reader:
    allow: { servers: ['*'], tools: { files: [write] } }
  keeper:
    allow: { servers: ['*'] }
tests:
  - as: reader
    allow: [files/write, files/read]
  - never: { as: keeper, calls: ['files/drop'] }
";
    let html = preview(&site, candidate);
    let wider = part(&html, "widens");
    assert!(wider.contains("allows calls that the active policy denies"), "{wider}");
    assert!(wider.contains("keeper: files/drop"), "{wider}");
    assert!(wider.contains("reader: files/write"), "{wider}");
    let cells = between(&html, "<table class=\"cases compared\">", "</table>")[0];
    for (tool, cell) in [
        ("files/read", "<td class=\"loses\" title=\"allow before\"><b>−</b>"),
        ("files/write", "<td class=\"gains\" title=\"deny before\"><b>+</b>"),
        ("files/drop", "<td class=\"gains\" title=\"deny before\"><b>+</b>"),
    ] {
        let row = between(cells, &format!("<code>{tool}</code>"), "</tr>")[0];
        assert!(row.contains(cell), "{tool}: {row}");
    }
    assert!(html.contains("<b>2</b> cells gain, <b>1</b> loses."), "{html}");
    let tests = part(&html, "tests");
    assert!(tests.contains("failed") && tests.contains("files/read"), "{tests}");
    assert!(tests.contains("never") && tests.contains("files/drop"), "{tests}");
    assert!(!tests.contains("files/write"), "{tests}");
    let past = part(&html, "past");
    assert!(past.contains("3 of 4 calls and 0 of 0 listings would change"), "{past}");
    assert!(past.contains("files/drop") && past.contains("files/read"), "{past}");
    // The form keeps the text, and nothing else has changed.
    assert!(html.contains("    allow: { servers: ['*'], tools: { files: [write] } }\n"), "{html}");
    assert_eq!(site.gate.records().len(), records);
    assert_eq!(site.command(&["status"])[0]["policy"]["version"], version);
    assert_eq!(std::fs::read_to_string(site.gate.file("layer.yaml")).unwrap(), LAYER);

    // The same policy changes nothing, also as a configuration that names the active policy file.
    let main = std::fs::read_to_string(site.gate.file("toolward.yaml")).unwrap();
    for same in [LAYER, &main] {
        let html = preview(&site, same);
        assert!(part(&html, "widens").contains("allows nothing that the active"), "{html}");
        assert!(html.contains("No cell changes for the 3 known tools"), "{html}");
        assert!(part(&html, "past").contains("0 of 4 calls"), "{html}");
    }
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let site = Site::of(ready());
    let html = preview(&site, "agents:\n  reader:\n    alow: {}\n");
    assert!(html.contains("The candidate is not valid") && html.contains(":3:5"), "{html}");
    assert!(html.contains("did you mean `allow`?"), "{html}");
    assert!(preview(&site, " \n").contains("Paste a policy"));
    // It is text, wherever it is shown.
    let form = format!("text={}", encoded("</textarea><script>alert(1)</script>: {}"));
    let reply = site.post(&format!("{}preview", site.path), &form);
    assert!(!String::from_utf8(reply.body).unwrap().contains("<script>alert"));
    // A form is at most 256 KiB, and comes from the admin UI itself.
    let form = format!("text={}", "a".repeat(300 << 10));
    assert_eq!(site.post(&format!("{}preview", site.path), &form).status, 413);
    let headers = [("Cookie", &*site.cookie), ("Origin", "http://127.0.0.1:1")];
    let reply = site.raw(&format!("POST {}preview HTTP/1.1", site.path), &headers, "text=a");
    assert_eq!(reply.status, 403, "{reply:?}");
    let reply = site.raw(&format!("POST {}preview HTTP/1.1", site.path), &[], "text=a");
    assert_eq!(reply.status, 403, "{reply:?}");
}

#[test]
fn a_candidate_cannot_read_files_variables_or_the_network() {
    let secret = "s3cr3t-of-the-gateway";
    let site = Site::of(ready().env("SECRET_VARIABLE", secret));
    site.table();
    let file = site.gate.file("secret.yaml");
    // If it were read as a policy, the error would repeat its keys.
    std::fs::write(&file, format!("{secret}: {{}}\n")).unwrap();
    let pipe = site.gate.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let marker = site.gate.file("marker");
    let (file, pipe, marker) = (file.display(), pipe.display(), marker.display());
    let missing = site.gate.file("missing.yaml");
    let main = site.gate.file("toolward.yaml");
    let agents = "agents: { reader: { tokens: ['${SECRET_VARIABLE}', '${file:FILE}'], allow: { servers: ['*'] } } }";
    let agents = agents.replace("FILE", &file.to_string());
    let attacks = [
        format!(
            "servers: {{ files: {{ command: touch, args: [{marker}], env: {{ A: '${{file:{file}}}', B: '${{SECRET_VARIABLE}}' }} }} }}\n{agents}"
        ),
        format!(
            "servers: {{ files: {{ url: '{url}${{SECRET_VARIABLE}}', headers: {{ A: '${{file:{pipe}}}' }} }} }}\n{agents}"
        ),
        format!("identity: {{ jwt: {{ issuer: '{url}', jwks: '{url}', audience: a }} }}\n{agents}"),
        format!(
            "identity: {{ jwt: {{ issuer: '{url}', jwks: '{file}', audience: a }} }}\n{agents}"
        ),
        format!("hooks: [{{ exec: [touch, {marker}] }}]\n{agents}"),
        format!("hooks: [{{ policy_sh: {file} }}]\n{agents}"),
        format!("hooks: [{{ http: '{url}' }}]\n{agents}"),
        format!("servers: {{ files: {{ command: 'true', env_file: {file} }} }}\n{agents}"),
        format!("policies: [{file}]\n{agents}"),
        format!("policies: [{pipe}]\n{agents}"),
        format!("policies: [{}]\n{agents}", main.display()),
        format!("servers_from: [{file}]\n{agents}"),
        format!("servers_from: [{pipe}]\n{agents}"),
        format!("#!/bin/sh\ntouch {marker}\n"),
    ];
    for attack in &attacks {
        let html = preview(&site, attack);
        assert!(!html.contains(secret), "{attack}: {html}");
        assert!(html.contains("id=\"result\""), "{attack}: {html}");
    }
    // Existing and missing files are not distinguished.
    let about = |path: &str| {
        let html = preview(&site, &format!("policies: [{path}]\n{agents}"));
        part(&html, "refused\" role=\"alert").replace(path, "PATH")
    };
    let message = about(&file.to_string());
    assert!(message.contains("a preview reads only the active policy files"), "{message}");
    assert_eq!(message, about(&missing.display().to_string()));
    assert_eq!(message, about(&pipe.to_string()));
    assert!(listener.accept().is_err(), "something connected");
    assert!(!site.gate.file("marker").exists(), "a program was started");
}
