//! Loading of rate limits and hooks.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use toolward_config::config::{HookKind, LimitStore, OnStoreError};
use toolward_config::{LoadedConfig, Loader, Options, PolicyFile, PolicyFlag};

const MAIN: &str = r#"
servers:
  files: { command: f, limits: { calls: 1000/day, tools: { "write_*": 5/min } } }
limits:
  store: "redis://:${PASSWORD}@127.0.0.1:6379/3"
  on_store_error: memory
  timeout: 20ms
  connect_timeout: 3s
  calls: 100/min
  lists: 10/s
  tools: { "files/delete_*": 2/h, "*/hint:destructive": 1/min }
agents:
  dev: { limits: { calls: 5/s burst 10, refused: 1/s } }
  ops: {}
hooks:
  - { name: hours, exec: [./hooks/hours, now], persistent: true, env: { A: "${PASSWORD}" },
      pass_env: [GIT_*], priority: 3, critical: false, timeout: 100ms, arguments: true,
      agents: [dev], servers: [files], tools: ["hint:destructive"] }
  - { name: shell, policy_sh: policy.sh, enabled: false }
  - { name: opa, http: "http://127.0.0.1:8181/v1/data/x" }
policies: [team.yaml, hook.sh]
"#;

fn load() -> LoadedConfig {
    let team = "agents: { dev: { allow: { servers: ['*'] }, limits: { calls: 7/min } } }\n\
                allowed_tools: [{ tool: 'a', limit: 3/min }]\n";
    let files: HashMap<PathBuf, String> = [
        ("conf/toolward.yaml", MAIN),
        ("conf/team.yaml", team),
        ("conf/hook.sh", "mcp_tools_policy_check() { return 0; }\n"),
        ("tool", "#!/bin/sh\nexit 0\n"),
    ]
    .map(|(path, text)| (path.into(), text.into()))
    .into();
    let env: HashMap<String, String> = [("PASSWORD".into(), "s3cret".into())].into();
    let script = PolicyFile { path: "tool".into(), flag: PolicyFlag::Policy, format: None };
    let options = Options {
        main: Some("conf/toolward.yaml".into()),
        policies: vec![script],
        ..Options::default()
    };
    let mut loaded = Loader { files: &files, env: &env }.load(&options).unwrap();
    assert!(loaded.config.resolve_secrets(&env, &files).is_empty());
    loaded
}

#[test]
fn limits_are_read_from_every_place_that_allows_them() {
    let LoadedConfig { config, source, .. } = load();
    let limits = &config.limits;
    let LimitStore::Redis(url) = &limits.store else { panic!("{limits:?}") };
    assert_eq!(url.value(), Some("redis://:s3cret@127.0.0.1:6379/3"));
    assert!(!format!("{config:?}").contains("s3cret"));
    assert_eq!(limits.on_store_error, OnStoreError::Memory);
    assert_eq!(limits.timeout, Some(Duration::from_millis(20)));
    assert_eq!(limits.connect_timeout, Some(Duration::from_secs(3)));
    let rate = |rate: &Option<toolward_policy::Rate>| rate.map(|rate| rate.to_string());
    assert_eq!(rate(&limits.rates.calls).as_deref(), Some("100/min"));
    assert_eq!(rate(&limits.rates.lists).as_deref(), Some("10/s"));
    let tools: Vec<&str> = limits.rates.tools.iter().map(|(pattern, _)| &**pattern).collect();
    assert_eq!(tools, ["files/delete_*", "*/hint:destructive"]);
    let server = &config.servers[0].limits;
    assert_eq!(rate(&server.calls).as_deref(), Some("1000/day"));
    assert_eq!(server.tools[0].0, "write_*");

    // Each file with limits for agents, in order; also the agents without limits.
    let files: Vec<&str> = config.agent_limits.iter().map(|one| &*one.file).collect();
    assert_eq!(files, ["conf/toolward.yaml", "conf/team.yaml"]);
    let own = &config.agent_limits[0].agents;
    assert_eq!(rate(&own[0].1.calls).as_deref(), Some("5/s burst 10"));
    assert_eq!(rate(&own[0].1.refused).as_deref(), Some("1/s"));
    assert!(own[1].0 == "ops" && own[1].1.is_empty());
    let policy = toolward_policy::Policy::compile(source).unwrap();
    let entries = policy.limits();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].1.to_string(), "3/min");
}

#[test]
fn hooks_are_read_with_their_defaults_and_programs_among_policies_are_hooks() {
    let hooks = load().config.hooks;
    let names: Vec<&str> = hooks.iter().map(|hook| &*hook.name).collect();
    assert_eq!(names, ["hours", "shell", "opa", "conf/hook.sh", "tool"]);
    let hours = &hooks[0];
    let HookKind::Exec { program, args, persistent: true } = &hours.kind else { panic!() };
    assert_eq!((&**program, args.join(" ")), ("conf/./hooks/hours", "now".into()));
    assert_eq!((hours.priority, hours.critical, hours.arguments), (3, false, true));
    assert_eq!(hours.timeout, Duration::from_millis(100));
    assert_eq!(hours.env[0].1.value(), Some("s3cret"));
    assert_eq!(hours.pass_env, ["GIT_*"]);
    assert_eq!(hours.tools.as_deref(), Some(&["hint:destructive".to_string()][..]));
    let HookKind::PolicySh(path) = &hooks[1].kind else { panic!() };
    assert_eq!((path, hooks[1].enabled), (&PathBuf::from("conf/policy.sh"), false));
    let opa = &hooks[2];
    assert!(matches!(opa.kind, HookKind::Http(_)) && opa.critical && opa.enabled);
    assert_eq!((opa.priority, opa.timeout), (50, Duration::from_secs(2)));
    assert!(opa.agents.is_none() && opa.servers.is_none() && opa.tools.is_none());
    assert!(matches!(&hooks[3].kind, HookKind::PolicySh(path) if path.ends_with("hook.sh")));
    assert!(matches!(&hooks[4].kind, HookKind::Exec { program, .. } if program == "./tool"));
}
