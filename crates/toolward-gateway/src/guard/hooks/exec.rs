//! A program that is started for each call: the request on its input, the answer is how it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::answer::{Failed, LONGEST, Said, of_exit};
use super::process::{Program, Running};
use super::share::{Quota, Shares};

/// Something that escaped the group may hold the output open; nobody waits for it.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) struct Exec {
    program: Program,
    shares: Arc<Shares>,
}

impl Exec {
    pub(super) fn new(program: Program) -> Exec {
        Exec { program, shares: Shares::new(Quota::PROCESS_PER_CALL) }
    }

    pub(super) async fn ask(&self, request: &[u8], caller: Option<&str>) -> Result<Said, Failed> {
        let _slot = self.shares.slot(caller.unwrap_or_default()).await;
        let running = self.program.start();
        let running = running.map_err(|error| Failed(self.program.cannot_start(&error)))?;
        let Running { mut group, mut child, mut stdin, stdout, stderr } = running;
        let (mut said, mut complained) = (Vec::new(), Vec::new());
        let exit = {
            // A hook need not read what it is told.
            let feed = async {
                let _ = stdin.write_all(request).await;
                drop(stdin);
            };
            let streams = async {
                let both = async {
                    let (said, complained) =
                        (gather(stdout, &mut said), gather(stderr, &mut complained));
                    // Too much on either is known at once, whatever becomes of the other.
                    tokio::try_join!(said, complained).map(drop)
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
            // What it left behind ends now, and with it the streams.
            group.kill();
            if open && let Ok(whole) = tokio::time::timeout(SETTLE, &mut streams).await {
                whole?;
            }
            exit.map_err(|error| Failed(format!("how it ended is not known: {error}")))?
        };
        of_exit(exit.code(), &said, &complained)
    }
}

/// Reads to the end. Too much is a failure.
async fn gather(mut from: impl AsyncRead + Unpin, into: &mut Vec<u8>) -> Result<(), Failed> {
    // Not in the future itself, which is part of every call's.
    let mut part = vec![0; 8 << 10];
    loop {
        match from.read(&mut part).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(read) if into.len() + read <= LONGEST => {
                into.extend_from_slice(part.get(..read).unwrap_or_default());
            }
            Ok(_) => return Err(Failed(format!("it prints more than {LONGEST} bytes"))),
        }
    }
}
