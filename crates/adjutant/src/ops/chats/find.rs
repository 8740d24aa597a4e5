//! Searching chats, and figures about them.

use super::render;
use super::seat::Seat;
use crate::clock::{self, rfc3339};
use crate::ops::{OpError, Ops};
use crate::store::{ChatHit, ChatQuery, StoreError, search_chats, stats_of};
use crate::view::{ChatHitView, ChatHits, ChatStats, GetChatStats, SearchChats};
use adjutant_core::chat::ChatId;
use adjutant_core::{Action, Denied, Principal, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// After this time a search returns what it has.
const DEADLINE: Duration = Duration::from_millis(500);
const QUERY_CHARS_MAX: usize = 1_000;
const HITS_DEFAULT: u32 = 20;
const HITS_MAX: u32 = 200;

/// Counts the calls about chats for as long as the hub lives.
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
    /// Counts one call by what came of it.
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

fn time(field: &'static str, given: Option<&str>) -> Result<Option<Time>, Denied> {
    let wrong = || Denied::invalid(field, "use a time such as 2026-11-21T04:00:00Z");
    given.map(|given| clock::parse_rfc3339(given).ok_or_else(wrong)).transpose()
}

fn hit(hit: &ChatHit) -> ChatHitView {
    let entry = render::entry(&hit.entry);
    let snippet = hit.snippet.replace(['«', '»'], "'").replace(crate::store::MARK_BEGIN, "«").replace(crate::store::MARK_END, "»");
    ChatHitView {
        message_id: entry.message_id,
        chat_id: entry.chat_id,
        title: hit.title.clone(),
        kind: entry.kind,
        from: entry.from,
        name: entry.name,
        at: rfc3339(hit.entry.at),
        snippet,
    }
}

impl Ops {
    /// Searches the chats that the caller may see.
    ///
    /// # Errors
    /// An unknown chat or participant, a time that cannot be read.
    pub async fn search_chats(&self, who: &Principal, call: SearchChats) -> Result<ChatHits, OpError> {
        Self::check(who, Action::ListChats)?;
        if call.query.chars().count() > QUERY_CHARS_MAX {
            return Err(Denied::invalid("query", format!("at most {QUERY_CHARS_MAX} characters")).into());
        }
        let (since, until) = (time("since", call.since.as_deref())?, time("until", call.until.as_deref())?);
        let config = self.config()?;
        let (store, who) = (self.store.clone(), who.clone());
        // It may take a while, and the event loop has others to serve.
        let search = move || {
            let (seat, from) = store.read(|connection| {
                let seat = Seat::of(connection, &who)?;
                if let Some(chat) = call.chat_id {
                    seat.chat(connection, chat)?;
                }
                let from = call.from.as_deref().map(|from| seat.addressee(connection, &config, from)).transpose()?;
                Ok((seat, from.map(|(from, _)| from.to_string())))
            })?;
            let query = ChatQuery {
                text: call.query,
                chat: call.chat_id.map(ChatId),
                from,
                since,
                until,
                has_question: call.has_question,
                best: call.best,
                limit: call.limit.unwrap_or(HITS_DEFAULT).clamp(1, HITS_MAX),
            };
            let (hits, incomplete) = store.read_until(Instant::now() + DEADLINE, |connection| search_chats(connection, &seat.viewer, &query))?;
            Ok::<_, StoreError>(ChatHits { hits: hits.iter().map(hit).collect(), incomplete })
        };
        Ok(tokio::task::spawn_blocking(search).await.map_err(|error| OpError::Io(error.to_string()))??)
    }

    /// Reads figures about a chat, or (the person) about all.
    ///
    /// # Errors
    /// Unknown or foreign; a caller who is not the person names no chat.
    pub fn chat_stats(&self, who: &Principal, call: &GetChatStats) -> Result<ChatStats, OpError> {
        Self::check(who, Action::ListChats)?;
        if call.chat_id.is_none() && *who != Principal::Person {
            return Err(Denied::invalid("chat_id", "say which chat").into());
        }
        let stats = self.store.read(|connection| {
            if let Some(chat) = call.chat_id {
                Seat::of(connection, who)?.chat(connection, chat)?;
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
