//! Adjutant: hands tasks to CLI coding agents of any vendor, supervises them, and stays in contact
//! with them. `ARCHITECTURE.md` is the map.

pub mod link;
pub mod view;
