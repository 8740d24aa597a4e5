//! What a tool shows: a few lines for people and models, and the same facts as structured content.
//! Some clients give the model only the one, some only the other, so nothing may be in one alone.

mod event;
mod limits;
mod report;
mod request;
mod result;
mod run;
#[cfg(test)]
mod tests;

pub use event::{event_brief, event_line, message_line};
pub use limits::{QUESTION_CHARS, QUESTIONS_MAX, RESULT_CHARS, RESULT_CHARS_LISTED};
pub use request::{recorded_line, request_brief, request_full, request_line};
pub use result::Shown;
pub use run::{attention_line, outcome_of, request_lines, run_brief, run_full, run_line, run_lines};
