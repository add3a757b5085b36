//! The control socket of a running gateway, for `toolward status`, `toolward reload` and
//! `toolward serve --take-over`.
//!
//! One line in, one line of JSON out. The socket is in the state directory, which only this user can
//! reach; the peer's user id is checked as well.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use toolward_wire::list::ListKind;

use crate::control_approvals::{self, Peer};
use crate::control_client::{ACCEPT_OF, CONTROL_TIMEOUT, directory};
use crate::handover::Handover;
use crate::reload::Reloader;
use crate::running::RunningGateway;
use crate::status_report::status;

/// The longest request: a word and the path of a configuration.
const MAX_WORD: u64 = 8 << 10;
/// Opens the control socket, registers the gateway, and reloads on changes for as long as the process lives.
pub(crate) async fn run(reloader: Arc<Reloader>, heir: Option<Arc<Handover>>) {
    open(&reloader, heir);
    reloader.run().await;
}

/// Opens the control socket and serves it in the background. Must be called within a runtime.
pub(crate) fn open(reloader: &Arc<Reloader>, heir: Option<Arc<Handover>>) {
    let control = reloader.running().map(|running| Control::open(&running));
    match control {
        Some(Ok(control)) => {
            *reloader.registration() = reloader.running().and_then(|running| running.register());
            drop(tokio::spawn(control.serve(reloader.clone(), heir)));
        }
        Some(Err(error)) => {
            tracing::warn!(
                target: "control",
                "no control socket: {error}; `toolward status` and `toolward reload` cannot reach this \
                 gateway"
            );
        }
        None => {}
    }
}

/// A control socket, removed with the process.
struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The main file of this gateway.
    config: Option<PathBuf>,
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Control {
    fn open(running: &RunningGateway) -> std::io::Result<Control> {
        let folder = directory(&running.state);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(format!("{}.sock", running.process));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        Ok(Control { listener, path, config: running.config.clone() })
    }

    /// Serves requests until the process ends.
    async fn serve(self, reloader: Arc<Reloader>, heir: Option<Arc<Handover>>) {
        let begun = Instant::now();
        let own = rustix::process::geteuid().as_raw();
        while let Ok((mut stream, _)) = self.listener.accept().await {
            let Ok(peer) = stream.peer_cred() else { continue };
            let peer = Peer { uid: peer.uid(), process: peer.pid() };
            if peer.uid != own && peer.uid != 0 {
                continue;
            }
            let (reloader, heir) = (reloader.clone(), heir.clone());
            let config = self.config.clone();
            tokio::spawn(async move {
                let (from, mut to) = stream.split();
                let mut word = String::new();
                let mut from = tokio::io::BufReader::new(from.take(MAX_WORD));
                let read = tokio::time::timeout(CONTROL_TIMEOUT, from.read_line(&mut word)).await;
                if !matches!(read, Ok(Ok(_))) {
                    return;
                }
                let answer = match word.trim() {
                    "reload" => reloaded(reloader.reload("toolward reload").await),
                    "reload --accept" => {
                        reloaded(reloader.reload_accepting("toolward reload --accept").await)
                    }
                    // The user accepted one configuration; other gateways may share the state directory.
                    word if word.starts_with(ACCEPT_OF) => {
                        let meant = serde_json::from_str(&word[ACCEPT_OF.len()..]).ok();
                        if meant.is_some_and(|meant: PathBuf| Some(meant) == config) {
                            reloaded(reloader.reload_accepting("toolward reload --accept").await)
                        } else {
                            json!({"another": true})
                        }
                    }
                    word if word.starts_with(control_approvals::WORD) => {
                        let request = &word[control_approvals::WORD.len()..];
                        let answer = control_approvals::answer(&reloader, &peer, request).await;
                        let _ = to.write_all(answer.as_bytes()).await;
                        let _ = to.write_all(b"\n").await;
                        return;
                    }
                    "status" => status(&reloader, begun).await,
                    "tools" => lists(&reloader, ListKind::Tools),
                    "prompts" => lists(&reloader, ListKind::Prompts),
                    "resources" => lists(&reloader, ListKind::Resources),
                    "templates" => lists(&reloader, ListKind::ResourceTemplates),
                    "sockets" => {
                        let Some(heir) = heir else { return };
                        drop((from, to));
                        let _ = stream.writable().await;
                        let _ = heir.give(&stream);
                        return;
                    }
                    "retire" => {
                        if let Some(heir) = heir {
                            heir.end();
                        }
                        json!({"retired": true})
                    }
                    _ => json!({"error": "the commands are `status` and `reload`"}),
                };
                let _ = to.write_all(format!("{answer}\n").as_bytes()).await;
            });
        }
    }
}

fn reloaded(outcome: Result<String, String>) -> Value {
    match outcome {
        Ok(what) => json!({"reloaded": true, "message": what}),
        Err(why) => json!({"reloaded": false, "error": why}),
    }
}

/// The lists of one kind that servers have sent, unchanged.
fn lists(reloader: &Reloader, kind: ListKind) -> Value {
    let active = reloader.gateway().active();
    let mut lists = serde_json::Map::new();
    for server in active.servers.iter() {
        if let Some(listed) = server.listed_as(kind) {
            let entries = listed.catalogue.entries().iter();
            lists
                .insert(server.name().into(), entries.map(|entry| entry.raw().to_json()).collect());
        }
    }
    let config = reloader.running().and_then(|running| running.config);
    json!({"process": std::process::id(), "config": config, "servers": lists})
}
