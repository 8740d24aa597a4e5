//! Searching, and maintaining the search index.

use super::chats::{ChatCaller, shown_entry};
use super::settings::Settings;
use super::{OpError, Ops, lookup};
use crate::clock::{self, rfc3339};
use crate::store::{
    self, FoundText, Hit, Query, Source, Store, StoreError, has_unindexed_entries, search_backlog,
};
use crate::view::{HitKind, Search, SearchHit, SearchHits};
use adjutant_core::chat::{ChatId, Participant, shown_name};
use adjutant_core::{Action, Denied, Principal, Time};
use std::time::{Duration, Instant};

/// A search returns what it has found after this time.
const DEADLINE: Duration = Duration::from_millis(500);
/// The part of that time spent on indexing the backlog.
const INDEXING: Duration = Duration::from_millis(250);
const QUERY_CHARS_MAX: usize = 1_000;
/// All words must appear.
const WORDS_MAX: usize = 32;
const HITS_DEFAULT: u32 = 20;
const HITS_MAX: u32 = 200;
/// The index position is stored after this many events even when none of them needed indexing.
const SAVE_POSITION_EVERY: i64 = 5_000;

fn time(field: &'static str, given: Option<&str>) -> Result<Option<Time>, Denied> {
    let wrong = || Denied::invalid(field, "use a time such as 2026-11-21T04:00:00Z");
    given
        .map(|given| clock::parse_rfc3339(given).ok_or_else(wrong))
        .transpose()
}

fn source(word: &str) -> Result<Source, Denied> {
    let wrong = || Denied::invalid("within", "use chats, questions or reports");
    Source::from_word(word).ok_or_else(wrong)
}

fn view(hit: Hit) -> SearchHit {
    let Hit { found, at, snippet } = hit;
    let view = SearchHit {
        at: rfc3339(at),
        snippet: snippet
            .replace(['«', '»'], "'")
            .replace(store::MARK_BEGIN, "«")
            .replace(store::MARK_END, "»"),
        ..SearchHit::default()
    };
    let run = |id: adjutant_core::RunId, name: &str| {
        let who = Participant::Principal(Principal::Run(id));
        (who.to_string(), shown_name(&who, name, None))
    };
    match found {
        FoundText::Entry(entry, title) => {
            let kind = entry.kind;
            let entry = shown_entry(&entry);
            let (message_id, chat_id) = (Some(entry.message_id), Some(entry.chat_id));
            SearchHit {
                kind: HitKind::Entry(kind).into(),
                message_id,
                chat_id,
                title,
                from: entry.from,
                name: entry.name,
                ..view
            }
        }
        FoundText::Request(request) => {
            let (from, name) = run(request.run, &request.run_name);
            SearchHit {
                kind: HitKind::Request(request.subject.kind()).into(),
                message_id: Some(request.id.to_string()),
                number: Some(request.no.to_string()),
                run_id: Some(request.run.to_string()),
                run_name: Some(request.run_name.clone()),
                title: request.run_name,
                from,
                name,
                ..view
            }
        }
        FoundText::Report(of) => {
            let (from, name) = run(of.id, &of.name);
            SearchHit {
                kind: HitKind::Report.into(),
                run_id: Some(of.id.to_string()),
                run_name: Some(of.name.clone()),
                title: of.name,
                from,
                name,
                ..view
            }
        }
    }
}

/// The search over runs and chats, and its index.
#[derive(Debug, Clone)]
pub struct SearchIndex {
    store: Store,
    settings: Settings,
}

impl SearchIndex {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
        }
    }

    /// Searches what the caller may see.
    ///
    /// # Errors
    /// An unknown chat or participant, a time or source that cannot be read.
    pub async fn search(&self, who: &Principal, call: Search) -> Result<SearchHits, OpError> {
        lookup::check(who, Action::ListChats)?;
        if call.query.chars().count() > QUERY_CHARS_MAX {
            return Err(
                Denied::invalid("query", format!("at most {QUERY_CHARS_MAX} characters")).into(),
            );
        }
        if call.query.split_whitespace().count() > WORDS_MAX {
            return Err(Denied::invalid("query", format!("at most {WORDS_MAX} words")).into());
        }
        let (since, until) = (
            time("since", call.since.as_deref())?,
            time("until", call.until.as_deref())?,
        );
        let within = call
            .within
            .iter()
            .map(|word| source(word))
            .collect::<Result<Vec<_>, _>>()?;
        let deadline = Instant::now() + DEADLINE;
        let only_chats = call.chat_id.is_some() || within == [Source::Chats];
        let is_current = self.index_entries().await?
            && (only_chats || self.index_until(Instant::now() + INDEXING).await?);
        let config = self.settings.config()?;
        let (store, who) = (self.store.clone(), who.clone());
        // A search may take a while: do not block the event loop.
        let search = move || {
            let (caller, from) = store.read(|connection| {
                let caller = ChatCaller::of(connection, &who)?;
                if let Some(chat) = call.chat_id {
                    caller.chat(connection, chat)?;
                }
                let from = call
                    .from
                    .as_deref()
                    .map(|from| caller.author(connection, &config, from))
                    .transpose()?;
                Ok((caller, from.map(|from| from.to_string())))
            })?;
            let query = Query {
                text: call.query,
                within,
                chat: call.chat_id.map(ChatId),
                from,
                since,
                until,
                has_question: call.has_question,
                best: call.best,
                limit: call.limit.unwrap_or(HITS_DEFAULT).clamp(1, HITS_MAX),
            };
            let (hits, broken_off) = store.read_until(deadline, |connection| {
                store::search(connection, &caller.viewer, &query)
            })?;
            Ok::<_, StoreError>(SearchHits {
                hits: hits.into_iter().map(view).collect(),
                incomplete: broken_off || !is_current,
            })
        };
        Ok(tokio::task::spawn_blocking(search)
            .await
            .map_err(|error| OpError::Io(error.to_string()))??)
    }

    /// Indexes a batch of events after a position. Returns the new position and whether there are
    /// more.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn index_some(&self, after: i64) -> Result<(i64, bool), OpError> {
        let backlog = self
            .store
            .read(|connection| search_backlog(connection, after))?;
        let (seq, more) = (backlog.seq, backlog.more);
        if !backlog.is_empty() || seq - backlog.put_down >= SAVE_POSITION_EVERY {
            self.store.write(move |tx| tx.index(&backlog)).await?;
        }
        Ok((seq, more))
    }

    /// Indexes the remaining chat entries. Returns whether all are indexed. On a full disk they are
    /// not, and a search finds only the indexed ones.
    async fn index_entries(&self) -> Result<bool, OpError> {
        if !self.store.read(has_unindexed_entries)? {
            return Ok(true);
        }
        match self.store.write(|tx| tx.index_entries()).await {
            Ok(()) => Ok(true),
            Err(StoreError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Indexes until the backlog is empty or the deadline passes. Returns whether it is empty.
    async fn index_until(&self, deadline: Instant) -> Result<bool, OpError> {
        let mut after = 0;
        loop {
            let (seq, more) = self.index_some(after).await?;
            if !more {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            after = seq;
        }
    }
}
