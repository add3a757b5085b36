//! Restarts a gateway that denies everything once its configuration is valid.
//!
//! Some settings cannot change while the process runs. A gateway that denies everything serves no calls, so
//! it can replace its process image without losing anything.

use std::os::unix::process::CommandExt;
use std::process::Command;

use toolward_gateway::gateway::Gateway;

use super::ReloadError;
use crate::log;

/// How a process restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    /// By replacing the process image, with the same arguments.
    InPlace,
    /// The parent owns its sockets or client, and restarts it.
    ByOthers,
}

impl Restart {
    /// Returns only if it fails.
    pub(super) fn begin(self, gateway: &Gateway) -> ReloadError {
        if self == Restart::ByOthers {
            tracing::info!(
                target: "reload",
                "the configuration is valid now, but needs a new process; this one shuts down"
            );
            let own = rustix::process::getpid();
            let ended = rustix::process::kill_process(own, rustix::process::Signal::TERM);
            return ReloadError::passing(match ended {
                Ok(()) => "the process exits, so that it is started again".into(),
                Err(error) => format!("the process cannot end: {error}"),
            });
        }
        tracing::info!(target: "reload", "the configuration is valid now; restarting in place");
        // The thread that writes the log ends here.
        log::flush();
        // Their outcome is recorded.
        gateway.context.held.clear();
        gateway.context.audit.close();
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "toolward".into());
        // The running program, even if its file was replaced.
        let error = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
        ReloadError::passing(format!("the process cannot restart: {error}"))
    }
}
