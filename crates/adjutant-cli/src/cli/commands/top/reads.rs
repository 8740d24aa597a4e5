//! What `adj top` reads again.

use crate::hub_client::Client;
use crate::view::{
    AttentionList, ErrorView, GetRun, ListAttention, ListRuns, RunList, RunView, codes,
};
use std::collections::BTreeSet;
use std::pin::Pin;

/// Runs that the board lists.
const RUNS_MAX: u32 = 1_000;
const REQUESTS_MAX: u32 = 500;

pub(super) type Poll<T> = Pin<Box<dyn Future<Output = Result<T, ErrorView>>>>;

/// What was read again.
pub(super) enum BoardUpdate {
    All(Box<RunList>, Box<AttentionList>),
    Some {
        runs: Vec<RunView>,
        gone: Vec<String>,
        attention: Box<AttentionList>,
    },
}

pub(super) async fn poll_or_pend<T>(poll: &mut Option<Poll<T>>) -> Result<T, ErrorView> {
    match poll {
        Some(poll) => poll.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn read_all(hub: Client) -> Result<BoardUpdate, ErrorView> {
    let list = hub
        .call(&ListRuns {
            all: true,
            limit: Some(RUNS_MAX),
            before: None,
        })
        .await?;
    Ok(BoardUpdate::All(
        Box::new(list),
        Box::new(read_attention(&hub).await?),
    ))
}

pub(super) async fn read_some(
    hub: Client,
    changed: BTreeSet<String>,
) -> Result<BoardUpdate, ErrorView> {
    let (mut runs, mut gone) = (Vec::new(), Vec::new());
    for run in changed {
        match hub
            .call(&GetRun {
                run: run.clone(),
                ..GetRun::default()
            })
            .await
        {
            Ok(run) => runs.push(run),
            Err(error) if error.code == codes::NOT_FOUND => gone.push(run),
            Err(error) => return Err(error),
        }
    }
    Ok(BoardUpdate::Some {
        runs,
        gone,
        attention: Box::new(read_attention(&hub).await?),
    })
}

async fn read_attention(hub: &Client) -> Result<AttentionList, ErrorView> {
    hub.call(&ListAttention {
        limit: Some(REQUESTS_MAX),
        ..ListAttention::default()
    })
    .await
}
