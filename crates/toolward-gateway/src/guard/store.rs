//! Stores of limit counters: in this process, or in a Redis server that several gateways share.

pub(super) mod counters;
pub(super) mod redis;
