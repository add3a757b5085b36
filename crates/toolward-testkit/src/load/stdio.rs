//! The load over a child's pipes: one request under way.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::answer::Checker;
use super::request::{Request, hello};
use super::{Clock, Era, Plan, Report, Tally, Until};
use crate::json::member;

/// Starts the command and asks as the plan says; the child has ended when this returns.
pub fn run_stdio(command: &mut Command, tool: &str, plan: &Plan) -> io::Result<Report> {
    let mut child = Server::start(command)?;
    if plan.era == Era::Legacy {
        let [initialize, initialized] = hello();
        child.send(format!("{initialize}\n").as_bytes())?;
        child.answer(b"0")?;
        child.send(format!("{initialized}\n").as_bytes())?;
    }
    let mut request = Request::line(tool, plan.kind, plan.era);
    let mut checker = Checker::new(plan.kind);
    let mut tally = Tally::default();
    // What the first request starts is not measured.
    child.send(request.bytes())?;
    child.answer(request.digits())?;
    let clock = Clock::start(plan.until);
    let mut begun = Instant::now();
    for number in 1.. {
        let enough = matches!(plan.until, Until::Requests(count) if number > count);
        if enough || clock.end.is_some_and(|end| begun >= end) {
            break;
        }
        tally.asked += 1;
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

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Server {
    fn start(command: &mut Command) -> io::Result<Server> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.ok_or(ErrorKind::BrokenPipe)?;
        let stdout = BufReader::with_capacity(64 << 10, stdout);
        Ok(Server { child, stdin, stdout, line: Vec::new() })
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.stdin.as_mut().ok_or(ErrorKind::BrokenPipe)?.write_all(line)
    }

    /// The next answer; what the server says of its own accord is passed over.
    fn answer(&mut self, digits: &[u8]) -> io::Result<&[u8]> {
        loop {
            self.line.clear();
            if self.stdout.read_until(b'\n', &mut self.line)? == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has ended"));
            }
            // Nothing is under way but the one request, so that any other answer is a wrong one.
            let id = member(&self.line, "id");
            if id == Some(digits) || (id.is_some() && member(&self.line, "method").is_none()) {
                return Ok(&self.line);
            }
        }
    }
}

/// The end of its input ends a server; one that does not heed it is ended after a while.
impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let patience = Instant::now() + Duration::from_secs(2);
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > patience {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
