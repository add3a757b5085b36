//! What the fuzz targets share: a second, naive reading of the contract, and policies made from
//! arbitrary bytes.

pub mod arbitrary;
pub mod loading;
pub mod model;
pub mod reference;
pub mod wire;
