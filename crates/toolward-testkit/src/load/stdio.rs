//! Load over the pipes of a child process, with one request in flight.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::check::Checker;
use super::request::{Request, handshake};
use super::{Clock, Era, Plan, Report, Tally, Until};
use crate::json::member;

const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the command and runs the plan. The child has exited when this returns.
pub fn run_stdio(command: &mut Command, tool: &str, plan: &Plan) -> io::Result<Report> {
    let mut child = ServerProcess::start(command)?;
    if plan.era == Era::Legacy {
        let [initialize, initialized] = handshake();
        child.send(format!("{initialize}\n").as_bytes())?;
        child.answer(b"0")?;
        child.send(format!("{initialized}\n").as_bytes())?;
    }
    let mut request = Request::line(tool, plan.kind, plan.era);
    let mut checker = Checker::new(plan.kind);
    let mut tally = Tally::default();
    // The first request may start things up, so it is not measured.
    child.send(request.bytes())?;
    child.answer(request.digits())?;
    let clock = Clock::start(plan.until);
    let mut begun = Instant::now();
    for number in 1.. {
        let enough = matches!(plan.until, Until::Requests(count) if number > count);
        if enough || clock.end.is_some_and(|end| begun >= end) {
            break;
        }
        tally.sent += 1;
        child.send(request.number(number))?;
        let right = checker.check(child.answer(request.digits())?, request.digits());
        let now = Instant::now();
        match right {
            Ok(()) if begun >= clock.warm => tally.times.record(now - begun),
            Ok(()) => {}
            Err(why) => tally.wrong(why),
        }
        begun = now;
    }
    Ok(tally.report(&clock))
}

struct ServerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl ServerProcess {
    fn start(command: &mut Command) -> io::Result<ServerProcess> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.ok_or(ErrorKind::BrokenPipe)?;
        let stdout = BufReader::with_capacity(64 << 10, stdout);
        Ok(ServerProcess { child, stdin, stdout, line: Vec::new() })
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.stdin.as_mut().ok_or(ErrorKind::BrokenPipe)?.write_all(line)
    }

    /// The next response. Notifications and requests from the server are skipped.
    fn answer(&mut self, digits: &[u8]) -> io::Result<&[u8]> {
        loop {
            self.line.clear();
            if self.stdout.read_until(b'\n', &mut self.line)? == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server exited"));
            }
            // Only one request is in flight, so a response with another id is returned as an error.
            let id = member(&self.line, "id");
            if id == Some(digits) || (id.is_some() && member(&self.line, "method").is_none()) {
                return Ok(&self.line);
            }
        }
    }
}

/// Closes stdin, which makes the server exit, and kills the process if it has not exited in time.
impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
