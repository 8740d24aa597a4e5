//! The gate to a model's API: on its own with scripted and hostile APIs, and in whole runs.

mod disk;
mod forward;
mod hostile;
mod refused;
pub mod rig;
mod runs;
mod secure;
