//! Reads the output of coding agents. Pure: bytes and lines in, text and events out.
//!
//! - [`decoder`]: bytes to readable text, for agents that print text.
//! - [`mod@format`]: the rules of a preset for a CLI's JSON lines, as data.
//! - [`rules`]: applies the rules to a line and returns its events.
//! - [`reader`]: reads a whole stream and produces its log, updates and summary.
//! - [`api_usage`]: finds the token counts in responses of models' APIs.
//! - [`signal`]: finds signal blocks in streamed text, and reads them.
//! - [`text_retries`]: finds retries that a CLI reports in plain text.
//!
//! It is a separate crate because it is compiled for speed and the rest of the binary for size. Its
//! interface has few generics, because generic code is compiled with its callers.

#![forbid(unsafe_code)]

pub mod api_usage;
pub mod calls;
pub mod decoder;
pub mod format;
pub mod reader;
pub mod rules;
pub mod signal;
pub mod text_retries;
