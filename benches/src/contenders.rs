//! Other policy engines, with equivalent policies.
//!
//! Each is set up in its favor: requests and contexts are built before the clock starts, rules are
//! sorted so that the first match decides, and conditions that an engine can index are placed where it
//! indexes them.

#[cfg(feature = "contenders")]
mod cedar;
#[cfg(feature = "contenders")]
mod cel;
mod linear;

#[cfg(feature = "contenders")]
pub use self::cedar::Cedar;
#[cfg(feature = "contenders")]
pub use self::cel::Cel;
pub use self::linear::Linear;

use crate::world::{Request, World};

/// An engine that answers prepared requests, by their index.
pub trait Contender {
    fn name(&self) -> &'static str;

    /// Whether the call is allowed.
    fn allows(&self, request: usize) -> bool;
}

/// All of them, with their policies loaded and the requests prepared.
pub fn all(world: &World, requests: &[Request]) -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(Linear::over_all_rules(world, requests)),
        Box::new(Linear::over_own_rules(world, requests)),
        #[cfg(feature = "contenders")]
        Box::new(Cel::new(world, requests)),
        #[cfg(feature = "contenders")]
        Box::new(Cedar::new(world, requests)),
    ]
}
