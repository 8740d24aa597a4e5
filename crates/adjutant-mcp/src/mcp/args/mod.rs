//! The arguments of tools: their types, accepted spellings, and parsing. Each tool has a struct for
//! its arguments. All errors in a call's arguments are detected here and reported in terms that a
//! model can act on.

mod entries;
#[cfg(test)]
mod fields;
mod param;
mod read;

pub(crate) use entries::{AnswerEntry, QuestionEntry};
#[cfg(test)]
pub(super) use fields::fields_of;
pub(crate) use param::DECISIONS;
pub use param::Param;
pub(super) use param::{Kind, Spelling, input_schema};
pub(super) use read::Args;
