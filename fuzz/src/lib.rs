//! Code shared by the fuzz targets: a naive reference model, and policies generated from bytes.

pub mod arbitrary;
pub mod loading;
pub mod model;
pub mod reference;
pub mod wire;
