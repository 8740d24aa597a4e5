//! What a run or its CLI states about itself, as it is stored: its usage, its report, and that it
//! repeats a call.

use crate::store::db::{self, row};
use crate::store::ids::unsigned_if_any;
use adjutant_core::condition::Retrying;
use adjutant_core::{Cause, EventSeq, Time};
use serde::{Deserialize, Serialize};

/// Tokens and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a dollar.
    pub cost_micros: Option<u64>,
    /// The tokens are those of the whole session, including earlier attempts.
    pub of_session: bool,
    /// The cost is that of the whole session.
    pub cost_of_session: bool,
    /// The input includes tokens read from the cache.
    pub cached_in_input: bool,
}

row! {
    /// The columns of what all attempts used up together.
    pub(super) struct UsageRow {
        input_tokens: Option<u64> as unsigned_if_any,
        cached_tokens: Option<u64> as unsigned_if_any,
        output_tokens: Option<u64> as unsigned_if_any,
        cost_micros: Option<u64> as unsigned_if_any,
    }
}

impl UsageRow {
    pub(super) fn usage(self) -> db::Result<Option<Usage>> {
        let Self {
            input_tokens,
            cached_tokens,
            output_tokens,
            cost_micros,
        } = self;
        if (input_tokens, cached_tokens, output_tokens) == (None, None, None) {
            return Ok(None);
        }
        Ok(Some(Usage {
            input_tokens: input_tokens.unwrap_or(0),
            cached_tokens: cached_tokens.unwrap_or(0),
            output_tokens: output_tokens.unwrap_or(0),
            cost_micros,
            of_session: true,
            cost_of_session: true,
            cached_in_input: false,
        }))
    }
}

/// A report whose attempt has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    pub at: Time,
    /// The event that recorded it.
    pub seq: EventSeq,
    pub is_owner_notified: bool,
}

row! {
    /// The columns of a report.
    pub(super) struct ReportedRow {
        reported_at: Option<Time>,
        report_seq: Option<EventSeq>,
        is_owner_notified: bool = "report_seq IS NULL OR report_seq <= notified_seq",
    }
}

impl ReportedRow {
    pub(super) fn reported(self) -> db::Result<Option<Reported>> {
        let Self {
            reported_at,
            report_seq,
            is_owner_notified,
        } = self;
        Ok(reported_at.zip(report_seq).map(|(at, seq)| Reported {
            at,
            seq,
            is_owner_notified,
        }))
    }
}

/// A run's CLI repeats a call that keeps failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryingSince {
    pub cause: Cause,
    pub since: Time,
    /// The number of failed tries in the newest statement.
    pub tries: u32,
    /// The CLI's own message, in one line.
    pub words: String,
}

/// The serialized retry condition of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store) struct RetryingRow {
    cause: String,
    since: i64,
    tries: u32,
    words: String,
}

impl RetryingRow {
    pub(in crate::store) fn of(retrying: &Retrying, since: Time) -> Self {
        let Retrying {
            cause,
            for_ms: _,
            tries,
            words,
        } = retrying.clone();
        Self {
            cause: cause.word().to_owned(),
            since: since.0,
            tries,
            words,
        }
    }

    pub(in crate::store) fn decode(self) -> RetryingSince {
        let Self {
            cause,
            since,
            tries,
            words,
        } = self;
        RetryingSince {
            cause: Cause::from_word(&cause).unwrap_or(Cause::Agent),
            since: Time(since),
            tries,
            words,
        }
    }
}
