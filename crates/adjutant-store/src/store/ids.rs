//! Ids, times and words as they are stored.

use super::StoreError;
use super::db::{self, Columns, FromValue, ValueRef};
use adjutant_core::chat::{ChatId, ChatKind, EntryKind, Participant};
use adjutant_core::merge::MergeMode;
use adjutant_core::policy::GrantNo;
use adjutant_core::tree::Rank;
use adjutant_core::{
    AgentName, AnsweredBy, AttemptNo, EventSeq, Isolation, PeerName, Principal, PromptVia,
    RequestId, RequestNo, RunId, SteadyTime, Time, WorkspaceState,
};

/// Parses the id of a run.
pub(super) fn run_id(text: &str) -> Result<RunId, StoreError> {
    RunId::parse(text).map_err(|_| StoreError::Corrupt(format!("run {text}")))
}

/// Parses the id of a request.
pub(super) fn request_id(text: &str) -> Result<RequestId, StoreError> {
    RequestId::parse(text).map_err(|_| StoreError::Corrupt(format!("request {text}")))
}

/// Types that are stored as a number.
macro_rules! numbers {
    ($($type:ident)+) => {
        $(impl FromValue for $type {
            #[inline]
            fn from_value(value: ValueRef<'_>) -> Option<Self> {
                FromValue::from_value(value).map(Self)
            }
        })+
    };
}
numbers!(AttemptNo ChatId EventSeq GrantNo RequestNo SteadyTime Time);

impl FromValue for Rank {
    const NOUN: Option<&'static str> = Some("rank");

    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        Self::from_number(u8::from_value(value)?)
    }
}

/// Types that are stored as a text, each with its name in an error, and the function that parses
/// it.
macro_rules! texts {
    ($($type:ident, $noun:literal, $parse:expr;)+) => {
        $(impl $crate::store::db::FromValue for $type {
            const NOUN: Option<&'static str> = Some($noun);

            #[inline]
            fn from_value(value: $crate::store::db::ValueRef<'_>) -> Option<Self> {
                $parse($crate::store::db::text(value)?)
            }
        })+
    };
}
pub(super) use texts;

texts! {
    RunId, "run", |text| Self::parse(text).ok();
    RequestId, "request", |text| Self::parse(text).ok();
    AgentName, "agent", |text| Self::parse(text).ok();
    PeerName, "peer", |text| Self::parse(text).ok();
    Principal, "principal", Self::parse;
    Participant, "participant", Self::parse;
    AnsweredBy, "answered by", Self::parse;
    ChatKind, "kind", Self::from_word;
    EntryKind, "kind", Self::from_word;
    Isolation, "kind", Self::from_word;
    MergeMode, "mode", Self::from_word;
    PromptVia, "way of a prompt", Self::from_word;
    WorkspaceState, "state", Self::from_word;
}

/// Reads a number that is never negative. A negative one is treated as 0.
pub(super) fn unsigned(columns: &mut Columns<'_>) -> db::Result<u64> {
    columns.value().map(not_negative)
}

/// Reads a number that is never negative, if there is one.
pub(super) fn unsigned_if_any(columns: &mut Columns<'_>) -> db::Result<Option<u64>> {
    let number: Option<i64> = columns.value()?;
    Ok(number.map(not_negative))
}

fn not_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
