//! Fetches the definitions of a server: in each protocol version that it supports, to clients with and without capabilities,
//! and more than once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toolward_gateway::client::{Caller, Client, Owner, Scope};
use toolward_gateway::guard::pins::canonical::{Digest, Pointer};
use toolward_gateway::guard::pins::classify::changes;
use toolward_gateway::guard::pins::definition::Definition;
use toolward_gateway::guard::pins::lock_file::{LockedList, LockedServer, PINNED_KINDS};
use toolward_gateway::upstream::{self, Servers, Unavailable};
use toolward_wire::list::ListKind;
use toolward_wire::{ClientCapabilities, Era, Raw, Revision};

use crate::exit::Failure;

/// The definitions that one client got from a server.
struct Look {
    /// Looks of the same kind should be equal.
    kind: (Era, ClientCapabilities),
    instructions: Option<String>,
    lists: BTreeMap<&'static str, Vec<(String, Definition)>>,
}

/// The definitions of a server, over several looks.
pub(crate) struct Survey {
    looks: Vec<Look>,
}

/// Looks at a server. The error is why it cannot be reached at all.
pub(crate) fn survey(
    definition: &upstream::Definition,
    timeout: Duration,
) -> Result<Result<Survey, Unavailable>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let looks = runtime.block_on(looks(definition, timeout));
    runtime.shutdown_background();
    Ok(looks.map(|looks| Survey { looks }))
}

async fn looks(
    definition: &upstream::Definition,
    timeout: Duration,
) -> Result<Vec<Look>, Unavailable> {
    let all = ClientCapabilities::FORM
        | ClientCapabilities::URL
        | ClientCapabilities::ROOTS
        | ClientCapabilities::SAMPLING
        | ClientCapabilities::SAMPLING_TOOLS
        | ClientCapabilities::TASKS;
    let mut seen = Vec::new();
    let mut failed = None;
    for era in [Era::Modern, Era::Legacy] {
        // The second look with the same capabilities shows what changes by itself.
        for declared in [ClientCapabilities::NONE, ClientCapabilities::NONE, all.in_era(era)] {
            match look(definition, (era, declared), timeout).await {
                Ok(Some(look)) => seen.push(look),
                // The server does not support this protocol version.
                Ok(None) => break,
                Err(why) => {
                    failed = Some(why);
                    break;
                }
            }
        }
    }
    match (seen.is_empty(), failed) {
        // A server that fails for some clients is not known completely.
        (_, Some(why)) => Err(why),
        (true, None) => Err(Unavailable::OtherEra),
        (false, None) => Ok(seen),
    }
}

async fn look(
    definition: &upstream::Definition,
    kind: (Era, ClientCapabilities),
    timeout: Duration,
) -> Result<Option<Look>, Unavailable> {
    let (era, declared) = kind;
    let servers = Servers::new();
    let all = servers.create(vec![definition.clone()], &[]);
    let Some(server) = all.first() else { return Ok(None) };
    let caller = Caller::new(None, "gateway");
    let client = Client::new(caller, Scope::All, Revision::newest(era), Owner::Session(0));
    let seen = async {
        let (hello, spoken) = servers.greet(server, &client, declared).await?;
        if spoken != era {
            return Ok(None);
        }
        let instructions = hello.result_member("instructions").and_then(Raw::as_str);
        let instructions = instructions.map(|text| text.into_owned());
        let mut lists = BTreeMap::new();
        for kind in PINNED_KINDS {
            let listed = servers.list((server, kind), (&client, declared), timeout).await?;
            let entries = listed.catalogue.entries().iter();
            let entries = entries.map(|one| (one.name().to_string(), Definition::of(one)));
            lists.insert(kind.member(), entries.collect());
        }
        Ok(Some(Look { kind, instructions, lists }))
    };
    let seen = tokio::time::timeout(timeout, seen).await;
    servers.close(&all).await;
    seen.unwrap_or(Err(Unavailable::Slow))
}

impl Survey {
    /// Parts of definitions that differ between two looks of the same kind.
    pub(crate) fn volatile(&self, ignored: &[Pointer]) -> BTreeSet<String> {
        let mut parts = BTreeSet::new();
        for (at, one) in self.looks.iter().enumerate() {
            for other in self.looks.iter().skip(at + 1).filter(|other| other.kind == one.kind) {
                for kind in PINNED_KINDS {
                    for (name, definition) in one.list(kind) {
                        let again = other.list(kind).iter().find(|(own, _)| own == name);
                        let Some((_, again)) = again else { continue };
                        let differences = changes(kind, (definition, again), ignored, &[]);
                        parts.extend(differences.into_iter().map(|change| change.at));
                    }
                }
            }
        }
        parts.remove("");
        parts
    }

    /// Everything that the server offers, as approved definitions.
    pub(crate) fn offered(&self, identity: serde_json::Value, ignored: &[Pointer]) -> LockedServer {
        let instructions = self.looks.iter().find_map(|look| look.instructions.clone());
        let mut server = LockedServer::new(identity, Some(instructions));
        for kind in PINNED_KINDS {
            let mut list = LockedList::new();
            for (name, definition) in self.looks.iter().flat_map(|look| look.list(kind)) {
                let forms = list.entry(name.clone()).or_default();
                let same =
                    |form: &Definition| changes(kind, (form, definition), ignored, &[]).is_empty();
                if !forms.iter().any(same) {
                    forms.push(definition.clone());
                }
            }
            *server.list_mut(kind) = Some(list);
        }
        server
    }
}

impl Look {
    fn list(&self, kind: ListKind) -> &[(String, Definition)] {
        self.lists.get(kind.member()).map_or(&[], Vec::as_slice)
    }
}

/// The digest of an entry in all its forms.
pub(crate) fn digest_of(forms: &[Definition]) -> Digest {
    match forms {
        [only] => only.digest(),
        several => {
            let texts: Vec<String> = several.iter().map(|one| one.digest().to_string()).collect();
            Digest::of_text(&texts.join("\n"))
        }
    }
}

/// The digest of everything that a server offers.
pub(crate) fn digest_of_server(server: &LockedServer) -> Digest {
    let mut parts = Vec::new();
    for kind in PINNED_KINDS {
        for (name, forms) in server.list(kind).into_iter().flatten() {
            parts.push((format!("{}/{name}", kind.member()), digest_of(forms)));
        }
    }
    let instructions = server.instructions.clone().flatten();
    parts.extend(instructions.map(|text| ("instructions".into(), Digest::of_text(&text))));
    Digest::of_all(parts.iter().map(|(name, digest)| (name.as_str(), *digest)))
}
