//! Finds signal blocks in a run's streamed text, and parses them. `adjutant_core::signal` decides what a block means
//! and whether it counts.

mod fields;
mod scan;

pub use scan::{BLOCK_BYTES_MAX, Found, Scanner};

use adjutant_core::RunId;
use adjutant_core::signal::{Field, Signal, SignalError, SignalKind, read};

/// Interprets a block that the scanner has found, for the run `own`.
///
/// # Errors
/// The block is not a valid signal of this run.
pub fn interpret(found: &Found, own: RunId) -> Result<Signal, SignalError> {
    match found {
        Found::Block { kind, text } => read(*kind, &fields::from_yaml(text)?, own),
        Found::Json { text } => {
            let (kind, fields) = fields::from_json(text)?;
            read(kind, &fields, own)
        }
        Found::Broken { why, .. } => Err(why.clone()),
    }
}

/// Parses the fields of a block. The run that it names is checked later.
///
/// # Errors
/// The block is neither YAML nor JSON.
pub fn fields_of(found: &Found) -> Result<(SignalKind, Field), SignalError> {
    match found {
        Found::Block { kind, text } => Ok((*kind, fields::from_yaml(text)?)),
        Found::Json { text } => fields::from_json(text),
        Found::Broken { why, .. } => Err(why.clone()),
    }
}

#[cfg(test)]
mod tests;
