//! The limit of open files, which bounds the number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors for listening sockets, logs, servers and hooks.
const RESERVED: u64 = 256;

/// Raises the limit of open files for `streams` connections, as far as the hard limit allows; returns how
/// many connections fit.
pub(crate) fn connections(streams: usize) -> usize {
    // A connection may need another one to its server.
    let wanted = (streams as u64).saturating_mul(2).saturating_add(RESERVED);
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let raised = wanted.min(most);
    let raise = Rlimit { current: Some(raised), maximum: limit.maximum };
    let allowed = match now < raised && setrlimit(Resource::Nofile, raise).is_ok() {
        true => raised,
        false => now,
    };
    let fit = fitting(streams, allowed);
    if fit < streams {
        tracing::warn!(
            target: "serve",
            "`limits_of.streams` is {streams}, but the process may open {allowed} files: at most {fit} \
             connections are accepted (raise the limit with `ulimit -n` or `LimitNOFILE=`)"
        );
    }
    fit
}

/// How many connections fit into a limit of open files.
fn fitting(streams: usize, allowed: u64) -> usize {
    let reserved = RESERVED.min(allowed / 2);
    let fit = usize::try_from(allowed - reserved).unwrap_or(usize::MAX);
    streams.min(fit).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_all_files() {
        assert_eq!(fitting(10_000, 20_256), 10_000);
        assert_eq!(fitting(10_000, 1024), 768);
        assert_eq!(fitting(10_000, 64), 32);
        assert_eq!(fitting(10, 1024), 10);
    }
}
