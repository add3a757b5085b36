//! Sources of layers, and their order.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::PathBuf;

use toolward_config::config::{Connect, Discovery, Metrics, Naming, Timeout, Token};
use toolward_config::{
    Format, Inline, Level, LoadFailure, LoadedConfig, Loader, Options, PolicyFile, PolicyFlag,
    load_inline,
};
use toolward_policy::source::{Case, Place, RulesSource};

type Texts = HashMap<PathBuf, String>;
type Vars = HashMap<String, String>;

fn files(list: &[(&str, &str)]) -> Texts {
    list.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
}

fn policy(path: &str) -> PolicyFile {
    PolicyFile { path: path.into(), flag: PolicyFlag::Policy, format: None }
}

fn load(
    list: &[(&str, &str)],
    env: &[(&str, &str)],
    options: &Options,
) -> Result<LoadedConfig, LoadFailure> {
    let env: Vars = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Loader { files: files(list), env }.load(options)
}

fn main_file(text: &str) -> Result<LoadedConfig, LoadFailure> {
    load(
        &[("toolward.yaml", text)],
        &[],
        &Options { main: Some("toolward.yaml".into()), ..Options::default() },
    )
}

fn layer_file(name: &str, text: &str) -> Result<LoadedConfig, LoadFailure> {
    load(&[(name, text)], &[], &Options { policies: vec![policy(name)], ..Options::default() })
}

/// Each layer as `name:kind`.
fn order(loaded: &LoadedConfig) -> Vec<String> {
    let kind = |rules: &RulesSource| match rules {
        RulesSource::Agents(_) => "agents",
        RulesSource::Allowlist(_) => "allowlist",
        RulesSource::ReadOnly => "read-only",
    };
    loaded
        .source
        .layers
        .iter()
        .map(|layer| format!("{}:{}", layer.name, kind(&layer.rules)))
        .collect()
}

fn messages(failed: &LoadFailure) -> String {
    failed.diagnostics.iter().map(|found| found.to_line()).collect::<Vec<_>>().join("\n")
}

const RULES: &str = "agents: {dev: {allow: {servers: ['*']}}}\nallowed_tools: [a]\n";

#[test]
fn layers_come_in_the_order_of_the_contract() {
    let main = format!("{RULES}policies: [one.yaml, two.toml]\nread_only: true\n");
    let list = [
        ("conf/toolward.yaml", main.as_str()),
        ("conf/one.yaml", RULES),
        ("conf/two.toml", "tools = ['x']"),
        ("p.json", r#"{"agents": {}}"#),
        ("allow.yaml", "allowed_tools: [b]"),
        ("q.yaml", "allowed_tools: []"),
    ];
    let allowlist =
        PolicyFile { path: "allow.yaml".into(), flag: PolicyFlag::AllowlistConfig, format: None };
    let options = Options {
        main: Some("conf/toolward.yaml".into()),
        policies: vec![policy("p.json"), allowlist, policy("q.yaml")],
        read_only: true,
        ..Options::default()
    };
    let env = [("TOOLWARD_ALLOWED_TOOLS", "a,b c_*"), ("TOOLWARD_READ_ONLY", "1")];
    let loaded = load(&list, &env, &options).unwrap();
    assert_eq!(
        order(&loaded),
        [
            "conf/toolward.yaml:agents",
            "conf/toolward.yaml:allowlist",
            "conf/one.yaml:agents",
            "conf/one.yaml:allowlist",
            "conf/two.toml:allowlist",
            "p.json:agents",
            "allow.yaml:allowlist",
            "q.yaml:allowlist",
            "TOOLWARD_ALLOWED_TOOLS:allowlist",
            "--read-only:read-only",
        ]
    );
    assert_eq!(loaded.files.len(), 6);
}

#[test]
fn the_main_files_agents_are_a_layer_once_one_has_rules() {
    let identities = "agents: {dev: {tokens: ['${T}']}, ops: {}}\n";
    assert!(order(&main_file(identities).unwrap()).is_empty());
    let with_rules = "agents: {dev: {tokens: ['${T}']}, ops: {deny: {}}}\n";
    assert_eq!(order(&main_file(with_rules).unwrap()), ["toolward.yaml:agents"]);
    // A file with only an empty `agents` is an agents layer all the same, without any agent.
    for text in ["{}", "agents: {}", "defaults: {deny_on_missing_agent: true}"] {
        assert_eq!(order(&main_file(text).unwrap()), ["toolward.yaml:agents"], "{text}");
    }
}

#[test]
fn a_layer_file_without_agents_denies_unless_configured() {
    for text in ["{}", "defaults: {deny_on_missing_agent: false}", "agents: {}"] {
        let loaded = layer_file("p.yaml", text).unwrap();
        let RulesSource::Agents(agents) = &loaded.source.layers[0].rules else { panic!("{text}") };
        assert!(agents.agents.is_empty());
        assert_eq!(agents.deny_on_missing_agent, !text.contains("false"));
    }
    let both = layer_file("p.yaml", "defaults: {}\nallowed_tools: []").unwrap();
    assert_eq!(order(&both), ["p.yaml:allowlist"]);
    assert!(layer_file("p.yaml", "tests: []").is_err());
    assert!(layer_file("p.yaml", "defaults: {}\ntests: []").is_err());
}

#[test]
fn entries_carry_their_places() {
    let text = "agents:\n  dev:\n    allow:\n      servers: [a, \"é*\", b]\n      tools:\n        \"*\":\n          - x\n          - tool: y\n            when: args.a == 1\n";
    let loaded = layer_file("p.yaml", text).unwrap();
    let RulesSource::Agents(agents) = &loaded.source.layers[0].rules else { panic!() };
    let allow = &agents.agents[0].1.allow;
    let place = |line, column| Place { line, column };
    assert_eq!(allow.servers[2].selector, "b");
    assert_eq!(allow.servers[2].place, place(4, 26));
    let entries = &allow.tools[0].entries;
    assert_eq!((entries[0].place, entries[1].place), (place(7, 13), place(8, 13)));
    assert_eq!(entries[1].when.as_deref(), Some("args.a == 1"));
    assert_eq!(entries[1].selector, "y");

    let finding = loaded.diagnostic_in(Level::Error, "p.yaml", entries[1].place, "when", "bad");
    assert_eq!(finding.place(), Some(place(9, 19)));
    assert!(finding.render(false).contains("^^^^^^^^^^^"), "{}", finding.render(false));
    let finding = loaded.diagnostic_at(Level::Warning, "p.yaml", allow.servers[1].place, "odd");
    assert!(finding.render(false).contains("^^^^"), "{}", finding.render(false));
    assert_eq!(loaded.diagnostic_at(Level::Error, "other", place(1, 1), "x").place(), None);
}

#[test]
fn case_matters_where_the_contract_requires_it() {
    let list = |text: &str, name: &str| {
        let loaded = layer_file(name, text).unwrap();
        let RulesSource::Allowlist(list) = &loaded.source.layers[0].rules else { panic!() };
        (list.case, list.path.clone())
    };
    assert_eq!(list("allowed_tools: [A]", "p.yaml").0, Case::Insensitive);
    assert_eq!(list("allowed_tools: [A]\ncase: sensitive", "p.yaml").0, Case::Sensitive);
    assert_eq!(list("allowed_tools: [A]\ncase: insensitive", "p.yaml").0, Case::Insensitive);
    assert_eq!(list("tools = ['A']", "p.toml"), (Case::Sensitive, "tools".into()));
    assert_eq!(list("[chat]\ntools = ['A']", "p.toml"), (Case::Sensitive, "chat.tools".into()));
    let loaded = layer_file("p.yaml", "agents: {a: {case: insensitive}, b: {}}").unwrap();
    let RulesSource::Agents(agents) = &loaded.source.layers[0].rules else { panic!() };
    assert_eq!(agents.agents[0].1.case, Case::Insensitive);
    assert_eq!(agents.agents[1].1.case, Case::Sensitive);
}

#[test]
fn agents_layers_take_any_string_and_keep_order() {
    let text = r#"{"agents": {"a": {"allow": {"servers": ["", "!x"], "tools": {"": ["", "!y", " z "]}}, "deny": {"prompts": {"s": ["p"]}, "resources": {"s": ["r"]}}}}}"#;
    let loaded = layer_file("p.json", text).unwrap();
    let RulesSource::Agents(agents) = &loaded.source.layers[0].rules else { panic!() };
    let (name, agent) = &agents.agents[0];
    assert_eq!(name, "a");
    let selectors: Vec<_> =
        agent.allow.tools[0].entries.iter().map(|e| e.selector.as_str()).collect();
    assert_eq!(selectors, ["", "!y", " z "]);
    assert_eq!(agent.deny.prompts[0].entries[0].selector, "p");
    assert_eq!(agent.deny.resources[0].key, "s");
    assert!(agent.client_requests.is_none());
}

#[test]
fn the_environment_gives_layers_or_fails() {
    let with = |name: &str, value: &str| load(&[], &[(name, value)], &Options::default());
    let loaded = with("TOOLWARD_ALLOWED_TOOLS", " a,b  c_*, ").unwrap();
    let RulesSource::Allowlist(list) = &loaded.source.layers[0].rules else { panic!() };
    let words: Vec<_> = list.tools.iter().map(|entry| entry.selector.as_str()).collect();
    assert_eq!((words, list.case), (vec!["a", "b", "c_*"], Case::Sensitive));
    assert!(order(&with("TOOLWARD_ALLOWED_TOOLS", "").unwrap()).is_empty());
    assert!(order(&with("TOOLWARD_ALLOWED_TOOLS", "  ").unwrap()).is_empty());
    assert!(with("TOOLWARD_ALLOWED_TOOLS", ",").is_err());
    assert!(with("TOOLWARD_ALLOWED_TOOLS", "a !b").is_err());
    for on in ["1", "true", "yes", "on"] {
        assert_eq!(
            order(&with("TOOLWARD_READ_ONLY", on).unwrap()),
            ["TOOLWARD_READ_ONLY:read-only"]
        );
    }
    for off in ["0", "false", "no", "off", ""] {
        assert!(order(&with("TOOLWARD_READ_ONLY", off).unwrap()).is_empty());
    }
    for bad in ["2", "TRUE", " 1", "y"] {
        assert!(with("TOOLWARD_READ_ONLY", bad).is_err(), "{bad}");
    }
    let off = load(
        &[("t.yaml", "read_only: true")],
        &[("TOOLWARD_READ_ONLY", "0")],
        &Options { main: Some("t.yaml".into()), ..Options::default() },
    );
    assert_eq!(order(&off.unwrap()), ["read_only:read-only"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_fails_the_start() {
    use std::os::unix::ffi::OsStringExt;
    let value = std::ffi::OsString::from_vec(vec![b'a', 0xff]);
    let env = HashMap::from([("TOOLWARD_ALLOWED_TOOLS".to_owned(), value)]);
    assert!(Loader { files: Texts::new(), env }.load(&Options::default()).is_err());
}

#[test]
fn the_main_file_is_found_in_the_known_places() {
    let list = [
        ("toolward.yaml", "naming: flat"),
        ("/home/a/.config/toolward/toolward.yaml", "separator: x"),
        ("other.yaml", "separator: y"),
    ];
    let options = Options { search: true, ..Options::default() };
    let home = ("HOME", "/home/a");
    let named = [home, ("TOOLWARD_CONFIG", "other.yaml")];
    assert_eq!(load(&list, &named, &options).unwrap().config.separator, "y");
    assert_eq!(load(&list, &[home], &options).unwrap().config.naming, Naming::Flat);
    assert_eq!(load(&list[1..], &[home], &options).unwrap().config.separator, "x");
    let none = load(&[], &[home], &options).unwrap();
    assert_eq!(none.config.separator, "__");
    assert_eq!(none.files.len(), 2, "places where a file may appear are watched");
    let flag = Options { main: Some("other.yaml".into()), ..options };
    assert_eq!(load(&list, &[home], &flag).unwrap().config.separator, "y");
}

#[test]
fn an_empty_file_is_an_error_but_for_an_allowlist_at_start() {
    let given = |text: &str, name: &str, flag, format, reload| {
        let file = PolicyFile { path: name.into(), flag, format };
        load(&[(name, text)], &[], &Options { policies: vec![file], reload, ..Options::default() })
    };
    for text in ["", "\n\n", "# nothing\n", "---\n", "\u{feff}"] {
        for (flag, format) in
            [(PolicyFlag::AllowlistConfig, None), (PolicyFlag::Policy, Some(Format::Allowlist))]
        {
            let loaded = given(text, "a.yaml", flag, format, false).unwrap();
            assert!(loaded.source.layers.is_empty() && loaded.warnings.len() == 1, "{text:?}");
            assert!(given(text, "a.yaml", flag, format, true).is_err());
        }
        assert!(given(text, "a.yaml", PolicyFlag::Policy, None, false).is_err());
        assert!(given(text, "a.yaml", PolicyFlag::Policy, Some(Format::Agents), false).is_err());
        assert!(main_file(text).is_err());
        assert!(load_inline(Inline::Text(text)).is_err());
    }
    assert!(
        given("# x", "a.toml", PolicyFlag::AllowlistConfig, None, false)
            .unwrap()
            .source
            .layers
            .is_empty()
    );
    assert!(given("{}", "a.yaml", PolicyFlag::AllowlistConfig, None, false).is_err());
}

#[test]
fn a_whole_configuration_is_resolved() {
    let text = r#"
listen: ["127.0.0.1:1", "unix:run/s"]
admin: off
builtin: true
state: ~/state
tls: { cert: c.pem, key: /k.pem }
trusted_proxies: [10.0.0.0/8]
limits_of: { request_bytes: 1 KiB, streams: 7 }
servers:
  files:
    command: ./bin/files
    args: [a]
    env: { LOG: info, TOKEN: "${T}" }
    cwd: work
    timeout: { "slow_*": 2min }
    result_bytes: { "slow_*": 2 MiB }
    expose: [ { tool: internal, display_name: shown, display_description: d }, "list_*" ]
    hints: { "get_*": [read-only] }
    trust_annotations: false
    action_keys: { "x_*": [mode] }
  web:
    url: https://a.example/mcp
    headers: { Authorization: "Bearer ${T}" }
    transport: sse
    timeout: 5s
    result_bytes: 1000
    action_keys: [verb]
agents:
  dev:
    tokens: ["sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "${T}"]
    claims: { sub: dev, level: 3 }
    uid: 1000
    discovery: progressive
identity: { jwt: { issuer: "https://id.example", jwks: keys.json, audience: a, leeway: 0s } }
audit: { dir: log, durability: disk, retain: 30d, sinks: [] }
telemetry: { metrics: on, log_level: debug }
"#;
    let list = [("conf/t.yaml", text)];
    let env = [("HOME", "/home/a"), ("T", "s3cret-of-16-characters")];
    let options = Options { main: Some("conf/t.yaml".into()), ..Options::default() };
    let loaded =
        load(&list, &env, &options).unwrap_or_else(|failed| panic!("{}", messages(&failed)));
    let mut config = loaded.config.clone();
    assert_eq!(config.admin, None);
    assert_eq!(config.state, Some("/home/a/state".into()));
    assert_eq!(config.audit.dir, PathBuf::from("conf/log"));
    // Keys that are not supported in this version accept their default.
    assert!(config.audit.sinks.is_empty() && config.telemetry.metrics == Metrics::Admin);
    assert_eq!(config.limits_of.request_bytes, 1024);
    assert_eq!(config.limits_of.response_bytes, 64 << 20);
    let Connect::Stdio { command, env: vars, cwd, .. } = &config.servers[0].connect else {
        panic!()
    };
    assert_eq!((command.as_str(), cwd.clone()), ("conf/./bin/files", Some("conf/work".into())));
    assert_eq!(vars[0].1.value(), Some("info"));
    assert_eq!(vars[1].1.value(), None, "references wait for their own step");
    assert_eq!(config.servers[0].timeout.by_tool[0].1.as_secs(), 120);
    assert_eq!(
        config.servers[1].timeout,
        Timeout { otherwise: Some(std::time::Duration::from_secs(5)), ..Timeout::default() }
    );
    assert_eq!(config.servers[0].result_bytes.by_tool, [("slow_*".into(), 2 << 20)]);
    assert_eq!(config.servers[1].result_bytes.otherwise, Some(1000));
    assert_eq!(config.agents[0].discovery, Discovery::Progressive);
    let own = loaded.source.servers.iter().find(|server| server.name == "toolward").unwrap();
    assert_eq!(own.hints[0].0, "execute_tool");
    assert_eq!(config.agents[0].tokens[0], Token::Sha256([15; 32]));
    assert_eq!(config.agents[0].claims[1].1, serde_json::json!(3));
    assert!(config.authenticates() && !config.listens_beyond_loopback());

    let vars: Vars = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    assert!(config.resolve_secrets(&vars, &files(&[])).is_empty());
    let Connect::Http { headers, .. } = &config.servers[1].connect else { panic!() };
    assert_eq!(headers[0].1.value(), Some("Bearer s3cret-of-16-characters"));
    assert!(!format!("{config:?}").contains("s3cret-of-16-characters"), "secrets are never shown");

    let server = &loaded.source.servers[0];
    assert!(!server.trust_annotations && server.hints[0].0 == "get_*");
    let expose = server.expose.as_ref().unwrap();
    assert_eq!(expose.entries[0].display_name.as_deref(), Some("shown"));
    assert!(!expose.literal);
    assert_eq!(loaded.exposure_file("files"), Some("conf/t.yaml"));
    assert_eq!(loaded.exposure_file("web"), None);
    assert!(loaded.source.layers.is_empty());
}

#[test]
fn secrets_come_from_variables_and_files() {
    let text = "agents: {a: {tokens: ['${file:a.token}']}, b: {tokens: ['${B}']}}";
    let config = main_file(text).unwrap().config;
    assert_eq!(config.secret_files(), [PathBuf::from("a.token")]);
    let resolve = |token: &str, b: Option<&str>| {
        let env: Vars = b.into_iter().map(|b| ("B".to_owned(), b.to_owned())).collect();
        let mut config = config.clone();
        let found = config.resolve_secrets(&env, &files(&[("a.token", token)]));
        let value = match &config.agents[0].tokens[0] {
            Token::Reference(secret) => secret.value().map(str::to_owned),
            Token::Sha256(_) => None,
        };
        (found.len(), value)
    };
    let (x, y) = ("x".repeat(16), "y".repeat(16));
    let y = Some(y.as_str());
    assert_eq!(resolve(&format!("{x}\n"), y), (0, Some(x.clone())));
    assert_eq!(resolve(&format!("{x}\r\n"), y), (0, Some(x.clone())));
    assert_eq!(resolve(&x, None), (1, Some(x.clone())));
    assert_eq!(resolve("\n", Some("")), (2, None));
    assert_eq!(resolve(&format!("{x}\nb\n"), y).0, 1, "a token is one line");
    assert_eq!(resolve(&x, Some(&"y".repeat(15))).0, 1, "a short token could be guessed");
}

#[test]
fn inline_policies_take_every_format() {
    let kinds = |text: &str| {
        order(&load_inline(Inline::Text(text)).unwrap_or_else(|f| panic!("{}", messages(&f))))
    };
    assert_eq!(kinds(RULES), ["policy:agents", "policy:allowlist"]);
    assert_eq!(kinds("{\"allowed_tools\": []}"), ["policy:allowlist"]);
    assert_eq!(kinds("[chat]\ntools = [\"shell\"]\n"), ["policy:allowlist"]);
    assert_eq!(kinds("{}"), ["policy:agents"]);
    assert_eq!(kinds("read_only: true\nservers: {a: {expose: [x]}}"), ["read_only:read-only"]);
    assert!(
        kinds("plugins: {middleware: {a: [{handler: tool_manager, config: {tools: []}}]}}")
            .is_empty()
    );
    assert!(load_inline(Inline::Text("#!/bin/sh\n")).is_err());
    let tokens = "agents: {a: {tokens: ['${T}'], allow: {}}}";
    assert!(load_inline(Inline::Text(tokens)).is_err(), "identities need a whole configuration");
    assert!(load_inline(Inline::Text(&format!("{tokens}\nservers: {{}}"))).is_ok());
}

#[test]
fn an_inline_object_keeps_places_of_the_request() {
    let line = r#"{"policy": {"servers": {"s": {"action_keys": ["verb"]}}, "allowed_tools": ["a", {"tool": "b", "when": "true"}]}}"#;
    let text = toolward_config::text::Text::new("request", line);
    let request = toolward_config::json::parse(text.content()).unwrap();
    let loaded = load_inline(Inline::Node(request.get("policy").unwrap(), &text)).unwrap();
    let RulesSource::Allowlist(list) = &loaded.source.layers[0].rules else { panic!() };
    let at = line.find("{\"tool\"").unwrap() as u32 + 1;
    assert_eq!(list.tools[1].place, Place { line: 1, column: at });
    let finding = loaded.diagnostic_in(Level::Error, "request", list.tools[1].place, "when", "bad");
    assert_eq!(finding.place().unwrap().column, line.find("\"true\"").unwrap() as u32 + 1);
    let string = toolward_config::json::parse("3").unwrap();
    assert!(load_inline(Inline::Node(&string, &text)).is_err());
}

#[test]
fn a_policy_file_may_be_a_whole_configuration_where_that_is_asked_for() {
    let list = [
        ("t.yaml", "servers: {s: {expose: [a]}}\nallowed_tools: [a]"),
        ("u.yaml", "servers: {s: {hints: {}}}"),
    ];
    let options = |whole, names: &[&str]| Options {
        policies: names.iter().map(|name| policy(name)).collect(),
        whole_configurations: whole,
        ..Options::default()
    };
    assert!(load(&list, &[], &options(false, &["t.yaml"])).is_err());
    let loaded = load(&list, &[], &options(true, &["t.yaml"])).unwrap();
    assert_eq!(loaded.source.servers[0].name, "s");
    assert!(load(&list, &[], &options(true, &["t.yaml", "u.yaml"])).is_err());
}

#[test]
fn tests_are_collected_from_all_files() {
    let text = "allowed_tools: ['*']\ntests:\n  - as: dev\n    allow: [a/b/c, 'files/read {\"path\": \"/x y\"}']\n    hidden: [a/z]\n  - deny: [a/d]\n";
    let loaded = layer_file("p.yaml", text).unwrap();
    assert_eq!(loaded.tests.len(), 2);
    let first = &loaded.tests[0];
    assert_eq!(first.agent.as_deref(), Some("dev"));
    assert_eq!((first.cases[0].server.as_str(), first.cases[0].name.as_str()), ("a", "b/c"));
    let arguments = first.cases[1].arguments.as_ref().unwrap();
    assert_eq!(&arguments.members, serde_json::json!({"path": "/x y"}).as_object().unwrap());
    assert_eq!(loaded.tests[1].agent, None);
}

#[test]
fn numbers_of_tests_keep_their_digits() {
    let text = "allowed_tools: ['*']\ntests:\n  - deny: ['s/pay {\"a\": 100.00000000000000001, \"b\": {\"c\": [1.50, 2e2]}}']\n";
    let loaded = layer_file("p.yaml", text).unwrap();
    let arguments = loaded.tests[0].cases[0].arguments.as_ref().unwrap();
    let seen = |path: &[&str]| {
        let path: Vec<Box<str>> = path.iter().map(|key| (*key).into()).collect();
        let mut seen = Vec::new();
        toolward_policy::Arguments::numbers(arguments, &path, &mut |number| {
            seen.push(number.to_string());
        });
        seen
    };
    assert_eq!(seen(&["a"]), ["100.00000000000000001"]);
    assert_eq!(seen(&["b"]), ["1.50", "2e2"]);
    assert_eq!(seen(&["b", "c"]), ["1.50", "2e2"]);
    assert_eq!(seen(&[]).len(), 3);
    assert!(seen(&["c"]).is_empty() && seen(&["b", "c", "d"]).is_empty());
}

#[test]
fn findings_come_as_json_too() {
    let failed = main_file("lisen: 1\n").unwrap_err();
    assert_eq!(
        failed.diagnostics[0].to_json(),
        serde_json::json!({
            "level": "error", "message": "unknown key `lisen`", "file": "toolward.yaml",
            "line": 1, "column": 1, "help": "did you mean `listen`?",
        })
    );
}

#[test]
fn wording_of_refusals_comes_from_files_agents_and_entries() {
    let main = "explain_to_agent: false\nmessage: main\npolicies: [one.yaml]\nagents:\n  dev:\n    \
                uid: 1\n    message: of dev\n    explain_to_agent: true\n  ann: {uid: 2}\n";
    let one = "message: of the file\nagents:\n  dev:\n    message: later\n    allow:\n      servers: \
               ['*']\n      tools: {s: [{tool: t, when: 'args.a == 1', message: of the entry}]}\n";
    let options = Options { main: Some("toolward.yaml".into()), ..Options::default() };
    let loaded = load(&[("toolward.yaml", main), ("one.yaml", one)], &[], &options).unwrap();
    // An agent that is only an identity has a message too.
    assert_eq!(order(&loaded), ["one.yaml:agents"]);
    let everyone = &loaded.source.refusals.everyone;
    assert_eq!(
        (everyone.explain_to_agent, everyone.message.as_deref()),
        (Some(false), Some("main"))
    );
    let agents: Vec<_> = loaded
        .source
        .refusals
        .agents
        .iter()
        .map(|(name, of)| (&**name, of.message.as_deref()))
        .collect();
    assert_eq!(agents, [("dev", Some("of dev")), ("dev", Some("later"))]);
    let RulesSource::Agents(rules) = &loaded.source.layers[0].rules else { panic!() };
    let entry = &rules.agents[0].1.allow.tools[0].entries[0];
    assert_eq!(entry.message.as_deref(), Some("of the entry"));

    // Without a message in the main file, the first policy file's message is used.
    let loaded = layer_file("one.yaml", one).unwrap();
    assert_eq!(loaded.source.refusals.everyone.message.as_deref(), Some("of the file"));
}

#[test]
fn a_message_never_makes_a_file_mean_something_else() {
    // A file without agents denies, with or without a message.
    for text in ["defaults: {deny_on_missing_agent: true}\n", "agents: {}\n"] {
        let with = format!("{text}message: ask Ann\n");
        assert_eq!(order(&main_file(text).unwrap()), ["toolward.yaml:agents"]);
        assert_eq!(order(&main_file(&with).unwrap()), ["toolward.yaml:agents"]);
        assert_eq!(order(&layer_file("a.yaml", &with).unwrap()), ["a.yaml:agents"]);
    }
    // A message alone is not a policy.
    let failed = layer_file("a.yaml", "message: ask Ann\n").unwrap_err();
    assert!(messages(&failed).contains("the file contains no policy"), "{}", messages(&failed));
}
