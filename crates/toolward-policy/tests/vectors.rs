//! The shared case files, through the library's public interface.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Request, cases, policy, source};
use serde_json::{Value, json};
use toolward_policy::exposure::Exposure;
use toolward_policy::fnmatch::fnmatch;
use toolward_policy::source::{
    AllowlistSource, Case, Entry, ExposeEntry, ExposeSource, RulesSource,
};
use toolward_policy::{Annotations, Policy, ToolSet};

fn check(case: &Value, policy: &Policy, want: &Value) -> Option<String> {
    let got = Request::new(case).decide(policy);
    let step_differs = want["step"].as_str().is_some_and(|step| step != got.step.as_str());
    let differs = want["verdict"] != got.verdict.as_str() || step_differs;
    differs.then(|| format!("{} gave {} {}, wanted {want}", case["id"], got.verdict, got.step))
}

fn assert_none(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn contract_examples_are_decided_as_wanted() {
    let cases = cases("contract-examples");
    let failures =
        cases.iter().filter_map(|case| check(case, &policy(&case["policy"]), &case["want"]));
    assert_none(failures.collect());
}

#[test]
fn agent_rules_are_decided_as_recorded() {
    let failures = cases("agents")
        .into_iter()
        .filter_map(|case| check(&case, &policy(&case["policy"]), &case));
    assert_none(failures.collect());
}

#[test]
fn allowlists_are_decided_as_recorded() {
    let failures = cases("allowlist")
        .into_iter()
        .filter_map(|case| check(&case, &policy(&case["policy"]), &case));
    assert_none(failures.collect());
}

#[test]
fn hint_selectors_are_decided_as_recorded() {
    let failures = cases("hint-selectors").into_iter().filter_map(|case| {
        let list = case["toml"].as_str().unwrap();
        let list = list.split_once('=').unwrap().1.trim();
        let list: Value = serde_json::from_str(list).unwrap();
        let mut source = source(&json!({"allowed_tools": []}));
        source.layers[0].rules = RulesSource::Allowlist(AllowlistSource {
            path: "tools".into(),
            case: Case::Sensitive,
            tools: list
                .as_array()
                .unwrap()
                .iter()
                .map(|e| Entry::new(e.as_str().unwrap()))
                .collect(),
            prompts: None,
            resources: None,
        });
        check(&case, &Policy::compile(source).unwrap(), &case)
    });
    assert_none(failures.collect());
}

#[test]
fn annotations_give_the_hints_of_the_table() {
    for case in cases("annotation-hints") {
        let hints = Annotations::of(case.get("annotations")).hints();
        let hints: Vec<&str> = hints.iter().collect();
        assert_eq!(json!(hints), case["hints"], "{case}");
    }
}

#[test]
fn fnmatch_agrees_with_cpython() {
    for case in cases("fnmatch") {
        let (pattern, name) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        assert_eq!(json!(fnmatch(pattern, name)), case[2], "{case}");
    }
}

/// A tool manager's configuration as an exposure, if its structure is valid.
fn exposure(config: &Value) -> Option<Exposure> {
    const KEYS: [&str; 4] = ["enabled", "priority", "critical", "tools"];
    const ENTRY_KEYS: [&str; 3] = ["tool", "display_name", "display_description"];
    if !config.as_object()?.keys().all(|key| KEYS.contains(&key.as_str())) {
        return None;
    }
    let priority_fits =
        config.get("priority").is_none_or(|p| p.as_i64().is_some_and(|p| (0..=100).contains(&p)));
    let flags_fit =
        ["enabled", "critical"].iter().all(|key| config.get(key).is_none_or(Value::is_boolean));
    if !priority_fits || !flags_fit {
        return None;
    }
    let mut entries = Vec::new();
    for entry in config.get("tools")?.as_array()? {
        if !entry.as_object()?.keys().all(|key| ENTRY_KEYS.contains(&key.as_str())) {
            return None;
        }
        let optional = |key: &str| match entry.get(key) {
            None => Some(None),
            Some(value) => value.as_str().map(|text| Some(text.to_string())),
        };
        entries.push(ExposeEntry {
            name: entry.get("tool")?.as_str()?.into(),
            display_name: optional("display_name")?,
            display_description: optional("display_description")?,
            ..ExposeEntry::default()
        });
    }
    Exposure::new(&ExposeSource { entries, literal: true }).ok()
}

#[test]
fn exposures_hide_rename_and_describe_as_recorded() {
    for case in cases("exposure") {
        let exposure = exposure(&case["config"]);
        match case["kind"].as_str().unwrap() {
            "config" => assert_eq!(json!(exposure.is_some()), case["accepted"], "{case}"),
            "call" => {
                let exposure = exposure.unwrap();
                let name = case["params"]["name"].as_str().unwrap();
                let original = exposure.original(name);
                assert_eq!(
                    json!(original.is_some()),
                    json!(case["outcome"] == "forwarded"),
                    "{case}"
                );
                if let Some(params) = case.get("upstream_params") {
                    assert_eq!(original, params["name"].as_str(), "{case}");
                }
            }
            _ => {
                let exposure = exposure.unwrap();
                let Some(list) = case["upstream_result"]["tools"].as_array() else {
                    continue;
                };
                let (tools, _) = ToolSet::read(list);
                let shown: Vec<Value> = tools
                    .tools()
                    .iter()
                    .filter_map(|tool| {
                        let shown = exposure.show(tool.name())?;
                        let mut definition: Value =
                            serde_json::from_str(tool.definition()).unwrap();
                        definition["name"] = json!(shown.name);
                        if let Some(description) = shown.description {
                            definition["description"] = json!(description);
                        }
                        Some(definition)
                    })
                    .collect();
                assert_eq!(json!(shown), case["result"]["tools"], "{case}");
            }
        }
    }
}
