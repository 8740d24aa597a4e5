//! Statistics about chats.

use super::caller::ChatCaller;
use crate::ops::{OpError, Ops};
use crate::store::stats_of;
use crate::view::{ChatStats, GetChatStats};
use adjutant_core::chat::ChatId;
use adjutant_core::{Action, Denied, Principal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
}

impl Default for Counts {
    fn default() -> Self {
        Self { since: Instant::now(), calls: AtomicU64::default(), failed: AtomicU64::default(), refused: AtomicU64::default() }
    }
}

impl Tally {
    /// Counts one call by its result.
    pub fn count<T>(&self, result: Result<T, OpError>) -> Result<T, OpError> {
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
}

impl Ops {
    /// Returns statistics about a chat, or, for the person, about all chats.
    ///
    /// # Errors
    /// Unknown or foreign, or a caller other than the person names no chat.
    pub fn chat_stats(&self, who: &Principal, call: &GetChatStats) -> Result<ChatStats, OpError> {
        Self::check(who, Action::ListChats)?;
        if call.chat_id.is_none() && *who != Principal::Person {
            return Err(Denied::invalid("chat_id", "say which chat").into());
        }
        let stats = self.store.read(|connection| {
            if let Some(chat) = call.chat_id {
                ChatCaller::of(connection, who)?.chat(connection, chat)?;
            }
            stats_of(connection, call.chat_id.map(ChatId))
        })?;
        let at = |percent: usize| stats.answer_ms.get((stats.answer_ms.len().saturating_sub(1)) * percent / 100).copied();
        let tally = &self.tally.0;
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let messages_per_chat = if stats.chats == 0 { 0.0 } else { stats.said as f64 / stats.chats as f64 };
        Ok(ChatStats {
            chats: stats.chats,
            entries: stats.entries,
            messages: stats.said,
            participants: stats.participants,
            duration_s: stats.duration_ms / 1000,
            messages_per_chat,
            answered: stats.answered,
            failed: stats.failed,
            cancelled: stats.cancelled,
            open: stats.open,
            answer_ms_p50: at(50),
            answer_ms_p95: at(95),
            calls: tally.calls.load(Ordering::Relaxed),
            calls_failed: tally.failed.load(Ordering::Relaxed),
            calls_refused: tally.refused.load(Ordering::Relaxed),
            up_s: tally.since.elapsed().as_secs(),
        })
    }
}
