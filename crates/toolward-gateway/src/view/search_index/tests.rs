//! Ranking, over an invented list that resembles those of real servers.

use serde_json::{Value, json};

use super::parts::MAX_SUMMARY_CHARS;
use super::*;

fn tool(name: &str, description: &str, parameters: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        parameters.iter().map(|name| (name.to_string(), json!({"type": "string"}))).collect();
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    })
}

fn world() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        (
            "drive",
            vec![
                tool("read_document", "Reads a document as text.", &["path", "encoding"]),
                tool(
                    "write_document",
                    "Writes text to a document, or creates it again.",
                    &["path", "text"],
                ),
                tool("deleteDocument", "Moves a document to the bin.", &["path"]),
                tool("list_folder", "Documents and folders in a folder.", &["path", "depth"]),
                tool("share_link", "A link by which others open a document.", &["path", "expires"]),
            ],
        ),
        (
            "desk",
            vec![
                tool(
                    "open_ticket",
                    "Opens a support ticket for a customer.",
                    &["customer", "text"],
                ),
                tool("close_ticket", "Closes a ticket.", &["number"]),
                tool("add_comment", "Writes a comment on a ticket.", &["number", "text"]),
                tool("find_customers", "Customers whose name or address fits.", &["query"]),
                tool("customer_history", "All tickets of a customer.", &["customer"]),
            ],
        ),
        (
            "eye",
            vec![
                tool(
                    "takeScreenshot",
                    "A picture of the page as it is shown.",
                    &["width", "height"],
                ),
                tool("visit", "Goes to a page.", &["url"]),
                tool("fill_form", "Types values into the fields of a form.", &["fields"]),
                tool("heapsnapshot", "What the page keeps in memory.", &[]),
            ],
        ),
    ]
}

fn index(world: &[(&str, Vec<Value>)]) -> Index {
    Index::new(world.iter().enumerate().flat_map(|(server, (name, tools))| {
        tools.iter().enumerate().map(move |(tool, definition)| ToolDocument {
            at: (server, tool),
            server: name,
            definition,
        })
    }))
}

fn ask(question: &str) -> Vec<String> {
    let world = world();
    let found = index(&world).search(question);
    found.iter().map(|one| world[one.at.0].1[one.at.1]["name"].as_str().unwrap().into()).collect()
}

#[test]
fn the_first_answer_is_the_one_that_a_person_expects() {
    for (question, expected) in [
        ("read document", "read_document"),
        ("delete a document", "deleteDocument"),
        ("remove file document", "deleteDocument"),
        ("screenshot", "takeScreenshot"),
        ("take a screen shot", "takeScreenshot"),
        ("tickets of one customer", "customer_history"),
        ("list the directory", "list_folder"),
        ("comment on ticket", "add_comment"),
        ("create a support ticket", "open_ticket"),
        ("search for customers", "find_customers"),
        ("go to url", "visit"),
        ("fill in a form", "fill_form"),
        ("heap snapshot", "heapsnapshot"),
        ("link that expires", "share_link"),
        ("close_ticket", "close_ticket"),
        ("closeTicket", "close_ticket"),
        // One typo.
        ("screnshot", "takeScreenshot"),
        ("delete docment", "deleteDocument"),
        ("custmoer history", "customer_history"),
        ("clsoe ticket", "close_ticket"),
    ] {
        assert_eq!(ask(question).first().map(String::as_str), Some(expected), "{question}");
    }
}

#[test]
fn unrelated_words_find_nothing() {
    for question in ["", "   ", "?!", "zzzzzz", "the of and", "\u{0}\u{1}"] {
        assert_eq!(ask(question), Vec::<String>::new(), "{question:?}");
    }
    let empty = index(&[]);
    assert_eq!(empty.search("anything"), []);
}

#[test]
fn the_same_question_has_the_same_answer_and_the_order_of_the_list_breaks_ties() {
    let same =
        vec![("s", vec![tool("one_x", "", &[]), tool("two_x", "", &[]), tool("six_x", "", &[])])];
    let first = index(&same).search("x");
    assert_eq!(first.iter().map(|one| one.at).collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2)]);
    for _ in 0..20 {
        assert_eq!(index(&same).search("x"), first);
        assert_eq!(
            index(&world()).search("customer text"),
            index(&world()).search("customer text")
        );
    }
}

#[test]
fn a_result_has_a_reason_and_there_are_at_most_ten() {
    let world = world();
    let found = index(&world).search("screnshot of a page");
    assert!(found[0].why.contains("`screnshot` (read as `screenshot`) in its name"), "{found:?}");
    assert!(found[0].why.contains("`page` in its description"), "{found:?}");
    let found = index(&world).search("directory");
    assert_eq!(found[0].why, "`directory` (read as `folder`) in its name");
    let many = (0..40).map(|n| tool(&format!("get_thing_{n}"), "", &[])).collect();
    assert_eq!(index(&[("s", many)]).search("get thing").len(), MAX_RESULTS);
}

#[test]
fn long_words_and_deep_schemas_cost_little() {
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"properties": {"inner": deep}});
    }
    let long = "word ".repeat(200_000);
    let huge = json!({"name": "x", "description": long, "inputSchema": deep});
    let index = index(&[("s", vec![huge])]);
    assert_eq!(index.search("x").len(), 1);
    assert!(index.search(&"y".repeat(100_000)).is_empty());
    assert!(index.terms.len() < 10);
}

#[test]
fn a_summary_is_the_beginning_with_an_ellipsis() {
    assert_eq!(summary("Reads\n a  file."), "Reads a file.");
    let long = summary(&"many words ".repeat(100));
    assert!(long.ends_with(" …") && long.chars().count() <= MAX_SUMMARY_CHARS + 2, "{long}");
    assert_eq!(summary(""), "");
}

/// Real tool lists, which are not part of this repository.
const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
/// Queries that people would make.
const QUESTIONS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../toolward/tests/data/search-questions.jsonl");

#[test]
#[allow(clippy::print_stderr)]
fn real_lists_are_searched_as_a_person_expects() {
    let Ok(directory) = std::fs::read_dir(LISTS) else {
        eprintln!("skipped: there are no real tool lists beside this repository");
        return;
    };
    let mut files: Vec<_> = directory.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let lists: Vec<Value> = files
        .iter()
        .map(|file| serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect();
    let world: Vec<(&str, Vec<Value>)> = lists
        .iter()
        .map(|list| (list["server"].as_str().unwrap(), list["tools"].as_array().unwrap().clone()))
        .collect();
    let index = index(&world);
    let (mut asked, mut missed) = (0, Vec::new());
    for line in std::fs::read_to_string(QUESTIONS).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let found = index.search(case["question"].as_str().unwrap());
        let name = |one: &SearchResult| {
            let (server, tools) = &world[one.at.0];
            format!("{server}/{}", tools[one.at.1]["name"].as_str().unwrap())
        };
        let first: Vec<String> = found.iter().take(3).map(name).collect();
        let expected = case["expect"].as_array().unwrap();
        asked += 1;
        if !first.iter().any(|name| expected.iter().any(|one| one == name)) {
            missed.push(format!("{}: {first:?}", case["question"]));
        }
    }
    let hits = asked - missed.len();
    assert!(asked >= 30 && hits * 10 >= asked * 9, "{hits} of {asked}:\n{}", missed.join("\n"));
}
