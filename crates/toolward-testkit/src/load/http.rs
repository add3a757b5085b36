//! Load over HTTP.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::check::Checker;
use super::request::{Request, handshake, head};
use super::{Clock, Era, Kind, Plan, Report, Tally, Target, Until};
use crate::http::{Connection, Frame, frame};

/// Timeout of a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the plan on the caller's runtime.
pub async fn run(target: &Target, plan: &Plan) -> io::Result<Report> {
    let shared = Arc::new(Shared {
        target: target.clone(),
        plan: plan.clone(),
        clock: Clock::start(plan.until),
        next: AtomicU64::new(0),
    });
    let mut clients = JoinSet::new();
    for _ in 0..plan.connections.max(1) {
        let client = Client::connect(shared.clone()).await?;
        clients.spawn(client.run());
    }
    let mut tally = Tally::default();
    while let Some(one) = clients.join_next().await {
        tally.merge(one.map_err(io::Error::other)?);
    }
    Ok(tally.report(&shared.clock))
}

struct Shared {
    target: Target,
    plan: Plan,
    clock: Clock,
    /// The number of the next request.
    next: AtomicU64,
}

impl Shared {
    /// Takes the number of the next request. `None` if there are no more.
    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match self.plan.until {
            Until::Requests(count) if number >= count => None,
            _ if self.plan.fixed_id => Some(0),
            _ => Some(number),
        }
    }
}

/// A connection with at most one request in flight.
struct Client {
    shared: Arc<Shared>,
    connection: Connection<TcpStream>,
    request: Request,
    session: Option<String>,
    checker: Checker,
}

impl Client {
    async fn connect(shared: Arc<Shared>) -> io::Result<Client> {
        let Plan { kind, era, .. } = shared.plan;
        let target = &shared.target;
        let mut connection = open(target).await?;
        let session = match era {
            Era::Modern => None,
            Era::Legacy => Some(begin_session(&mut connection, target).await?),
        };
        let request = Request::http(target, kind, era, session.as_deref(), false);
        Ok(Client { connection, request, session, checker: Checker::new(kind), shared })
    }

    async fn run(mut self) -> Tally {
        let mut tally = Tally::default();
        let clock = self.shared.clock;
        let mut begun = Instant::now();
        while clock.end.is_none_or(|end| begun < end)
            && let Some(number) = self.shared.next()
        {
            self.request.number(number);
            tally.sent += 1;
            let result = tokio::time::timeout(RESPONSE_TIMEOUT, self.ask()).await;
            let now = Instant::now();
            let closed = match result {
                Ok(Ok((answer, closed))) => {
                    match answer {
                        Ok(()) if begun >= clock.warm => tally.times.record(now - begun),
                        Ok(()) => {}
                        Err(why) => tally.wrong(why),
                    }
                    closed
                }
                Ok(Err(error)) => {
                    tally.wrong(error);
                    true
                }
                Err(_) => {
                    tally.wrong("timeout");
                    return tally;
                }
            };
            begun = now;
            if closed {
                match open(&self.shared.target).await {
                    Ok(connection) => self.connection = connection,
                    Err(error) => {
                        tally.wrong(error);
                        return tally;
                    }
                }
                begun = Instant::now();
            }
        }
        if let Some(session) = &self.session {
            let fields = format!("Mcp-Session-Id: {session}\r\n");
            let goodbye = head("DELETE", &self.shared.target, &fields, 0);
            let _ = self.connection.send(goodbye.as_bytes()).await;
            let _ = tokio::time::timeout(RESPONSE_TIMEOUT, self.connection.receive()).await;
        }
        tally
    }

    /// Sends one request. Returns whether the response is correct, and whether it closes the
    /// connection.
    async fn ask(&mut self) -> io::Result<(Result<(), String>, bool)> {
        self.connection.send(self.request.bytes()).await?;
        let Some(response) = self.connection.receive().await? else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let answer = self.checker.response(&response, self.request.digits());
        Ok((answer.map(drop), response.closes()))
    }
}

async fn open(target: &Target) -> io::Result<Connection<TcpStream>> {
    let stream = TcpStream::connect(&target.authority).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot connect to `{}`: {error}", target.authority))
    })?;
    stream.set_nodelay(true)?;
    Ok(Connection::new(stream))
}

/// Performs the legacy handshake. Returns the session id.
async fn begin_session(
    connection: &mut Connection<TcpStream>,
    target: &Target,
) -> io::Result<String> {
    let [initialize, initialized] = handshake();
    let hello = head("POST", target, "", initialize.len()) + &initialize;
    connection.send(hello.as_bytes()).await?;
    let refused = |why: String| io::Error::other(format!("`initialize` failed: {why}"));
    let Some(response) = connection.receive().await? else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let id = response.field("mcp-session-id").filter(|_| response.status() == Some(200));
    let Some(id) = id.map(|id| String::from_utf8_lossy(id).into_owned()) else {
        return Err(refused(String::from_utf8_lossy(response.line).into_owned()));
    };
    let fields =
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {}\r\n", crate::echo::LEGACY[0]);
    let ready = head("POST", target, &fields, initialized.len()) + &initialized;
    connection.send(ready.as_bytes()).await?;
    match connection.receive().await? {
        Some(response) if response.status() == Some(202) => Ok(id),
        Some(response) => Err(refused(String::from_utf8_lossy(response.line).into_owned())),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Sends one modern request on a new connection, without a runtime. Returns the response.
pub fn once(target: &Target, kind: Kind) -> io::Result<Vec<u8>> {
    let mut stream = std::net::TcpStream::connect(&target.authority)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let request = Request::http(target, kind, Era::Modern, None, true);
    stream.write_all(request.bytes())?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let read = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        if let Frame::Whole(layout) = frame(&bytes)? {
            let mut joined = Vec::new();
            let message = layout.message(&bytes, &mut joined);
            let answer = Checker::new(kind).response(&message, request.digits());
            return answer.map(<[u8]>::to_vec).map_err(io::Error::other);
        }
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::others::{Others, uri};
    use crate::echo::{self, Server};

    fn plan(kind: Kind, era: Era) -> Plan {
        Plan { kind, era, connections: 3, until: Until::Requests(50), fixed_id: false }
    }

    #[tokio::test]
    async fn every_kind_of_load_gets_correct_responses() {
        for sse in [false, true] {
            let mut server = Server::new(&echo::tools(40, 1000)).unwrap();
            server.sse = sse;
            let running = echo::http::start(server).unwrap();
            let target = Target::parse(&running.url()).unwrap();
            for kind in [Kind::Call, Kind::List] {
                for era in [Era::Modern, Era::Legacy] {
                    let report = run(&target, &plan(kind, era)).await.unwrap();
                    assert_eq!(report.first_error, None, "{kind:?} {era:?} {sse}");
                    assert_eq!((report.times.count(), report.errors), (50, 0));
                }
                assert!(once(&target, kind).is_ok());
            }
        }
    }

    #[tokio::test]
    async fn prompts_and_resources_are_requested_like_tools() {
        let server = Server::new(&echo::tools(1, 0)).unwrap().offer(Others::new(200, 300)).unwrap();
        let running = echo::http::start(server).unwrap();
        let target = Target::parse(&running.url()).unwrap();
        for (kind, name) in [
            (Kind::Prompt, "echo".into()),
            (Kind::Read, uri(7)),
            (Kind::Resources, "echo".into()),
            (Kind::Resources, "cursor".into()),
        ] {
            let target = Target { tool: name, ..target.clone() };
            for era in [Era::Modern, Era::Legacy] {
                let report = run(&target, &plan(kind, era)).await.unwrap();
                assert_eq!(report.first_error, None, "{kind:?} {era:?}");
                assert_eq!((report.times.count(), report.errors), (50, 0));
            }
        }
        let unknown = Target { tool: uri(200), ..target };
        assert!(once(&unknown, Kind::Read).is_err());
    }

    #[tokio::test]
    async fn wrong_responses_are_counted() {
        let running = echo::http::start(Server::new("[]").unwrap()).unwrap();
        let target = Target::parse(&running.url()).unwrap();
        let report = run(&target, &plan(Kind::Call, Era::Modern)).await.unwrap();
        assert_eq!((report.times.count(), report.errors), (0, 50));
        assert!(report.first_error.unwrap().contains("unknown tool"));
        assert!(once(&target, Kind::List).is_err());
    }

    #[tokio::test]
    async fn an_unreachable_target_is_an_error() {
        let address = echo::http::start(Server::new("[]").unwrap()).unwrap().address();
        let target = Target::parse(&format!("http://{address}/mcp")).unwrap();
        assert!(run(&target, &plan(Kind::Call, Era::Modern)).await.is_err());
    }
}
