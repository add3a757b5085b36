//! A gateway on standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use serde_json::Value;

use super::*;
use crate::audit_log::witness;

/// `toolward stdio` and the client that talks to it.
pub struct Lines {
    pub child: Child,
    pub(super) answers: BufReader<std::process::ChildStdout>,
    pub setup: Setup,
}

impl Lines {
    pub fn send(&mut self, line: &str) {
        // A program that has exited does not read; a test that waits for a response then fails.
        let _ = writeln!(self.child.stdin.as_mut().unwrap(), "{line}");
    }

    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        witness::received(&message);
        message
    }

    pub fn ask(&mut self, message: &Value) -> Value {
        self.send(&message.to_string());
        loop {
            let answer = self.next();
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    }

    pub fn ready(mut self) -> Lines {
        let hello = self.ask(&initialize(LEGACY));
        assert!(hello["result"].is_object(), "{hello}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self
    }

    /// Closes standard input; returns the exit code and the last output.
    pub fn close(&mut self) -> (i32, String) {
        self.child.stdin = None;
        let child = &mut self.child;
        let status = eventually("the program ends", || child.try_wait().unwrap());
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).unwrap();
        (status.code().unwrap_or(-1), rest)
    }

    pub fn log(&self, server: &str) -> String {
        std::fs::read_to_string(self.setup.path(&format!("{server}.log"))).unwrap_or_default()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return;
        }
        witness::end(&mut self.child);
        let said = std::fs::read_to_string(self.setup.path("stderr")).unwrap_or_default();
        self.setup.asked(&said);
    }
}
