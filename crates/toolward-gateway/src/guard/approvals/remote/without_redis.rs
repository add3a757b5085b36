//! Tickets and grants in Redis, in a build without the feature `redis`: a configuration that needs it is rejected.

use std::convert::Infallible;
use std::io;

use tokio::sync::mpsc;

use super::{Snapshot, StoredRecord};
use crate::guard::store::redis::MISSING;

/// A store that cannot exist.
pub(super) struct RedisStore(Infallible);

impl RedisStore {
    pub(super) fn new(_: &str, _: mpsc::Sender<()>) -> Result<RedisStore, String> {
        Err(MISSING.into())
    }

    pub(super) async fn open(&mut self, _: &[u8]) -> io::Result<Vec<u8>> {
        match self.0 {}
    }

    pub(super) async fn rewrap(&mut self, _: &[u8], _: &[u8]) -> io::Result<Vec<u8>> {
        match self.0 {}
    }

    pub(super) async fn changes(&mut self, _: Option<u64>) -> io::Result<Option<Snapshot>> {
        match self.0 {}
    }

    pub(super) async fn commit(&mut self, _: u64, _: &[StoredRecord]) -> io::Result<bool> {
        match self.0 {}
    }

    pub(super) fn disconnect(&mut self) {
        match self.0 {}
    }
}
