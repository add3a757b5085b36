//! The handshake on a process, in one protocol version or in both.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use toolward_wire::jsonrpc::request_body;
use toolward_wire::{Era, Id, Message};

use super::{Process, is_answer};
use crate::upstream::Unavailable;
use crate::upstream::handshake::{Opening, announced_changes, own_request};
use crate::upstream::transport::ids;

/// How long a server that has responded may take to respond to another handshake.
const SECOND_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A successful handshake.
pub(in crate::upstream) enum Greeted {
    Own,
    /// The process belongs to the connection that claimed it.
    Claimed {
        claim: Claim,
        /// The server supports the own protocol version as well, in another process.
        both: bool,
    },
}

/// A request to ask a process in the other protocol version, too, and to hand it over if it accepts that.
pub(in crate::upstream) struct Claim {
    opening: Opening,
    reply: oneshot::Sender<Result<Process, Unavailable>>,
}

impl Claim {
    pub(in crate::upstream) fn new(
        opening: Opening,
        reply: oneshot::Sender<Result<Process, Unavailable>>,
    ) -> Claim {
        Claim { opening, reply }
    }

    pub(in crate::upstream) fn hand_over(self, process: Process) {
        if let Err(Ok(unwanted)) = self.reply.send(Ok(process)) {
            tokio::spawn(unwanted.end());
        }
    }

    fn decline(self, why: Unavailable) {
        let _ = self.reply.send(Err(why));
    }
}

impl Process {
    /// Performs the handshake, which shows whether the server supports the protocol version. If the process is claimed
    /// before it has responded, it is asked in the other protocol version, too.
    pub(in crate::upstream) async fn handshake(
        &mut self,
        opening: &Opening,
        claim: impl Future<Output = Claim>,
    ) -> Result<Greeted, Unavailable> {
        self.rejected = None;
        let id = self.ask(opening)?;
        let ids = [&id];
        let claim = tokio::select! {
            biased;
            answer = self.answer_to(&ids) => return self.conclude(opening, answer?).await,
            claim = claim => claim,
        };
        self.ask_in_both(&id, opening, claim).await
    }

    /// Sends the handshake of the claim as well, whose response decides: some servers of both protocol versions serve
    /// the one that was requested last.
    async fn ask_in_both(
        &mut self,
        id: &Id,
        opening: &Opening,
        mut claim: Claim,
    ) -> Result<Greeted, Unavailable> {
        let is_ok =
            |own: &Option<Message>| own.as_ref().is_some_and(|own| opening.accept(own).is_ok());
        let mut second = self.ask(&claim.opening)?;
        let mut own = None;
        let declined = loop {
            let ids = [id, &second];
            let answer = match is_ok(&own) {
                false => self.answer_to(&ids).await?,
                true => match timeout(SECOND_ANSWER_TIMEOUT, self.answer_to(&ids)).await {
                    Ok(answer) => answer?,
                    Err(_) => break Unavailable::Taken,
                },
            };
            if answer.id() == Some(id) {
                own = Some(answer);
                continue;
            }
            if let Some(other) = claim.opening.in_supported(&answer) {
                second = self.ask(&other)?;
                claim.opening = other;
                continue;
            }
            match claim.opening.accept(&answer) {
                Ok(()) if is_ok(&own) && self.still_serves(opening).await? => {
                    break Unavailable::Taken;
                }
                Ok(()) => {
                    self.open_session(&claim.opening, answer);
                    return Ok(Greeted::Claimed { both: is_ok(&own), claim });
                }
                Err(why) => break why,
            }
        };
        let own = match own {
            Some(own) => own,
            None => self.answer_to(&[id]).await?,
        };
        // A process that serves one protocol version rejects the other, even if the server supports both.
        let is_taken = opening.accept(&own).is_ok();
        claim.decline(if is_taken { Unavailable::Taken } else { declined });
        self.conclude(opening, own).await
    }

    /// Whether a process that accepted both handshakes accepts the first one again.
    async fn still_serves(&mut self, opening: &Opening) -> Result<bool, Unavailable> {
        let id = self.ask(opening)?;
        let answer = timeout(SECOND_ANSWER_TIMEOUT, self.answer_to(&[&id])).await;
        Ok(match answer {
            Ok(answer) => opening.accept(&answer?).is_ok(),
            Err(_) => false,
        })
    }

    async fn conclude(
        &mut self,
        opening: &Opening,
        answer: Message,
    ) -> Result<Greeted, Unavailable> {
        let mut answer = answer;
        if let Some(other) = opening.in_supported(&answer) {
            let id = self.ask(&other)?;
            answer = self.answer_to(&[&id]).await?;
        }
        if let Err(why) = opening.accept(&answer) {
            self.rejected = (why == Unavailable::OtherEra).then(|| opening.era());
            return Err(why);
        }
        self.open_session(opening, answer);
        Ok(Greeted::Own)
    }

    /// The protocol version that it rejected. It can be asked in the other.
    pub(in crate::upstream) fn rejected(&self) -> Option<Era> {
        self.rejected
    }

    fn open_session(&mut self, opening: &Opening, hello: Message) {
        match opening {
            Opening::Legacy { .. } => {
                self.write(request_body(None, "notifications/initialized", None));
            }
            // A modern server announces changes only to subscribers.
            Opening::Modern => {
                let listen = |params| own_request("subscriptions/listen", params, opening.era());
                if let Some(own) = announced_changes(&hello).and_then(listen) {
                    let id = Id::text("toolward-changes");
                    self.write(own.message.edit().id(&id).finish());
                }
            }
        }
        self.hello = Some(hello);
    }

    /// Sends the first request of a protocol version; returns its id.
    fn ask(&mut self, opening: &Opening) -> Result<Id, Unavailable> {
        let id = Id::number(ids::mint());
        let body = opening.request(&id);
        let body =
            body.ok_or_else(|| Unavailable::Down("internal error: no handshake request".into()))?;
        self.write(body);
        Ok(id)
    }

    /// The next response to one of these requests.
    async fn answer_to(&mut self, ids: &[&Id]) -> Result<Message, Unavailable> {
        loop {
            // Some servers exit when they receive an unknown method.
            match self.message().await.ok_or(Unavailable::Unclear)? {
                Ok(message)
                    if is_answer(&message) && ids.iter().any(|id| message.id() == Some(id)) =>
                {
                    return Ok(message);
                }
                Ok(message) => self.unattributed(&message, false),
                Err(unreadable) => {
                    if unreadable.id.is_some()
                        && ids.iter().any(|id| id.as_number() == unreadable.id)
                    {
                        return Err(Unavailable::Unclear);
                    }
                }
            }
        }
    }
}
