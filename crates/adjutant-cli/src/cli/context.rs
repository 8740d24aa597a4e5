//! The context of a command: the home, the hub, the output.

use super::exit::cli_codes;
use super::out::{Failure, Out, fail, fail_hint};
use crate::config::{Home, HomeError};
use crate::hub_client::Client;
use crate::view::codes;
use jiff::Timestamp;
use std::io::Read;

/// One byte more than the longest text that is read from a file or standard input.
const INPUT_BYTES_MAX: u64 = adjutant_core::limits::PROMPT_BYTES_MAX as u64 + 1;

/// The context of a command.
#[derive(Debug)]
pub(super) struct Context {
    pub home: Home,
    pub hub: Client,
    pub out: Out,
}

impl Context {
    /// Finds the home. The first call starts the hub.
    pub(super) fn new(out: &Out) -> Result<Self, Failure> {
        let home = home()?;
        Ok(Self {
            hub: Client::hub(&home, None),
            home,
            out: out.clone(),
        })
    }

    /// Formats a time for the output: its age on a terminal, else unchanged.
    pub(super) fn time(&self, time: &str) -> String {
        super::age::shown(time, now(), self.out.terminal)
    }
}

/// Finds the home.
pub(super) fn home() -> Result<Home, Failure> {
    Home::from_env().map_err(|e| {
        let hint = if matches!(e, HomeError::Switch { .. }) {
            "unset ADJ_EPHEMERAL"
        } else {
            "set ADJ_HOME to a directory of yours"
        };
        fail_hint(codes::INVALID, e.to_string(), hint)
    })
}

/// Returns the current time, for ages on the screen.
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

/// Returns the zone in which people see times of the day.
pub(super) fn zone() -> jiff::tz::TimeZone {
    crate::clock::zone(crate::config::text_variable("TZ").as_deref())
}

/// Runs a command on a new current-thread runtime.
pub(super) fn block_on<F: Future>(command: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| fail(cli_codes::IO, format!("cannot start the event loop: {e}")))?;
    Ok(runtime.block_on(command))
}

/// Returns the text of an argument, or reads standard input for `-`.
pub(crate) fn text_argument(text: &str, what: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    read_text(std::io::stdin().lock(), what, "standard input")
}

/// Like `text_argument`, for a text given in several words. `None`: no word is given.
pub(crate) fn words_argument<'a>(
    words: impl IntoIterator<Item = &'a String>,
    what: &str,
) -> Result<Option<String>, Failure> {
    let words: Vec<&str> = words.into_iter().map(String::as_str).collect();
    if words.is_empty() {
        Ok(None)
    } else {
        text_argument(&words.join(" "), what).map(Some)
    }
}

/// Reads a text of limited size.
pub(super) fn read_text(from: impl Read, what: &str, place: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(INPUT_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| {
            fail(
                cli_codes::IO,
                format!("cannot read {what} from {place}: {e}"),
            )
        })?;
    if bytes.len() as u64 == INPUT_BYTES_MAX {
        let message = format!(
            "{what} from {place} is longer than {} bytes",
            INPUT_BYTES_MAX - 1
        );
        return Err(fail_hint(
            codes::INVALID,
            message,
            "save it in a file of the working directory, and name the file in a shorter text",
        ));
    }
    String::from_utf8(bytes).map_err(|e| {
        fail_hint(
            codes::INVALID,
            format!(
                "{what} from {place} is not UTF-8 (byte {})",
                e.utf8_error().valid_up_to()
            ),
            "convert it to UTF-8",
        )
    })
}
