//! Reads what a coding agent writes. Pure: bytes and lines in, text and events out.
//!
//! - [`decoder`]: bytes to readable text, for agents that print text.
//! - [`format`]: what the JSON lines of a CLI mean, as data of a preset.
//! - [`rules`]: the events in one line.
//! - [`reader`]: a whole stream: its log, its updates and its summary.
//!
//! A crate of its own, because it is compiled for speed and the rest of the binary for size. Its interface
//! is therefore not generic: generic code would be compiled with its callers.

pub mod calls;
pub mod cut;
pub mod decoder;
pub mod format;
pub mod reader;
pub mod rules;
