//! Streams outlast the request by which they were asked for; what that showed must stay good.

use std::time::Duration;

use tokio::sync::watch;

use super::http::Endpoint;
use super::peer::Peer;
use super::response::Ticket;
use super::tls::Chain;
use crate::authn::Shown;

/// How often somebody who listens by a JWT is looked at again: whoever asks for nothing would not be.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Whether the certificate by which a connection began is still good.
    pub(super) fn believes(&self, peer: &Peer) -> bool {
        let Some(chain) = &peer.chain else { return true };
        self.tls.as_ref().is_some_and(|tls| tls.believes(chain))
    }

    /// Resolves when a caller could not come in again with what it showed.
    pub(super) async fn revoked(&self, peer: &Peer, ticket: &Ticket) {
        let mut activated = self.gateway.activations();
        let mut renewed = self.tls.as_ref().map(|tls| tls.renewed());
        loop {
            // An activation may have come between the request and its stream.
            activated.borrow_and_update();
            if let Some(renewed) = &mut renewed {
                renewed.borrow_and_update();
            }
            let active = self.gateway.active();
            let mut keys = active.identities.keys_read();
            if !self.believes(peer) {
                return;
            }
            let shown = Shown {
                authorization: ticket.authorization.as_deref(),
                path: &ticket.path,
                uid: peer.uid,
                certificate: peer.certificate.as_ref(),
            };
            let Ok(known) = active.identities.identify(&shown).await else { return };
            if known.caller.agent != ticket.agent {
                return;
            }
            // A stream holds no configuration.
            drop(active);
            let by_key = known.caller.claims.is_some();
            let left = peer.chain.as_ref().map(Chain::left);
            tokio::select! {
                _ = activated.changed() => {}
                () = changed(&mut renewed), if left.is_some() => {}
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
                // Its issuer may take the key back, and somebody has to ask for that.
                () = changed(&mut keys), if by_key => {}
                () = tokio::time::sleep(LOOK_AGAIN), if by_key => {}
            }
        }
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
