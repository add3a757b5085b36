//! `cargo xtask torture`: kills, reloads and restarts a gateway under load. No call, record or stream
//! may be lost.

mod client;
mod kill;
mod record;
mod reload;
mod restart;
mod soak;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const USAGE: &str = "cargo xtask torture kill|reload|restart|soak [--times N | --minutes N] [--rate CALLS] [--toolward FILE]";

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

/// The longest graceful shutdown, with streams that are still open.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// The size of a run.
struct Plan {
    /// The number of repetitions; for `soak`, the number of minutes.
    times: usize,
    /// Calls per second, of all clients together.
    rate: u32,
    toolward: PathBuf,
}

pub fn main(words: &[&str]) -> ExitCode {
    let (run, times, rate, rest): (fn(&Plan) -> Result<()>, _, _, _) = match words {
        ["kill", rest @ ..] => (kill::run, 300, 200, rest),
        ["reload", rest @ ..] => (reload::run, 1000, 300, rest),
        ["restart", rest @ ..] => (restart::run, 20, 300, rest),
        ["soak", rest @ ..] => (soak::run, 30, 100, rest),
        _ => return usage(),
    };
    let mut plan = Plan { times, rate, toolward: PathBuf::new() };
    for pair in rest.chunks(2) {
        let fits = match *pair {
            ["--times" | "--minutes", number] => {
                number.parse().map(|number| plan.times = number).is_ok()
            }
            ["--rate", number] => number.parse().map(|number| plan.rate = number).is_ok(),
            ["--toolward", file] => {
                plan.toolward = file.into();
                true
            }
            _ => false,
        };
        if !fits {
            return usage();
        }
    }
    let built = match plan.toolward.as_os_str().is_empty() {
        // Times of a debug build are meaningless.
        true if words.first() == Some(&"soak") => {
            build_as(&["--release"]).map(|program| plan.toolward = program)
        }
        true => build().map(|program| plan.toolward = program),
        false => Ok(()),
    };
    match built.and_then(|()| run(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: {USAGE}");
    ExitCode::from(2)
}

/// Builds the program as tests do; returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    build_as(&[])
}

fn build_as(flags: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "toolward", "--message-format=json"]);
    command.args(flags);
    command.stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut programs = messages.filter_map(|message: serde_json::Value| {
        let named = message["target"]["name"] == "toolward";
        message["executable"].as_str().filter(|_| named).map(PathBuf::from)
    });
    programs.next_back().ok_or_else(|| "the program cannot be built".into())
}

/// A gateway that is ended on drop.
struct Gateway(Child);

impl Gateway {
    /// Starts a gateway and waits until it listens; returns how long that took.
    fn start(plan: &Plan, config: &std::path::Path, port: u16) -> Result<(Gateway, Duration)> {
        Gateway::start_with(plan, config, port, &[])
    }

    fn start_with(
        plan: &Plan,
        config: &std::path::Path,
        port: u16,
        flags: &[&str],
    ) -> Result<(Gateway, Duration)> {
        let log =
            std::fs::File::options().create(true).append(true).open(config.with_extension("log"));
        let log = log.map_err(|error| format!("the log: {error}"))?;
        let begun = Instant::now();
        let child = Command::new(&plan.toolward)
            .args(["serve", "-c"])
            .arg(config)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let mut gateway = Gateway(child.map_err(|error| format!("the gateway: {error}"))?);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = gateway.0.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > Duration::from_secs(10) {
                let said = std::fs::read_to_string(config.with_extension("log"));
                return Err(format!("the gateway does not start: {}", said.unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok((gateway, begun.elapsed()))
    }

    /// Waits until it has ended on its own.
    fn ended(&mut self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) if begun.elapsed() < timeout => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return Err(format!("the gateway does not end cleanly: {other:?}")),
            }
        }
    }

    /// Kills it with SIGKILL.
    fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end, and waits.
    fn end(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        asked.map_err(|error| format!("the gateway: {error}"))?;
        self.ended(SHUTDOWN_TIMEOUT)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
