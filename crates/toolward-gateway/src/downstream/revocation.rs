//! Ends streams and held calls whose credential is revoked. They outlive their request, so the request's
//! credential is checked again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use toolward_wire::http::RequestHead;

use super::http::Endpoint;
use super::peer::Peer;
use super::response::Ticket;
use super::tls::Chain;
use crate::authn::PresentedCredentials;
use crate::responses::Hold;

/// Interval at which the JWT of an open stream is checked again: without further requests, nothing else
/// checks it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Whether the client certificate of a connection is still valid.
    pub(super) fn trusts(&self, peer: &Peer) -> bool {
        let Some(chain) = &peer.chain else { return true };
        self.tls.as_ref().is_some_and(|tls| tls.trusts(chain))
    }

    /// Watches the credential of a request, in case its call is held.
    pub(super) fn watch_held(
        self: &Arc<Self>,
        peer: &Peer,
        agent: Option<Arc<str>>,
        head: &RequestHead,
    ) -> HeldWatch {
        HeldWatch { endpoint: self.clone(), peer: peer.copied(), ticket: Ticket::of(agent, head) }
    }

    /// Resolves when the caller's credential is no longer accepted.
    pub(super) async fn revoked(&self, peer: &Peer, ticket: &Ticket) {
        let mut activated = self.gateway.activations();
        let mut renewed = self.tls.as_ref().map(|tls| tls.renewed());
        loop {
            // A configuration may have been activated between the request and its stream.
            activated.borrow_and_update();
            if let Some(renewed) = &mut renewed {
                renewed.borrow_and_update();
            }
            let active = self.gateway.active();
            let authorization = ticket.authorization.as_deref();
            let mut keys = active.identities.keys_read(authorization);
            if !self.trusts(peer) {
                return;
            }
            let presented = PresentedCredentials {
                authorization: ticket.authorization.as_deref(),
                path: &ticket.path,
                uid: peer.uid,
                certificate: peer.certificate.as_ref(),
            };
            let Ok(known) = active.identities.identify(&presented).await else { return };
            if known.caller.agent != ticket.agent {
                return;
            }
            // An open stream must not keep an old configuration alive.
            drop(active);
            let by_key = known.caller.claims.is_some();
            let left = peer.chain.as_ref().map(Chain::left);
            tokio::select! {
                _ = activated.changed() => {}
                () = changed(&mut renewed), if left.is_some() => {}
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
                // The issuer may revoke the key, which only shows when the keys are fetched again.
                () = changed(&mut keys), if by_key => {}
                () = tokio::time::sleep(RECHECK_INTERVAL), if by_key => {}
            }
        }
    }
}

/// The credential of a request whose call may be held.
pub(super) struct HeldWatch {
    endpoint: Arc<Endpoint>,
    peer: Peer,
    ticket: Ticket,
}

impl HeldWatch {
    /// Cancels a held call when the credential is revoked. Ends when the call is continued, by a request with a
    /// credential of its own.
    pub(super) fn begin(self, hold: Hold) {
        let HeldWatch { endpoint, peer, ticket } = self;
        tokio::spawn(async move {
            tokio::select! {
                () = endpoint.revoked(&peer, &ticket) => {
                    endpoint.gateway.context.held.cancel(hold.slot);
                }
                _ = hold.released => {}
            }
        });
    }
}

async fn changed(what: &mut Option<watch::Receiver<u64>>) {
    if let Some(what) = what
        && what.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
