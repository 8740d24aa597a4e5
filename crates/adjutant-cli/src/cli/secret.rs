//! Secrets that are typed at a terminal, without an echo.

use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{self, BufRead, Stdin, Write};

/// Longest secret, in bytes.
const BYTES_MAX: usize = 4_096;
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const KILL_LINE: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// Restores the modes of the terminal when it is dropped.
struct Restore<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        // There is nothing left to do if the terminal has gone away.
        let _restored = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Asks for one line on standard error, and reads it from the terminal on standard input without an
/// echo.
///
/// # Errors
/// Standard input is not a terminal, the person cancels with Ctrl-C or Ctrl-D, or the line is too
/// long.
pub(crate) fn read_hidden(prompt: &str) -> io::Result<String> {
    let terminal = io::stdin();
    let before = tcgetattr(&terminal)?;
    let mut hidden = before.clone();
    // Ctrl-C is read like other keys, so that the modes are always restored.
    hidden
        .local_modes
        .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
    hidden.input_modes.insert(InputModes::ICRNL);
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden)?;
    let restore = Restore {
        terminal: &terminal,
        before,
    };
    let mut to = io::stderr();
    to.write_all(prompt.as_bytes())?;
    to.flush()?;
    let line = read_line(terminal.lock());
    drop(restore);
    to.write_all(b"\n")?;
    line
}

fn read_line(from: impl BufRead) -> io::Result<String> {
    let cancelled = || io::Error::new(io::ErrorKind::Interrupted, "cancelled");
    let mut line = Vec::new();
    for byte in from.bytes() {
        match byte? {
            b'\n' | b'\r' => {
                return String::from_utf8(line)
                    .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"));
            }
            INTERRUPT | END => return Err(cancelled()),
            BACKSPACE | DELETE => drop(line.pop()),
            KILL_LINE => line.clear(),
            byte if line.len() < BYTES_MAX => line.push(byte),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("it is longer than {BYTES_MAX} bytes"),
                ));
            }
        }
    }
    Err(cancelled())
}

#[cfg(test)]
mod tests {
    use super::read_line;

    #[test]
    fn keys_edit_the_line() {
        assert_eq!(read_line(&b"abd\x7fc\rrest"[..]).expect("a line"), "abc");
        assert_eq!(
            read_line(&b"wrong\x15right\n"[..]).expect("a line"),
            "right"
        );
        for cancelled in [&b"abc\x03\n"[..], b"\x04", b"abc"] {
            assert_eq!(
                read_line(cancelled).expect_err("no line").to_string(),
                "cancelled"
            );
        }
        assert!(read_line(&[b'x'; 5_000][..]).is_err());
    }
}
