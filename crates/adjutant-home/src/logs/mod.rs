//! A run's readable log: the paths of its files, and reading any part of it, also while it grows.
//!
//! The decoded output is one stream of bytes, addressed from 0. Its beginning is in the log file,
//! `<home>/logs/<run-id>.log` (`<run-id>.2.log` for the second attempt, and so on). Output beyond
//! half of the cap is in segments below the attempt's directory, of which the oldest are dropped.
//! At the end, the segments are appended to the log file, after a line with the number of omitted
//! bytes. A map in the attempt's directory records the layout.
//!
//! ```text
//!  stream   |------ head ------|........ omitted ........|-- segment --|- segment -|
//!  full     |------ head ------| marker line |-------------- tail ------------------|
//! ```

pub mod kept;
mod map;
pub mod page;
mod part;
mod paths;
mod run_files;
pub mod stored;
mod stream;
pub mod times;
pub mod watch;

pub use map::{Map, Merged, marker};
pub use part::{Output, Part, Query};
pub use paths::{
    log_path, log_paths, prompt_path, raw_dir, raw_path, segment_path, segments, times_path,
};
pub(crate) use run_files::read_run;
pub use run_files::{RunFiles, read};

/// Bytes that are read from a file at once.
const READ_BYTES: usize = 256 * 1024;
/// More than the length of any stream. Sums of positions below this do not overflow.
pub const STREAM_BYTES_MAX: u64 = 1 << 52;
