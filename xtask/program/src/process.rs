//! Child processes of a task, which end with it in any case.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::signal::unix::{SignalKind, signal};

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

/// The time that a process has to end after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The running processes, to end them on a signal.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Process {
    name: &'static str,
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Process {
    /// Starts a process; its output goes into a file in this directory.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
    ) -> Result<Process> {
        Process::spawn(name, command, folder, false)
    }

    /// Starts a process whose standard output is read.
    pub(crate) fn start_to_read(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
    ) -> Result<Process> {
        Process::spawn(name, command, folder, true)
    }

    fn spawn(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
        read: bool,
    ) -> Result<Process> {
        let log = folder.join("log");
        let wrong = |error: std::io::Error| format!("{name} cannot be started: {error}");
        let file = File::create(&log).map_err(wrong)?;
        let stdout = match read {
            true => Stdio::piped(),
            false => file.try_clone().map_err(wrong)?.into(),
        };
        command.stdin(Stdio::null()).stdout(stdout).stderr(file);
        // Held until the process is registered, so that no signal can miss it.
        let mut running = running();
        let mut child = command.spawn().map_err(wrong)?;
        running.push(child.id());
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Process { name, child, stdout, log })
    }

    pub(crate) fn first_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.stdout {
            let _ = stdout.read_line(&mut line);
        }
        match line.trim_end() {
            "" => Err(self.failed("said nothing")),
            line => Ok(line.into()),
        }
    }

    /// Retries until it succeeds, as long as the process runs.
    pub(crate) fn wait_for<T>(
        &mut self,
        pause: Duration,
        attempt: impl FnMut() -> std::result::Result<T, String>,
    ) -> Result<T> {
        self.wait_within(START_TIMEOUT, pause, attempt)
    }

    /// The same, for a process that may take longer.
    pub(crate) fn wait_within<T>(
        &mut self,
        timeout: Duration,
        pause: Duration,
        mut attempt: impl FnMut() -> std::result::Result<T, String>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            let why = match attempt() {
                Ok(done) => return Ok(done),
                Err(why) => why,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(&format!("ended at once ({status})")));
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!("did not start in time: {why}")));
            }
            std::thread::sleep(pause);
        }
    }

    /// Waits for the end of the process; returns its output.
    pub(crate) fn output(mut self, timeout: Duration) -> Result<String> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => return Err(self.failed(&format!("failed ({status})"))),
                Ok(None) if Instant::now() > deadline => {
                    return Err(self.failed("did not end in time"));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
        let mut printed = String::new();
        if let Some(stdout) = &mut self.stdout {
            let _ = stdout.read_to_string(&mut printed);
        }
        Ok(printed)
    }

    /// Waits for the end of the process, whatever its status.
    pub(crate) fn wait(mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if Instant::now() > deadline => {
                    return Err(self.failed("did not end in time"));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, and waits for the end of the process.
    pub(crate) fn end_with(self, signal: Signal) -> Result<ExitStatus> {
        send(self.child.id(), signal);
        self.ended()
    }

    /// The same, for a process that may take longer.
    pub(crate) fn end_within(self, signal: Signal, timeout: Duration) -> Result<ExitStatus> {
        send(self.child.id(), signal);
        self.ended_within(timeout)
    }

    /// Waits for the end of a process that is shutting down.
    pub(crate) fn ended(self) -> Result<ExitStatus> {
        self.ended_within(START_TIMEOUT)
    }

    fn ended_within(mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() > deadline => {
                    return Err(self.failed("did not end in time"));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    /// The resident memory of the process, in kB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.map_err(|error| self.failed(&format!("has no status: {error}")))?;
        let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let size = size.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
        size.ok_or_else(|| self.failed("does not tell its memory"))
    }

    /// An error message with the last lines of the process's output.
    fn failed(&self, what: &str) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = &lines[lines.len().saturating_sub(12)..];
        format!("{} {what}\n{}", self.name, last.join("\n")).trim_end().into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.child.id();
        if let Ok(None) = self.child.try_wait() {
            // SIGTERM first, so that nginx ends its workers.
            send(id, Signal::TERM);
            let deadline = Instant::now() + TERMINATION_TIMEOUT;
            while let Ok(None) = self.child.try_wait() {
                if Instant::now() > deadline {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        running().retain(|other| *other != id);
    }
}

/// On a signal, ends all child processes and removes the directory.
pub(crate) fn end_all_on_signal(folder: &Path) -> Result<()> {
    let folder = folder.to_path_buf();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("signals cannot be awaited: {error}"))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
                return;
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            // No process is started while this lock is held.
            let running = running();
            running.iter().for_each(|id| send(*id, Signal::TERM));
            std::thread::sleep(Duration::from_millis(300));
            running.iter().for_each(|id| send(*id, Signal::KILL));
            let _ = std::fs::remove_dir_all(&folder);
            std::process::exit(130);
        });
    });
    Ok(())
}

/// Pins this thread and its future child processes to the last core. The placement of two processes
/// that wait for each other can cost more than their work.
pub(crate) fn stay_on_one_core() -> Result<()> {
    let wrong = |error| format!("the core cannot be chosen: {error}");
    let all = sched_getaffinity(None).map_err(wrong)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|core| all.is_set(*core)).unwrap_or(0);
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).map_err(wrong)
}

pub(crate) fn send(id: u32, signal: Signal) {
    if let Some(id) = Pid::from_raw(id.cast_signed()) {
        let _ = kill_process(id, signal);
    }
}

/// A loopback port that is currently free.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no port is free: {error}"))
}
