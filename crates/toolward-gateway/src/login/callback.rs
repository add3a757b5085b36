//! The redirect address: a small HTTP server on this machine, for the moment of a login.
//!
//! If a running gateway has its admin UI on that port, it receives the response instead and leaves it in an [`Inbox`]
//! for the process that waits.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use ring::digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use toolward_wire::http::{HeadLimits, Method, ResponseBody, read_request, write_response};

use super::authorization::MAX_QUERY;
use super::form::parameters;
use crate::http_client::Address;

const DIRECTORY: &str = "logins";
/// The interval at which an inbox is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a browser may take to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of open connections. Browsers open some in advance.
const MAX_CONNECTIONS: usize = 32;

/// The answer to the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Failed,
    /// The response does not belong to this login.
    Foreign,
}

impl Verdict {
    pub fn status(self) -> u16 {
        match self {
            Verdict::Accepted => 200,
            Verdict::Failed | Verdict::Foreign => 400,
        }
    }

    /// The document that the browser shows. It contains nothing from the request.
    pub fn page(self) -> String {
        let (title, text) = match self {
            Verdict::Accepted => {
                ("Login complete", "Toolward has received the login. You can close this window.")
            }
            Verdict::Failed => ("Login failed", "The terminal shows why."),
            Verdict::Foreign => {
                ("No such login", "No login waits for this address, or it has been used already.")
            }
        };
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <body><h1>{title}</h1><p>{text}</p></body></html>\n"
        )
    }

    /// Headers of that document: the address contains a code, which must not be passed on.
    pub const HEADERS: [(&'static str, &'static str); 5] = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
        ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
        ("X-Content-Type-Options", "nosniff"),
    ];
}

/// A query that arrived, and the way to answer the browser.
pub(crate) struct Arrived {
    pub(crate) query: String,
    /// Takes the verdict, and ends when the browser has been answered.
    browser: Option<(oneshot::Sender<Verdict>, oneshot::Receiver<()>)>,
}

impl Arrived {
    /// Answers the browser.
    pub(crate) async fn answer(self, verdict: Verdict) {
        if let Some((sender, answered)) = self.browser {
            let _ = sender.send(verdict);
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, answered).await;
        }
    }
}

/// Where responses arrive.
pub(crate) enum Callback {
    Server(mpsc::Receiver<Arrived>, tokio::task::JoinHandle<()>),
    Inbox(Inbox),
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Callback::Server(_, task) = self {
            task.abort();
        }
    }
}

impl Callback {
    /// Listens on the redirect address, or waits for a gateway that does.
    pub(crate) async fn open(redirect: &str, state: &Path, login: &str) -> io::Result<Callback> {
        let address = Address::parse(redirect).map_err(io::Error::other)?;
        if address.tls || !address.is_loopback() {
            let why = "only an `http` address on this machine can receive the response";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        match TcpListener::bind((address.host.as_str(), address.port)).await {
            Ok(listener) => {
                let (sender, receiver) = mpsc::channel(MAX_CONNECTIONS);
                let task = tokio::spawn(serve(listener, Arc::new(address), sender));
                Ok(Callback::Server(receiver, task))
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Inbox::open(state, login).map(Callback::Inbox)
            }
            Err(error) => Err(error),
        }
    }

    /// The next response. Its caller decides whether it belongs to the login.
    pub(crate) async fn next(&mut self) -> io::Result<Arrived> {
        match self {
            Callback::Server(receiver, _) => {
                let ended = || io::Error::other("the listener has ended");
                receiver.recv().await.ok_or_else(ended)
            }
            Callback::Inbox(inbox) => loop {
                if let Some(query) = inbox.take()? {
                    return Ok(Arrived { query, browser: None });
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            },
        }
    }

    /// Whether another process has the port.
    pub(crate) fn is_inbox(&self) -> bool {
        matches!(self, Callback::Inbox(_))
    }
}

async fn serve(listener: TcpListener, address: Arc<Address>, sender: mpsc::Sender<Arrived>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (address, sender) = (address.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, request(stream, &address, sender)).await;
            drop(permit);
        });
    }
}

/// Answers one request.
async fn request(
    mut stream: TcpStream,
    address: &Address,
    sender: mpsc::Sender<Arrived>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let head = loop {
        match read_request(&mut buffer, &HeadLimits::default()) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(_) => return Ok(()),
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    };
    let own_path = address.target.split('?').next().unwrap_or_default();
    let is_own_host = head.host.eq_ignore_ascii_case(&address.authority);
    // Dropped, and thereby signaled, when this function ends.
    let (_answered, answered) = oneshot::channel();
    let verdict = match head.method == Method::Get && head.path == own_path && is_own_host {
        false => Verdict::Foreign,
        true => {
            let (answer, verdict) = oneshot::channel();
            let query = head.query.unwrap_or_default();
            let _ = sender.send(Arrived { query, browser: Some((answer, answered)) }).await;
            verdict.await.unwrap_or(Verdict::Foreign)
        }
    };
    let page = verdict.page();
    let mut out = Vec::new();
    let body = ResponseBody::Length(page.len());
    let written = write_response(&mut out, verdict.status(), &Verdict::HEADERS, body, false);
    written.map_err(|error| io::Error::other(error.to_string()))?;
    out.extend_from_slice(page.as_bytes());
    stream.write_all(&out).await?;
    stream.shutdown().await
}

/// Files by which a gateway passes a response to the process that waits for it.
pub(crate) struct Inbox {
    waiting: PathBuf,
    answer: PathBuf,
}

impl Inbox {
    fn paths(state: &Path, login: &str) -> Inbox {
        let name = digest::digest(&digest::SHA256, login.as_bytes());
        let name: String = name.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let path = |kind: &str| state.join(DIRECTORY).join(format!("{name}.{kind}"));
        Inbox { waiting: path("waiting"), answer: path("answer") }
    }

    fn open(state: &Path, login: &str) -> io::Result<Inbox> {
        let inbox = Inbox::paths(state, login);
        let directory = state.join(DIRECTORY);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&inbox.waiting)?;
        Ok(inbox)
    }

    fn take(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.answer) {
            Ok(query) => {
                fs::remove_file(&self.answer)?;
                Ok(Some(query))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.waiting);
        let _ = fs::remove_file(&self.answer);
    }
}

/// Passes a response that a gateway received to the login that waits for it. Without one, nothing is stored.
pub fn deliver(state: &Path, query: &str) -> Verdict {
    let all = Some(query).filter(|query| query.len() <= MAX_QUERY).and_then(parameters);
    let login = all.into_iter().flatten().find(|(name, _)| name == "state");
    let Some((_, login)) = login else { return Verdict::Foreign };
    let inbox = std::mem::ManuallyDrop::new(Inbox::paths(state, &login));
    // The file of a login is used once.
    if fs::remove_file(&inbox.waiting).is_err() {
        return Verdict::Foreign;
    }
    let temporary = inbox.answer.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let written = file.and_then(|mut file| file.write_all(query.as_bytes()));
    match written.and_then(|()| fs::rename(&temporary, &inbox.answer)) {
        Ok(()) => Verdict::Accepted,
        Err(_) => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_reaches_only_the_login_that_waits_for_it_once() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(deliver(state.path(), "code=c&state=abc"), Verdict::Foreign);
        let inbox = Inbox::open(state.path(), "abc").unwrap();
        for foreign in ["code=c&state=abd", "code=c", "", "state=abc&state=abc", "state=../abc"] {
            assert_eq!(deliver(state.path(), foreign), Verdict::Foreign, "{foreign}");
        }
        assert_eq!(inbox.take().unwrap(), None);
        assert_eq!(deliver(state.path(), "code=c&state=abc"), Verdict::Accepted);
        assert_eq!(deliver(state.path(), "code=injected&state=abc"), Verdict::Foreign);
        assert_eq!(inbox.take().unwrap().as_deref(), Some("code=c&state=abc"));
        assert_eq!(inbox.take().unwrap(), None);
        drop(inbox);
        assert_eq!(fs::read_dir(state.path().join(DIRECTORY)).unwrap().count(), 0);
    }
}
