//! Requests of a modern task to the client: `inputRequests` of `tasks/get`, answered with `tasks/update`.
//!
//! A request that may not reach the client ends the task: it is canceled at its server, and the client gets a refusal.

use toolward_wire::exchange::ExchangeEnd;
use toolward_wire::input_requests;
use toolward_wire::method::PolicySubject;
use toolward_wire::{Message, MethodRow, Raw, RawMember, Sender};

use super::questions::{Declined, MALFORMED, Questions};
use super::tasks::{self, decide_requests};
use crate::permit::Permit;
use crate::upstream::Opened;

/// Whether a response about a task asks the client something.
pub(super) fn asks(row: &MethodRow, message: &Message) -> bool {
    message.result_member("inputRequests").is_some()
        && (row.subject == PolicySubject::Task || tasks::is_modern_task(message))
}

/// Decides about the requests in a response about a task: the response as the client gets it.
pub(super) async fn relay(
    questions: &Questions<'_>,
    opened: &Opened,
    message: Message,
) -> Result<ExchangeEnd, Declined> {
    let id = message.result_member("taskId").and_then(Raw::as_str).ok_or(MALFORMED)?.into_owned();
    let connection = opened.connection();
    let own = questions.own_answers(&message);
    let message = match own.is_empty() {
        true => message,
        false => {
            connection.update_task(&id, &own).await;
            let is_open = |one: &RawMember<'_>| !own.iter().any(|(key, _)| one.is(key));
            let rest = message.result_member("inputRequests").map(|all| all.kept(is_open));
            changed(&message, rest.ok_or(MALFORMED)?)?
        }
    };
    let envelope = questions.envelope;
    let (active, client, server) = (&envelope.active, &envelope.client, questions.server.name());
    let decided = decide_requests(active, client, server, &message).map_err(Declined);
    questions.record_relayed(&message, decided.as_ref().err().copied()).await;
    let message = match decided {
        Ok(Some(requests)) => changed(&message, requests)?,
        Ok(None) => message,
        Err(declined) => {
            connection.cancel_task(&id).await;
            return Err(declined);
        }
    };
    let body = message.edit().id(&envelope.id).remove_own_meta().finish_shared();
    Ok(ExchangeEnd::Response { message, body })
}

/// Reduces `tasks/update` to responses to requests that the client may be asked, and that the task waits for.
///
/// The gateway keeps nothing about tasks, so the server is asked what its task waits for.
pub(super) async fn update(questions: &Questions<'_>, permit: Permit) -> Result<Permit, Declined> {
    if permit.message().param("inputResponses").is_none() {
        return Ok(permit);
    }
    let envelope = questions.envelope;
    let (active, client, server) = (&envelope.active, &envelope.client, questions.server);
    let declared = active.declared(client, server);
    let connection = questions.context.servers.connect(server, client, declared).await;
    let connection = connection.map_err(|_| Declined("the server is not available"))?;
    let id = permit.decision().original.clone();
    let Some(task) = connection.task(&id).await else {
        // The server rejects the update of a task that it does not know.
        return permit.with_responses_to(&[]).ok_or(MALFORMED);
    };
    if let Err(why) = decide_requests(active, client, server.name(), &task) {
        questions.record_relayed(&task, Some(Declined(why))).await;
        connection.cancel_task(&id).await;
        return Err(Declined(why));
    }
    let entries = input_requests::entries(&task).ok_or(MALFORMED)?;
    let keys: Vec<String> = entries.iter().map(|(key, _)| key.clone().into_owned()).collect();
    permit.with_responses_to(&keys).ok_or(MALFORMED)
}

/// A response about a task with other requests.
fn changed(message: &Message, requests: Vec<u8>) -> Result<Message, Declined> {
    let body = message.edit().set_result("inputRequests", requests).finish();
    Message::parse(body, usize::MAX, Sender::Server).map_err(|_| MALFORMED)
}
