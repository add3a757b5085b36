//! Size limits of JSON messages.

/// Containers inside each other, the outermost counted.
pub const MAX_DEPTH: usize = 64;
/// Members of one object.
pub const MAX_MEMBERS: usize = 10_000;
/// The default size cap of a request.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// The default size cap of an answer.
pub const MAX_RESPONSE_BYTES: usize = 64 << 20;
