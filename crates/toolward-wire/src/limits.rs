//! Size limits of JSON messages.

/// Maximum nesting depth of arrays and objects, including the outermost one.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of members in one object.
pub const MAX_MEMBERS: usize = 10_000;
/// Default maximum size of a request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;
/// Default maximum size of a response, in bytes.
pub const MAX_RESPONSE_BYTES: usize = 64 << 20;
