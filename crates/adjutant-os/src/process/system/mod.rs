//! What only one system can do, with one interface and a module for each system.
//!
//! What a system cannot do yet is [`Unsupported`], an error that names it.

#[cfg(not(target_os = "linux"))]
mod darwin;
#[cfg(target_os = "linux")]
mod linux;
mod unsupported;

#[cfg(not(target_os = "linux"))]
pub use darwin::*;
#[cfg(target_os = "linux")]
pub use linux::*;
pub use unsupported::Unsupported;
