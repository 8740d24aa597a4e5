//! Finds signal blocks in a run's streamed text, and parses them. `adjutant_core::signal` decides
//! what a block means and whether it counts.

mod fields;
mod scan;

pub use scan::{BLOCK_BYTES_MAX, FoundSignal, Scanner};

use adjutant_core::signal::{
    Own, Reading, SignalError, SignalKind, read_block, read_broken, read_json,
};

/// Interprets a candidate that the scanner has found in the output of the run `own`.
#[must_use]
pub fn interpret(found: &FoundSignal, own: Own<'_>) -> Reading {
    match found {
        FoundSignal::Block {
            kind,
            text,
            is_closed,
        } => read_block(*kind, text, *is_closed, own, fields::from_yaml),
        FoundSignal::Json { text } => match fields::from_json(text) {
            Ok(parsed) => read_json(text, Ok(parsed), own),
            Err(why) => match fields::from_json(&fields::repaired(text)) {
                Ok(parsed) => read_json(text, Ok(parsed), own).repaired(),
                Err(_) => read_json(text, Err(why), own),
            },
        },
        FoundSignal::Oversized { kind: _, text } => read_broken(
            text,
            SignalError::TooLarge {
                bytes_max: BLOCK_BYTES_MAX,
            },
            own,
        ),
        FoundSignal::Mention { .. } => Reading::Ignored(SignalError::NoBlock),
    }
}

/// Returns the kind of a candidate, if it names one.
#[must_use]
pub fn kind_of(found: &FoundSignal) -> Option<SignalKind> {
    match found {
        FoundSignal::Block { kind, .. }
        | FoundSignal::Oversized { kind, .. }
        | FoundSignal::Mention { kind, .. } => Some(*kind),
        FoundSignal::Json { text } => fields::kind_of_json(text),
    }
}

#[cfg(test)]
mod tests;
