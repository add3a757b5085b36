//! Process groups of servers and hooks, and the guard that ends them.
//!
//! Every child leads a process group, which ends with the value that stands for it. A gateway that is killed
//! ends nothing, so a second process watches over it: it learns of every group through a pipe, and when the
//! pipe closes it ends the groups that are left. The kernel's own means, `PR_SET_PDEATHSIG`, reaches neither
//! grandchildren nor a child after a `setuid` program, and setting it needs code between `fork` and `exec`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a group may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// A guard that could not be started is not tried again sooner.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A child and everything it started, which end with this value.
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

/// Starts the guard if it does not run. Called before a child is started, so that the guard can be told of it
/// at once: a gateway that is killed in between would leave the child behind.
pub(crate) fn prepare() {
    registry().tell("");
}

/// Ends all groups, for a program that is about to exit without unwinding.
pub fn end_all() {
    for group in registry().live.iter().filter_map(|group| Pid::from_raw(*group)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Sets the command that runs [`watch`] in a process of its own. It is started before the first child.
pub fn guard_with(command: fn() -> Command) {
    let _ = GUARD.set(command);
}

/// The guard's work: reads which groups live, and ends them when the other end of the pipe is closed.
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
    Mutex::new(Registry { live: BTreeSet::new(), guard: None, failed: None });

struct Registry {
    live: BTreeSet<i32>,
    guard: Option<Guard>,
    /// When the guard could not be started.
    failed: Option<Instant>,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A guard that is missing, has ended, or does not read, is replaced.
    fn tell(&mut self, line: &str) {
        if self.guard.as_mut().is_some_and(|guard| guard.write(line).is_ok()) {
            return;
        }
        // The old one must not take the closed pipe for the end of the gateway.
        self.guard = None;
        let live = self.live.iter().map(|group| format!("+{group}\n")).collect::<String>();
        if self.failed.is_some_and(|failed| failed.elapsed() < RETRY_INTERVAL) {
            return;
        }
        let started = Guard::start().and_then(|mut guard| guard.write(&live).map(|()| guard));
        self.failed = started.is_err().then(Instant::now);
        self.guard = started.ok();
    }
}

/// The process that watches over the gateway.
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
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals of a terminal are for the gateway.
            .process_group(0);
        let guard = Guard(command.spawn()?);
        if let Some(stdin) = &guard.0.stdin {
            // A guard that was stopped must not stop the gateway.
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(guard)
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        // A pipe takes what a process that has just ended does not read.
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
