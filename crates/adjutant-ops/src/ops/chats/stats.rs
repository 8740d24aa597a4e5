//! Statistics about chats.

use super::caller::ChatCaller;
use crate::ops::{OpError, lookup};
use crate::store::{ParticipantRow, Store, Turns, stats_of};
use crate::view::{ChatStats, GetChatStats, ParticipantStats, TurnStats};
use adjutant_core::chat::ChatId;
use adjutant_core::{Action, Denied, Principal};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Counts calls about chats since the hub started.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    since: Instant,
    calls: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    /// The times of the newest calls in microseconds, the oldest first. A lock instead of an owner
    /// task: a call holds it for one push.
    times_us: Mutex<VecDeque<u64>>,
}

/// Maximum number of call times.
const TIMES_MAX: usize = 1_000;

impl Default for Counts {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            calls: AtomicU64::default(),
            failed: AtomicU64::default(),
            refused: AtomicU64::default(),
            times_us: Mutex::default(),
        }
    }
}

impl Tally {
    /// Performs a call and counts it by its result. `waits`: its time says nothing, because it
    /// waits for something.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn measure<T>(
        &self,
        waits: bool,
        call: impl Future<Output = Result<T, OpError>>,
    ) -> Result<T, OpError> {
        let began = Instant::now();
        let result = call.await;
        if !waits {
            let mut times = self.times();
            if times.len() >= TIMES_MAX {
                times.pop_front();
            }
            times.push_back(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        match &result {
            Ok(_) => {}
            Err(error) if error.http_status() >= 500 => {
                self.0.failed.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        result
    }

    fn times(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0
            .times_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns statistics about a chat, or, for the person, about all chats.
///
/// # Errors
/// Unknown or foreign, or a caller other than the person names no chat.
pub fn chat_stats(
    store: &Store,
    tally: &Tally,
    who: &Principal,
    call: &GetChatStats,
) -> Result<ChatStats, OpError> {
    lookup::check(who, Action::ListChats)?;
    if call.chat_id.is_none() && *who != Principal::Person {
        return Err(Denied::invalid("chat_id", "say which chat").into());
    }
    let stats = store.read(|connection| {
        if let Some(chat) = call.chat_id {
            ChatCaller::of(connection, who)?.chat(connection, chat)?;
        }
        stats_of(connection, call.chat_id.map(ChatId))
    })?;
    let mut times: Vec<u64> = tally.times().iter().copied().collect();
    times.sort_unstable();
    let call_us = |percent: usize| {
        times
            .get(times.len().saturating_sub(1) * percent / 100)
            .copied()
    };
    let turns = &stats.turns;
    let tally = &tally.0;
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let messages_per_chat = if stats.chats == 0 {
        0.0
    } else {
        stats.said as f64 / stats.chats as f64
    };
    Ok(ChatStats {
        chats: stats.chats,
        entries: stats.entries,
        messages: stats.said,
        participants: stats.participants,
        duration_s: stats.duration_ms / 1000,
        messages_per_chat,
        answered: turns.answered,
        failed: turns.failed,
        cancelled: turns.cancelled,
        open: turns.open,
        answer_ms_p50: turns.answer_ms_at(50),
        answer_ms_p95: turns.answer_ms_at(95),
        calls: tally.calls.load(Ordering::Relaxed),
        calls_failed: tally.failed.load(Ordering::Relaxed),
        calls_refused: tally.refused.load(Ordering::Relaxed),
        call_us_p50: call_us(50),
        call_us_p95: call_us(95),
        call_us_max: times.last().copied(),
        // The caller of this function knows the process.
        hub_memory_bytes: None,
        by_participant: stats.by_participant.iter().map(participant).collect(),
        up_s: tally.since.elapsed().as_secs(),
    })
}

fn participant(row: &ParticipantRow) -> ParticipantStats {
    let ParticipantRow {
        who,
        name,
        said,
        turns,
    } = row;
    let of = |turns: &Turns| {
        let Turns {
            answered,
            failed,
            cancelled,
            open,
            answer_ms: _,
        } = turns;
        TurnStats {
            answered: *answered,
            failed: *failed,
            cancelled: *cancelled,
            open: *open,
            answer_ms_p50: turns.answer_ms_at(50),
        }
    };
    ParticipantStats {
        who: who.clone(),
        name: name.clone(),
        messages: *said,
        turns: turns.as_ref().map(of),
    }
}
