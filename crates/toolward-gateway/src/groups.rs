//! Process groups of servers and hooks, and the guard that ends them.
//!
//! Every child leads a process group, which ends when its [`Group`] is dropped. A gateway that is
//! killed cannot end them, so a second process watches it: it is notified of every group through a
//! pipe, and when the pipe closes, it ends the remaining groups. The kernel's own mechanism,
//! `PR_SET_PDEATHSIG`, covers neither grandchildren nor a child after a `setuid` program, and
//! setting it needs code between `fork` and `exec`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::lock::LockUnpoisoned;

/// How long a group may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The time between attempts to start the guard.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// A guard that ends sooner than this is replaced only after this time.
const MIN_GUARD_LIFETIME: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A child and all its descendants, which end when this value is dropped.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group of a child that was started as its leader.
    pub(crate) fn led_by(process: Option<u32>) -> Group {
        let leader = process.and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(leader) = leader {
            registry().add(leader);
        }
        Group(leader)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, signal);
        }
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(group) = self.0.take() {
            registry().remove(group);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the guard if it is not running. Called before a child is started, so that the guard can
/// be notified of it at once: a gateway that is killed in between would leave the child behind.
pub(crate) fn prepare() {
    registry().tell("");
}

/// Ends all groups, for a program that is about to exit without unwinding.
pub fn end_all() {
    for group in registry().live.iter().filter_map(|group| Pid::from_raw(*group)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Sets the command that runs [`watch`] in a separate process. It is started before the first
/// child.
pub fn guard_with(command: fn() -> Command) {
    let _ = GUARD.set(command);
}

/// The guard: reads which groups are alive, and ends them when the other end of the pipe is closed.
pub fn watch(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let Some((sign, group)) = line.split_at_checked(1) else { continue };
        match (sign, group.parse::<i32>().ok().and_then(Pid::from_raw)) {
            ("+", Some(group)) => drop(groups.insert(group.as_raw_nonzero())),
            ("-", Some(group)) => drop(groups.remove(&group.as_raw_nonzero())),
            _ => {}
        }
    }
    end(groups.iter().filter_map(|group| Pid::from_raw(group.get())).collect());
}

fn end(mut groups: Vec<Pid>) {
    for group in &groups {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let begun = Instant::now();
    while !groups.is_empty() && begun.elapsed() < GRACE {
        std::thread::sleep(POLL_INTERVAL);
        groups.retain(|group| test_kill_process_group(*group).is_ok());
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

static GUARD: OnceLock<fn() -> Command> = OnceLock::new();
static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { live: BTreeSet::new(), guard: None, started: 0, failed: None });

struct Registry {
    live: BTreeSet<i32>,
    guard: Option<Guard>,
    /// The number of guards started.
    started: u64,
    /// When starting the guard failed.
    failed: Option<Instant>,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.locked()
}

impl Registry {
    fn add(&mut self, group: Pid) {
        let group = group.as_raw_nonzero().get();
        self.live.insert(group);
        self.tell(&format!("+{group}\n"));
    }

    fn remove(&mut self, group: Pid) {
        let group = group.as_raw_nonzero().get();
        self.live.remove(&group);
        self.tell(&format!("-{group}\n"));
    }

    /// Notifies the guard. A guard that is missing, has ended, or does not read, is replaced.
    fn tell(&mut self, line: &str) {
        if self.guard.as_mut().is_some_and(|guard| guard.write(line).is_ok()) {
            return;
        }
        // The old guard must not mistake the closed pipe for the end of the gateway.
        self.guard = None;
        let live = self.live.iter().map(|group| format!("+{group}\n")).collect::<String>();
        if self.failed.is_some_and(|failed| failed.elapsed() < RETRY_INTERVAL) {
            return;
        }
        let started = Guard::start().and_then(|mut guard| guard.write(&live).map(|()| guard));
        self.failed = started.is_err().then(Instant::now);
        self.guard = started.ok();
        if let Some(guard) = &mut self.guard {
            self.started += 1;
            guard.watch(self.started);
        }
    }
}

/// Waits until a guard has ended, and replaces it unless it was replaced already.
///
/// Without this, a gateway that is killed after its guard was killed would leave its children
/// behind.
fn replace_when_ended(mut output: ChildStdout, number: u64) {
    let begun = Instant::now();
    // The guard writes nothing, so this returns when it has ended.
    let _ = io::copy(&mut output, &mut io::sink());
    std::thread::sleep(MIN_GUARD_LIFETIME.saturating_sub(begun.elapsed()));
    loop {
        let failed = {
            let mut registry = registry();
            if registry.started == number {
                registry.tell("");
            }
            if registry.started != number {
                return;
            }
            registry.failed.is_some()
        };
        // The output is closed a moment before the end of the process is visible.
        std::thread::sleep(if failed { RETRY_INTERVAL } else { POLL_INTERVAL });
    }
}

/// The process that watches the gateway.
struct Guard(Child);

impl Guard {
    fn start() -> io::Result<Guard> {
        use std::os::unix::process::CommandExt;
        let command = GUARD.get().ok_or(io::ErrorKind::Unsupported)?;
        let mut command = command();
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Signals of a terminal are meant for the gateway.
            .process_group(0);
        let guard = Guard(command.spawn()?);
        if let Some(stdin) = &guard.0.stdin {
            // A stopped guard must not block the gateway.
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(guard)
    }

    /// Starts the thread that replaces this guard when it ends. If that fails, the guard is
    /// replaced when the next child starts.
    fn watch(&mut self, number: u64) {
        if let Some(output) = self.0.stdout.take() {
            let thread = std::thread::Builder::new().name("guard-watch".into());
            drop(thread.spawn(move || replace_when_ended(output, number)));
        }
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        // A pipe accepts data that a process which has just ended will not read.
        if self.0.try_wait()?.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let stdin = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(lines.as_bytes())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
