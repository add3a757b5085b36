//! Searching real lists through the whole program. They are other people's words and not part of this
//! repository: where they are not beside it, this says so and stops.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
const QUESTIONS: &str = include_str!("../data/search-questions.jsonl");

#[test]
fn nine_of_ten_questions_find_in_three_what_a_person_expects() {
    let Ok(folder) = std::fs::read_dir(LISTS) else {
        eprintln!("skipped: there are no real tool lists beside this repository");
        return;
    };
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut setup = setup().set("builtin", json!(true)).set("list_timeout", json!("30s"));
    let mut tools = 0;
    for file in &files {
        let list: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        tools += list["tools"].as_array().unwrap().len();
        setup = setup.stdio(list["server"].as_str().unwrap(), "both", list["tools"].clone());
    }
    let gate = setup
        .agents(json!({"a": {"discovery": "progressive", "allow": {"servers": ["*"]}}}))
        .start();
    let a = gate.agent("a");
    let servers = said(&own(&a, "list_servers", json!({})));
    let counts =
        servers["servers"].as_array().unwrap().iter().map(|one| one["tools"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>() as usize, tools, "{servers}");
    let (mut asked, mut missed) = (0, Vec::new());
    for line in QUESTIONS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let hits = said(&own(&a, "search_tools", json!({"query": case["question"]})));
        assert!(hits["tools"].as_array().unwrap().len() <= 10);
        let first: Vec<String> = found(&hits).into_iter().take(3).collect();
        asked += 1;
        if !first
            .iter()
            .any(|name| case["expect"].as_array().unwrap().iter().any(|one| one == name))
        {
            missed.push(format!("{}: {first:?}", case["question"]));
        }
    }
    let hits = asked - missed.len();
    assert!(asked >= 30 && hits * 10 >= asked * 9, "{hits} of {asked}:\n{}", missed.join("\n"));
    // What was found can be called as it was shown.
    let hits = said(&own(&a, "search_tools", json!({"query": "read_text_file"})));
    let first = &hits["tools"][0];
    let (server, name) = (first["server"].as_str().unwrap(), first["name"].as_str().unwrap());
    assert_eq!(text(&execute(&a, server, name, json!({}))), "did read_text_file");
}
