//! A client on standard input and output that returns responses as bytes.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub struct LineClient {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl LineClient {
    pub fn start(command: &[String]) -> LineClient {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        LineClient { child, stdin, lines }
    }

    pub fn notify(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    /// Sends a request and returns the line of its response; other messages are skipped.
    pub fn ask(&mut self, message: &Value) -> String {
        self.notify(message);
        let answers =
            |line: &String| serde_json::from_str::<Value>(line).unwrap()["id"] == message["id"];
        self.lines.by_ref().map(Result::unwrap).find(answers).unwrap()
    }
}

impl Drop for LineClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
