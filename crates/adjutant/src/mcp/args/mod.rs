//! A tool's arguments: what it takes, in which spellings, and reading them. Each tool has a struct of its own
//! for them. Everything that can be wrong with a call's arguments is found here, and said in words that a model
//! can act on.

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
