//! The server capabilities that clients see: what the servers have, as far as the policy can allow it.

use serde_json::{Map, Value, json};
use toolward_policy::Family;
use toolward_wire::{Era, Message, Raw, Revision, TASKS_EXTENSION};

use crate::active::Active;
use crate::client::Client;
use crate::upstream::{Server, offers_tasks};

/// The capabilities of the gateway itself, for a client of several servers. A kind that the policy can allow at all is
/// announced without waiting for servers; its list may be empty.
pub(super) fn of_all(active: &Active, client: &Client) -> Vec<u8> {
    let servers = active.usable(client);
    // The built-in server has only tools.
    let has_others = servers.iter().any(|server| !server.is_own());
    let others = Others {
        subscriptions: has_others,
        logging: has_others,
        completions: has_others,
        tasks: tasks(client).filter(|_| has_others),
    };
    announced(others, |family| match family {
        // Without any server the list is empty, but it exists.
        Family::Tools => true,
        family => servers.iter().any(|server| may_allow(active, client, server, family)),
    })
}

fn may_allow(active: &Active, client: &Client, server: &Server, family: Family) -> bool {
    let agent = client.caller.agent.as_deref();
    // The built-in server has only tools.
    let exists = family == Family::Tools || !server.is_own();
    exists && (!active.enforced || active.policy.may_allow(agent, server.name(), family))
}

/// The capabilities of a single server, cut to what the policy can allow. `hello` is the server's handshake response;
/// `None` if it has not responded yet.
pub(super) fn of_one(
    active: &Active,
    client: &Client,
    server: &Server,
    hello: Option<&Message>,
) -> Vec<u8> {
    let declared = hello.map(|hello| hello.result_member("capabilities"));
    let has = |name: &str| match declared {
        None => true,
        Some(declared) => declared.and_then(|raw: Raw<'_>| raw.member(name)).is_some(),
    };
    let subscribe = declared.flatten().and_then(|raw| raw.member("resources")?.member("subscribe"));
    let has_subscriptions = declared.is_none() || subscribe.and_then(Raw::as_bool) == Some(true);
    let others = Others {
        subscriptions: has_subscriptions,
        logging: has("logging"),
        completions: has("completions"),
        tasks: tasks(client).filter(|era| hello.is_none_or(|hello| offers_tasks(hello, *era))),
    };
    announced(others, |family| {
        let name = match family {
            Family::Tools => "tools",
            Family::Prompts => "prompts",
            Family::Resources => "resources",
        };
        has(name) && (family == Family::Tools || may_allow(active, client, server, family))
    })
}

/// The kind of tasks that a client's protocol version has. They are not translated, so a server must have the same.
fn tasks(client: &Client) -> Option<Era> {
    let has_tasks = client.revision >= Revision::R2025_11_25;
    has_tasks.then(|| client.era())
}

/// Capabilities beside the lists.
struct Others {
    subscriptions: bool,
    logging: bool,
    completions: bool,
    /// Tasks as in 2025-11-25, or the extension of modern protocol versions.
    tasks: Option<Era>,
}

/// The gateway sends `list_changed` for every list, because a reload may change it.
fn announced(others: Others, has: impl Fn(Family) -> bool) -> Vec<u8> {
    let mut all = Map::new();
    if others.logging {
        all.insert("logging".into(), json!({}));
    }
    let families =
        [("tools", Family::Tools), ("prompts", Family::Prompts), ("resources", Family::Resources)];
    for (name, family) in families {
        if has(family) {
            all.insert(name.into(), json!({"listChanged": true}));
        }
    }
    match others.tasks {
        Some(Era::Legacy) => {
            let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
            all.insert("tasks".into(), tasks);
        }
        Some(Era::Modern) => drop(all.insert("extensions".into(), json!({TASKS_EXTENSION: {}}))),
        None => {}
    }
    if let Some(resources) = all.get_mut("resources").filter(|_| others.subscriptions) {
        resources["subscribe"] = json!(true);
    }
    if others.completions && (all.contains_key("prompts") || all.contains_key("resources")) {
        all.insert("completions".into(), json!({}));
    }
    Value::Object(all).to_string().into_bytes()
}
