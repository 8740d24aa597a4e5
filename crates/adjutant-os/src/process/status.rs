//! The messages of init and of the start of a fence to the supervisor, on the status pipe.

use std::io::{self, Read, Write};

/// Longest text, in bytes.
const WHY_BYTES_MAX: usize = 2048;

/// A message of init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The namespace cannot be set up, with an errno.
    NotSetUp(i32),
    /// The worker cannot be started, with an errno.
    NotStarted(i32),
    Started,
    /// The user namespace of a fence exists, and its id maps can be written.
    Unshared,
    /// The fence failed, so there is no worker. A text of this many bytes follows with the reason.
    NotFenced(i32),
    /// A Landlock fence is in effect, and the program is about to start. A text of this many bytes
    /// follows: what the fence does not enforce, one item per line.
    Gaps(i32),
    /// The worker has ended, with its wait status.
    Ended(i32),
}

impl Message {
    pub const BYTES: usize = 8;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let (tag, value) = match self {
            Self::NotSetUp(errno) => (1_i32, errno),
            Self::NotStarted(errno) => (2, errno),
            Self::Started => (3, 0),
            Self::Ended(status) => (4, status),
            Self::Unshared => (5, 0),
            Self::NotFenced(bytes) => (6, bytes),
            Self::Gaps(bytes) => (7, bytes),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&tag.to_le_bytes());
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let value = i32::from_le_bytes([e, f, g, h]);
        match i32::from_le_bytes([a, b, c, d]) {
            1 => Some(Self::NotSetUp(value)),
            2 => Some(Self::NotStarted(value)),
            3 => Some(Self::Started),
            4 => Some(Self::Ended(value)),
            5 => Some(Self::Unshared),
            6 => Some(Self::NotFenced(value)),
            7 => Some(Self::Gaps(value)),
            _ => None,
        }
    }

    /// Writes [`Message::NotFenced`] and its text.
    ///
    /// # Errors
    /// The supervisor has exited.
    pub(crate) fn write_not_fenced(status: &mut impl Write, why: &str) -> io::Result<()> {
        Self::write_text(status, Self::NotFenced, why)
    }

    /// Writes [`Message::Gaps`] and its text.
    ///
    /// # Errors
    /// The supervisor has exited.
    pub(crate) fn write_gaps(status: &mut impl Write, gaps: &str) -> io::Result<()> {
        Self::write_text(status, Self::Gaps, gaps)
    }

    fn write_text(
        status: &mut impl Write,
        message: impl Fn(i32) -> Self,
        text: &str,
    ) -> io::Result<()> {
        let text = &text.as_bytes()[..text.len().min(WHY_BYTES_MAX)];
        let mut bytes = message(i32::try_from(text.len()).map_err(io::Error::other)?)
            .encode()
            .to_vec();
        bytes.extend_from_slice(text);
        status.write_all(&bytes)
    }

    /// Reads the text after [`Message::NotFenced`] or [`Message::Gaps`].
    ///
    /// # Errors
    /// The other end was closed.
    pub(crate) fn read_why(status: &mut impl Read, bytes: i32) -> io::Result<String> {
        let mut why = vec![0; usize::try_from(bytes).unwrap_or(0).min(WHY_BYTES_MAX)];
        status.read_exact(&mut why)?;
        Ok(String::from_utf8_lossy(&why).into_owned())
    }
}
