//! The echo agent's standard output, written line by line. A closed pipe does not cause a panic.

use std::io::{self, Write};

/// The exit code of a program that SIGPIPE ends.
const EXIT_BROKEN_PIPE: i32 = 141;

/// Writes one line.
pub(super) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes a line to standard error, which is not part of the result.
pub(super) fn warning(text: &str) {
    // Nobody reads it: not a reason to end.
    drop(writeln!(io::stderr(), "{text}"));
}

/// Writes bytes as they are.
pub(super) fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(EXIT_BROKEN_PIPE);
    }
}

/// Writes `total` bytes: numbered lines, or one line when `lines` is false.
pub(super) fn flood(total: u64, lines: bool) {
    const CHUNK_BYTES: usize = 64 * 1024;
    let chunk: Vec<u8> = if lines {
        let line = b"The quick brown fox jumps over the lazy dog, again and again and again, and nobody stops it at all.\n";
        line.iter()
            .copied()
            .cycle()
            .take(line.len() * (CHUNK_BYTES / line.len()))
            .collect()
    } else {
        vec![b'x'; CHUNK_BYTES]
    };
    let mut left = total;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        bytes(&chunk[..now]);
        left -= now as u64;
    }
    bytes(b"\n");
}
