//! A background search while clients are served, against a scripted server.

use toolward_wire::ClientCapabilities;
use toolward_wire::Revision;
use toolward_wire::list::ListKind;

use super::super::{All, Definition, Launch, Reach, Servers, Timeouts};
use super::*;
use crate::client::{Caller, Scope};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../toolward/tests/program/both.py");
const TIMEOUT: Duration = Duration::from_secs(20);

/// A scripted server that supports both protocol versions.
fn servers(folder: &std::path::Path) -> (Servers, All) {
    let tools = folder.join("tools.json");
    std::fs::write(&tools, "[{\"name\": \"t\", \"inputSchema\": {}}]").unwrap();
    let words = [SERVER, "stdio", "both"].map(std::ffi::OsString::from);
    let files = [folder.join("log").into_os_string(), tools.into_os_string()];
    let launch = Launch {
        name: "s".into(),
        program: "python3".into(),
        file: None,
        arguments: words.into_iter().chain(files).collect(),
        environment: Vec::new(),
        inherit: Default::default(),
        folder: None,
    }
    .resolved();
    let definition = Definition {
        name: "s".into(),
        reach: Reach::Child(launch),
        timeouts: Timeouts::default(),
        share: false,
        cache: true,
        max_children: 8,
        eager: false,
        answer_bytes: 1 << 20,
        results: Default::default(),
        schemes: Vec::new(),
        roots: None,
    };
    let servers = Servers::new();
    let all = servers.create(vec![definition], &[]);
    (servers, all)
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_was_silent_once_is_asked_again_while_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, all) = servers(folder.path());
    let server = all[0].clone();
    let revision = Revision::newest(Era::Modern);
    let caller = Caller::new(Some("a".into()), "test");
    let owner = Owner::Agent(caller.holder());
    let client = Client::new(caller, Scope::All, revision, owner);
    server.eras().silent(Era::Modern, Instant::now());
    servers
        .list((&server, ListKind::Tools), (&client, ClientCapabilities::NONE), TIMEOUT)
        .await
        .map(drop)
        .unwrap();
    let era = || servers.existing(&server, &client, ClientCapabilities::NONE).unwrap().era();
    assert_eq!(era(), Era::Legacy, "it is not tried before the backoff ends");
    // After the backoff, clients are served as before, while the client's own protocol version is
    // tried in the background.
    let before = Instant::now() - Duration::from_secs(300);
    server.eras().silent(Era::Modern, before);
    servers
        .list((&server, ListKind::Tools), (&client, ClientCapabilities::NONE), TIMEOUT)
        .await
        .map(drop)
        .unwrap();
    assert_eq!(era(), Era::Legacy, "no client waits for the background check");
    let generation = servers.generation();
    let switched = async {
        while era() == Era::Legacy || servers.generation() == generation {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(TIMEOUT, switched).await.unwrap();
    assert_eq!(server.known(Era::Modern), EraSupport::Supported);
    servers
        .list((&server, ListKind::Tools), (&client, ClientCapabilities::NONE), TIMEOUT)
        .await
        .map(drop)
        .unwrap();
    assert_eq!(era(), Era::Modern);
    servers.close(&all).await;
}
