//! Waits for changes of a resource, with waiting calls of the hub.

use super::target::Target;
use crate::hub_client::Client;
use crate::view::{ErrorView, GetRun, ReadEvents, ReadLogs, ShowChat, Wait};

/// How long one call waits for a change.
const CALL_MS: u64 = 60_000;
/// Events that are read at once. More mean the same.
const EVENTS_MAX: u32 = 200;

/// A watched resource, at a position.
pub(super) struct Watch {
    client: Client,
    target: Target,
    position: i64,
    /// The last change of a chat's earlier messages.
    changes: Option<i64>,
}

impl Watch {
    /// Starts at the current state.
    pub(super) async fn start(client: Client, target: Target) -> Result<Self, ErrorView> {
        let mut changes = None;
        let position = match &target {
            Target::Run(run) => {
                let run = client
                    .call(&GetRun {
                        run: run.clone(),
                        ..GetRun::default()
                    })
                    .await?;
                client
                    .call(&Wait {
                        runs: vec![run.identity.run_id],
                        ..Wait::default()
                    })
                    .await?
                    .cursor
            }
            Target::Log { run, .. } => signed(client.call(&logs(run, None, 0)).await?.total),
            Target::Chat { chat, .. } => {
                let page = client.call(&messages(*chat, None, None, 0)).await?;
                changes = Some(page.changes);
                page.chat.last_seq.max(page.cursor)
            }
        };
        Ok(Self {
            client,
            target,
            position,
            changes,
        })
    }

    /// Waits for a change. Returns whether another one can follow.
    pub(super) async fn changed(&mut self) -> Result<bool, ErrorView> {
        loop {
            let from = self.position;
            let can_follow = match &self.target {
                Target::Run(run) => {
                    let read = ReadEvents {
                        after: from,
                        run: Some(run.clone()),
                        limit: Some(EVENTS_MAX),
                        wait_ms: CALL_MS,
                    };
                    let page = self.client.call(&read).await?;
                    self.position = page.cursor;
                    if page.reset {
                        return Ok(true);
                    }
                    if page.events.is_empty() {
                        continue;
                    }
                    true
                }
                Target::Log { run, .. } => {
                    let page = self
                        .client
                        .call(&logs(run, u64::try_from(from).ok(), CALL_MS))
                        .await?;
                    self.position = signed(page.total);
                    if page.ended && self.position <= from {
                        return Ok(false);
                    }
                    !page.ended
                }
                Target::Chat { chat, .. } => {
                    let page = self
                        .client
                        .call(&messages(*chat, Some(from), self.changes, CALL_MS))
                        .await?;
                    self.changes = Some(page.changes);
                    self.position = page.chat.last_seq.max(page.cursor);
                    if page.messages.is_empty() && page.changed.is_empty() && !page.reset {
                        continue;
                    }
                    return Ok(true);
                }
            };
            if self.position > from {
                return Ok(can_follow);
            }
        }
    }
}

fn logs(run: &str, after: Option<u64>, wait_ms: u64) -> ReadLogs {
    ReadLogs {
        run: run.to_owned(),
        after,
        max_bytes: Some(1),
        wait_ms,
        ..ReadLogs::default()
    }
}

fn messages(chat: i64, after: Option<i64>, changes: Option<i64>, wait_ms: u64) -> ShowChat {
    ShowChat {
        chat_id: chat,
        after,
        changes,
        limit: Some(1),
        wait_ms,
        peek: true,
    }
}

fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}
