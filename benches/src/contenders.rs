//! Other policy engines, with equivalent policies.
//!
//! Each is set up in its favor: requests and contexts are built before the clock starts, rules are
//! sorted so that the first match decides, and conditions that an engine can index are placed where it
//! indexes them.

mod cedar;
mod cel;
mod linear;

pub use self::cedar::Cedar;
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
        Box::new(Cel::new(world, requests)),
        Box::new(Cedar::new(world, requests)),
    ]
}
