//! Search in tool lists of real servers, through the whole program. The lists are not part of this
//! repository, because others wrote them; if the directory is not there, this test reports that it was
//! skipped.

use serde_json::{Value, json};

use super::harness::*;
use super::real_lists::real_lists;
use super::support::*;

const QUESTIONS: &str = include_str!("../data/search-questions.jsonl");

#[test]
fn nine_of_ten_questions_find_in_three_what_a_person_expects() {
    let Some(lists) = real_lists() else { return };
    let mut setup = setup().set("builtin", json!(true)).set("list_timeout", json!("30s"));
    let mut tools = 0;
    for (_, list) in &lists {
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
    // A search result can be called as it was shown.
    let hits = said(&own(&a, "search_tools", json!({"query": "read_text_file"})));
    let first = &hits["tools"][0];
    let (server, name) = (first["server"].as_str().unwrap(), first["name"].as_str().unwrap());
    assert_eq!(text(&execute(&a, server, name, json!({}))), "did read_text_file");
}
