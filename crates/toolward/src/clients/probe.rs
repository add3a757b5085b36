//! Starts the programs of entries as their clients do, and asks them for their tools.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::launch::Launch;

/// The name by which the audit log distinguishes these connections from those of clients.
pub(crate) const CLIENT_NAME: &str = "toolward-doctor";

/// Servers that are started at the same time.
const MAX_PARALLEL: usize = 8;
/// The most that is read from one server.
const MAX_BYTES: u64 = 64 << 20;
const MAX_PAGES: usize = 100;
/// The end of standard error that is kept for the reason.
const MAX_STDERR: usize = 4096;
/// How long a program may take to end after its input was closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The tools of a server, or why it did not list them.
pub(crate) type Listing = Result<Vec<Value>, NotListed>;

/// Why a server did not list its tools.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotListed {
    /// It is a gateway, and a person has to log in to this server of it first.
    NeedsLogin(String),
    Failed(String),
}

/// Starts all programs, a few at a time, and returns their tools in the same order. `progress` gets the number of
/// programs that are done.
pub(crate) fn all(
    launches: &[Launch],
    timeout: Duration,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Listing> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..launches.len()).collect());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..MAX_PARALLEL.min(launches.len()) {
            scope.spawn(|| {
                let next = || waiting.lock().ok()?.pop_front();
                while let Some(at) = next() {
                    let listing = match launches.get(at) {
                        Some(launch) => tools(launch, timeout),
                        None => continue,
                    };
                    if let Ok(mut done) = done.lock() {
                        done.push((at, listing));
                        progress(done.len());
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, listing)| listing).collect()
}

/// Starts one program, and asks it for its tools.
pub(crate) fn tools(launch: &Launch, timeout: Duration) -> Listing {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).envs(launch.env.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &launch.directory {
        command.current_dir(directory);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |why: String| Err(NotListed::Failed(why));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("{}: {error}", launch.program)),
    };
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return failed("it has no standard input or output".into());
    };
    let (send, messages) = mpsc::sync_channel(16);
    thread::spawn(move || {
        let mut lines = BufReader::new(stdout.take(MAX_BYTES)).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            if let Ok(message) = serde_json::from_slice::<Value>(&line)
                && send.send(message).is_err()
            {
                return;
            }
        }
    });
    let errors = thread::spawn(move || tail(stderr));
    let mut session =
        Session { stdin, messages, deadline: Instant::now() + timeout, timeout, id: 0 };
    let listing = session.list();
    let Session { stdin, messages, .. } = session;
    drop(stdin);
    end(&mut child, &messages);
    match listing {
        Err(Failed::Ended) => {
            let said = errors.join().unwrap_or_default();
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            failed(last.map_or("it ended without an answer".into(), |last| last.trim().into()))
        }
        Err(Failed::Because(why)) => failed(why),
        Err(Failed::NeedsLogin(server)) => Err(NotListed::NeedsLogin(server)),
        Ok(tools) => Ok(tools),
    }
}

/// Waits for the end of a program whose input is closed, or ends it.
fn end(child: &mut Child, messages: &Receiver<Value>) {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match messages.recv_timeout(left) {
            Ok(_) => {}
            // Its output is closed, so it is about to end.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                break;
            }
        }
    }
    let _ = child.wait();
}

/// The end of a program's standard error.
fn tail(stderr: impl Read) -> String {
    let mut kept = Vec::new();
    let mut lines = BufReader::new(stderr.take(MAX_BYTES)).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        kept.extend_from_slice(&line);
        kept.push(b'\n');
        let surplus = kept.len().saturating_sub(MAX_STDERR);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

enum Failed {
    /// The program ended, or closed its output.
    Ended,
    Because(String),
    NeedsLogin(String),
}

/// A legacy session, which every gateway supports.
struct Session {
    stdin: ChildStdin,
    messages: Receiver<Value>,
    deadline: Instant,
    timeout: Duration,
    id: u64,
}

impl Session {
    fn list(&mut self) -> Result<Vec<Value>, Failed> {
        let client = json!({"name": CLIENT_NAME, "version": env!("CARGO_PKG_VERSION")});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        self.ask("initialize", params)?;
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        let (mut tools, mut params) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let mut result = self.ask("tools/list", params)?;
            let states = result["_meta"]["io.toolward/servers"].as_object();
            let missing = |(_, state): &(&String, &Value)| **state == "needs_login";
            if let Some((server, _)) = states.into_iter().flatten().find(missing) {
                return Err(Failed::NeedsLogin(server.clone()));
            }
            if let Some(page) = result["tools"].as_array_mut() {
                tools.append(page);
            }
            match result["nextCursor"].take() {
                Value::Null => return Ok(tools),
                cursor => params = json!({"cursor": cursor}),
            }
        }
        Err(Failed::Because(format!("its list has more than {MAX_PAGES} pages")))
    }

    fn write(&mut self, message: &Value) -> Result<(), Failed> {
        writeln!(self.stdin, "{message}").map_err(|_| Failed::Ended)
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Failed> {
        self.id += 1;
        let id = self.id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let mut message = self.messages.recv_timeout(left).map_err(|why| match why {
                RecvTimeoutError::Disconnected => Failed::Ended,
                RecvTimeoutError::Timeout => {
                    let seconds = self.timeout.as_secs();
                    Failed::Because(format!("no answer to {method} within {seconds} s"))
                }
            })?;
            if message["id"] != id {
                continue;
            }
            if let Some(error) = message.get("error") {
                let why = error["message"].as_str().unwrap_or("an error without a message");
                return Err(Failed::Because(why.into()));
            }
            return Ok(message["result"].take());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        let args = vec!["-c".into(), script.into()];
        Launch { program: "/bin/sh".into(), args, env: Vec::new(), directory: None }
    }

    const LONG: Duration = Duration::from_secs(60);
    /// Answers `initialize`, and reads the notification behind it.
    const BEGIN: &str = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{}}'; read b; "#;

    #[test]
    fn all_pages_of_a_list_are_read() {
        let pages = r#"read c; echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}'
            echo not json; echo '{"jsonrpc":"2.0","method":"notifications/message"}'
            read d; echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"b"}]}}'"#;
        let tools = tools(&shell(&format!("{BEGIN}{pages}")), LONG).unwrap();
        assert_eq!(tools, [json!({"name": "a"}), json!({"name": "b"})]);
    }

    #[test]
    fn the_reason_of_a_failure_is_the_error_or_the_last_line_of_standard_error() {
        let error =
            r#"read c; echo '{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no key"}}'"#;
        let of = |script: String| match tools(&shell(&script), LONG) {
            Err(NotListed::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(format!("{BEGIN}{error}")), "no key");
        assert_eq!(of("echo one >&2; echo two >&2; echo >&2; exit 3".into()), "two");
        assert_eq!(of("exit 0".into()), "it ended without an answer");
        let missing = Launch { program: "/nowhere/x".into(), ..shell("") };
        let why = tools(&missing, LONG).unwrap_err();
        assert!(matches!(why, NotListed::Failed(why) if why.starts_with("/nowhere/x: ")));
    }

    #[test]
    fn a_program_that_does_not_answer_is_ended() {
        let why = tools(&shell("cat >/dev/null; true"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(why, NotListed::Failed("no answer to initialize within 0 s".into()));
        let launches: Vec<Launch> = (0..20).map(|_| shell("exit 0")).collect();
        let last = Mutex::new(0);
        let found = all(&launches, LONG, &|done| *last.lock().unwrap() = done);
        assert_eq!((found.len(), *last.lock().unwrap()), (20, 20));
    }
}
