//! Stores of limit counters: in this process, or in a Redis server that several gateways share.

pub(super) mod counters;
#[cfg(feature = "redis")]
pub(super) mod redis;
#[cfg(not(feature = "redis"))]
#[path = "store/without_redis.rs"]
pub(super) mod redis;
