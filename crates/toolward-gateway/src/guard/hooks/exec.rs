//! A program that is started for each call: it gets the request on its input, and its exit status is the
//! answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::answer::{HookError, HookVerdict, MAX_ANSWER_BYTES, of_exit};
use super::process::{Program, Running};
use super::share::{Quota, Shares};

/// A process that left the process group may hold the output open; it is not waited for beyond this.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) struct Exec {
    program: Program,
    shares: Arc<Shares>,
}

impl Exec {
    pub(super) fn new(program: Program) -> Exec {
        Exec { program, shares: Shares::new(Quota::PROCESS_PER_CALL) }
    }

    pub(super) async fn ask(
        &self,
        request: &[u8],
        caller: Option<&str>,
    ) -> Result<HookVerdict, HookError> {
        let _slot = self.shares.slot(caller.unwrap_or_default()).await;
        let running = self.program.start();
        let running = running.map_err(|error| HookError(self.program.cannot_start(&error)))?;
        let Running { mut group, mut child, mut stdin, stdout, stderr } = running;
        let (mut stdout_bytes, mut stderr_bytes) = (Vec::new(), Vec::new());
        let exit = {
            // A hook need not read its input.
            let feed = async {
                let _ = stdin.write_all(request).await;
                drop(stdin);
            };
            let streams = async {
                let both = async {
                    let (stdout_bytes, stderr_bytes) =
                        (gather(stdout, &mut stdout_bytes), gather(stderr, &mut stderr_bytes));
                    // Too much output on either stream fails at once, without waiting for the other.
                    tokio::try_join!(stdout_bytes, stderr_bytes).map(drop)
                };
                tokio::join!(feed, both).1
            };
            tokio::pin!(streams);
            let mut open = true;
            let exit = loop {
                tokio::select! {
                    exit = child.wait() => break exit,
                    whole = &mut streams, if open => {
                        open = false;
                        whole?;
                    }
                }
            };
            // Kills the remaining processes of the group, which closes the streams.
            group.kill();
            if open && let Ok(whole) = tokio::time::timeout(SETTLE, &mut streams).await {
                whole?;
            }
            exit.map_err(|error| HookError(format!("its exit status is unknown: {error}")))?
        };
        of_exit(exit.code(), &stdout_bytes, &stderr_bytes)
    }
}

/// Reads to the end. Too much output is an error.
async fn gather(mut from: impl AsyncRead + Unpin, into: &mut Vec<u8>) -> Result<(), HookError> {
    // On the heap, because this future is part of every call's future.
    let mut part = vec![0; 8 << 10];
    loop {
        match from.read(&mut part).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(read) if into.len() + read <= MAX_ANSWER_BYTES => {
                into.extend_from_slice(part.get(..read).unwrap_or_default());
            }
            Ok(_) => {
                return Err(HookError(format!("it prints more than {MAX_ANSWER_BYTES} bytes")));
            }
        }
    }
}
