//! Signals in a run's own words: finding the blocks while the output streams by, and reading them.
//! What a block means, and whether it counts, is decided in `adjutant_core::signal`.

mod fields;
mod scan;

pub use scan::{BLOCK_BYTES_MAX, Found, Scanner};

use adjutant_core::RunId;
use adjutant_core::signal::{Field, Signal, SignalError, SignalKind, read};

/// Reads what a scanner has found, for the run `own`.
///
/// # Errors
/// Why the block does not count.
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

/// Reads the fields of what a scanner has found. The run that it names is checked later.
///
/// # Errors
/// It is neither YAML nor JSON.
pub fn fields_of(found: &Found) -> Result<(SignalKind, Field), SignalError> {
    match found {
        Found::Block { kind, text } => Ok((*kind, fields::from_yaml(text)?)),
        Found::Json { text } => fields::from_json(text),
        Found::Broken { why, .. } => Err(why.clone()),
    }
}

#[cfg(test)]
mod tests;
