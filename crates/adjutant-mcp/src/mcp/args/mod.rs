//! The arguments of tools: their types, accepted spellings, and parsing. Each tool has a struct for its arguments.
//! All errors in a call's arguments are detected here and reported in terms that a model can act on.

mod entries;
#[cfg(test)]
mod fields;
mod param;
mod read;

pub use entries::{AnswerEntry, QuestionEntry};
#[cfg(test)]
pub use fields::fields_of;
pub use param::{DECISIONS, Kind, Param, Spelling, input_schema};
pub use read::Args;
