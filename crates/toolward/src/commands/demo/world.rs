//! The sample project: its issues and files, in memory, and the effect of each tool.

use serde_json::{Map, Value, json};

/// The tools of a part of the project, or all.
pub(super) fn tools(part: Option<&str>) -> Vec<Value> {
    let Value::Object(parts) = read(include_str!("tools.json")) else { return Vec::new() };
    let wanted = parts.into_iter().filter(|(name, _)| part.is_none_or(|part| part == name));
    wanted.flat_map(|(_, tools)| into_list(tools)).collect()
}

/// The initial state of the project.
pub(super) struct World {
    issues: Vec<Value>,
    files: Map<String, Value>,
}

/// The result of a call: structured if the tool has an output schema, otherwise text.
pub(super) type Outcome = Result<Value, String>;

impl World {
    pub(super) fn new() -> World {
        let mut begun = read(include_str!("world.json"));
        let files = begun["files"].as_object().cloned().unwrap_or_default();
        World { issues: into_list(begun["issues"].take()), files }
    }

    /// Executes a tool. The arguments have been validated against its schema.
    pub(super) fn call(&mut self, tool: &str, given: &Map<String, Value>) -> Outcome {
        let text = |key: &str| given.get(key).and_then(Value::as_str);
        let number = given.get("number").and_then(Value::as_u64);
        match tool {
            "search_issues" => Ok(self.search(text("query"), text("state"), text("assignee"))),
            "get_issue" => Ok(self.issue(number)?.clone()),
            "create_issue" => {
                let next = self.issues.iter().filter_map(|issue| issue["number"].as_u64()).max();
                let number = next.unwrap_or_default() + 1;
                self.issues.push(json!({
                    "number": number, "title": text("title"), "state": "open", "author": "you",
                    "assignee": "nobody", "column": "todo",
                    "labels": given.get("labels").cloned().unwrap_or(json!([])),
                    "text": text("text").unwrap_or_default(), "comments": [],
                }));
                Ok(json!(format!("Opened #{number}: {}", text("title").unwrap_or_default())))
            }
            "add_comment" => {
                let comment = json!({"author": "you", "text": text("text")});
                let issue = self.issue(number)?;
                let title = issue["title"].clone();
                let comments = issue["comments"].as_array_mut();
                let count = comments.map_or(0, |comments| {
                    comments.push(comment);
                    comments.len()
                });
                Ok(json!(format!("Added comment {count} to {title}.")))
            }
            "close_issue" => {
                let issue = self.issue(number)?;
                let already = issue["state"] == "closed";
                issue["state"] = json!("closed");
                issue["column"] = json!("done");
                let word = if already { "was already closed" } else { "is closed" };
                Ok(json!(format!("#{} {word}.", issue["number"])))
            }
            "delete_issue" => {
                let gone = self.issue(number)?["number"].clone();
                self.issues.retain(|issue| issue["number"] != gone);
                Ok(json!(format!("Deleted #{gone} and its comments.")))
            }
            "board" => self.board(text("action"), number, text("column")),
            "send_digest" => {
                let open = self.issues.iter().filter(|issue| issue["state"] == "open").count();
                Err(format!(
                    "The digest of {open} open issues was not sent to {}: mail.heron.example does not \
                     respond. Nothing was changed; retrying will not help until it responds.",
                    text("to").unwrap_or_default()
                ))
            }
            "list_files" => Ok(json!(self.list(text("folder").unwrap_or_default()))),
            "fs_get_v2" => {
                let path = text("path").unwrap_or_default();
                self.files.get(path).cloned().ok_or_else(|| self.no_file(path))
            }
            "write_file" => {
                let path = text("path").unwrap_or_default();
                let content = text("content").unwrap_or_default();
                let fresh = self.files.insert(path.into(), json!(content)).is_none();
                let word = if fresh { "Wrote" } else { "Replaced" };
                Ok(json!(format!("{word} {path} ({} bytes).", content.len())))
            }
            _ => Err(format!("{tool} is not a tool of this server")),
        }
    }

    /// The weekly report. Its caller adds the delay.
    pub(super) fn report(&self) -> String {
        let mut report = String::from("# This week at Heron\n");
        for (state, headline) in [("open", "Open"), ("closed", "Done")] {
            report.push_str(&format!("\n## {headline}\n"));
            let of_it = self.issues.iter().filter(|issue| issue["state"] == state);
            for issue in of_it {
                let [title, who] =
                    ["title", "assignee"].map(|key| issue[key].as_str().unwrap_or(""));
                report.push_str(&format!("- #{} {title} ({who})\n", issue["number"]));
            }
        }
        report
    }

    fn issue(&mut self, number: Option<u64>) -> Result<&mut Value, String> {
        let numbers = self.issues.iter().map(|issue| format!("#{}", issue["number"]));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let found = self.issues.iter_mut().find(|issue| issue["number"].as_u64() == number);
        found.ok_or_else(|| {
            format!("There is no issue #{}. There are {numbers}.", number.unwrap_or_default())
        })
    }

    fn search(&self, query: Option<&str>, state: Option<&str>, who: Option<&str>) -> Value {
        let query = query.unwrap_or_default().to_lowercase();
        let state = state.unwrap_or("open");
        let wanted = |issue: &&Value| {
            let text = format!("{} {}", issue["title"], issue["text"]).to_lowercase();
            query.split_whitespace().all(|word| text.contains(word))
                && (state == "any" || issue["state"] == state)
                && who.is_none_or(|who| issue["assignee"] == who)
        };
        let found: Vec<Value> = self
            .issues
            .iter()
            .filter(wanted)
            .map(|issue| {
                json!({
                    "number": issue["number"], "title": issue["title"], "state": issue["state"],
                    "assignee": issue["assignee"],
                })
            })
            .collect();
        json!({"total": found.len(), "issues": found})
    }

    fn board(&mut self, action: Option<&str>, number: Option<u64>, to: Option<&str>) -> Outcome {
        match action {
            Some("move") => {
                let (Some(number), Some(to)) = (number, to) else {
                    let example = json!({"action": "move", "number": 17, "column": "doing"});
                    return Err(format!(
                        "To move an issue, give its number and a column: {example}"
                    ));
                };
                let issue = self.issue(Some(number))?;
                issue["column"] = json!(to);
                Ok(json!(format!("#{number} is under {to} now.")))
            }
            Some("clear") => {
                let before = self.issues.len();
                self.issues.retain(|issue| issue["column"] != "done");
                Ok(json!(format!("Removed {} from the board.", before - self.issues.len())))
            }
            _ => {
                let columns = ["todo", "doing", "done"].map(|column| {
                    let here = self.issues.iter().filter(|issue| issue["column"] == column);
                    let here = here.map(|issue| {
                        format!("#{} {}", issue["number"], issue["title"].as_str().unwrap_or(""))
                    });
                    format!("{column}: {}", here.collect::<Vec<_>>().join("; "))
                });
                Ok(json!(columns.join("\n")))
            }
        }
    }

    fn list(&self, folder: &str) -> String {
        let below = self.files.iter().filter(|(path, _)| path.starts_with(folder));
        let lines = below.map(|(path, content)| {
            format!("{:>6}  {path}", content.as_str().map(str::len).unwrap_or_default())
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            format!("There are no files below {folder}")
        } else {
            lines.join("\n")
        }
    }

    fn no_file(&self, path: &str) -> String {
        let all: Vec<&str> = self.files.keys().map(String::as_str).collect();
        format!("There is no file {path}. There are {}.", all.join(", "))
    }
}

/// Parses embedded JSON, which a test validates.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn into_list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_are_a_dozen_tools_and_a_project() {
        assert_eq!(tools(None).len(), 12);
        assert_eq!((tools(Some("tracker")).len(), tools(Some("files")).len()), (9, 3));
        let world = World::new();
        assert_eq!((world.issues.len(), world.files.len()), (4, 4));
    }

    #[test]
    fn every_tool_has_an_effect_or_an_error() {
        let mut world = World::new();
        let mut call = |tool: &str, given: Value| world.call(tool, given.as_object().unwrap());
        assert_eq!(call("search_issues", json!({"query": "LOGIN cookie"})).unwrap()["total"], 1);
        assert_eq!(call("search_issues", json!({"state": "any"})).unwrap()["total"], 4);
        assert_eq!(call("search_issues", json!({"assignee": "mira"})).unwrap()["total"], 1);
        assert_eq!(call("create_issue", json!({"title": "New"})).unwrap(), "Opened #22: New");
        call("add_comment", json!({"number": 22, "text": "me too"})).unwrap();
        assert_eq!(
            call("get_issue", json!({"number": 22})).unwrap()["comments"][0]["text"],
            "me too"
        );
        assert_eq!(call("close_issue", json!({"number": 22})).unwrap(), "#22 is closed.");
        assert_eq!(call("close_issue", json!({"number": 22})).unwrap(), "#22 was already closed.");
        call("board", json!({"action": "move", "number": 12, "column": "done"})).unwrap();
        let board = call("board", json!({"action": "show"})).unwrap();
        assert!(board.as_str().unwrap().contains("done: #12 Export"), "{board}");
        assert!(call("board", json!({"action": "move"})).unwrap_err().contains("\"number\":17"));
        assert_eq!(call("board", json!({"action": "clear"})).unwrap(), "Removed 3 from the board.");
        call("delete_issue", json!({"number": 17})).unwrap();
        let missing = "There is no issue #17. There are #21.";
        assert_eq!(call("get_issue", json!({"number": 17})).unwrap_err(), missing);
        assert!(call("send_digest", json!({"to": "a@b"})).is_err());
        call("write_file", json!({"path": "drafts/a.md", "content": "a"})).unwrap();
        assert_eq!(call("fs_get_v2", json!({"path": "drafts/a.md"})).unwrap(), "a");
        assert!(call("fs_get_v2", json!({"path": "no"})).unwrap_err().contains("README.md"));
        let listed = call("list_files", json!({"folder": "drafts/"})).unwrap();
        assert_eq!(listed.as_str().unwrap().lines().count(), 2, "{listed}");
    }
}
