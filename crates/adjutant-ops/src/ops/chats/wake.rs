//! Topics that wake a caller waiting for messages.

use crate::store::{Connection, StoreError, Topic, queued_messages, run_by_id};
use adjutant_core::{Principal, PromptVia};

/// Topics that wake a caller waiting for messages.
pub(super) fn topics_of(who: &Principal) -> Vec<Topic> {
    let mut topics = vec![Topic::Mention(who.to_string())];
    if let Principal::Run(run) = who {
        topics.push(Topic::Run(*run));
    }
    topics
}

/// Returns whether messages are queued for a run's next call.
pub(super) fn has_messages(connection: &Connection, who: &Principal) -> Result<bool, StoreError> {
    let Principal::Run(run) = who else {
        return Ok(false);
    };
    let takes_calls =
        run_by_id(connection, *run)?.is_some_and(|run| run.prompt_via != PromptVia::Stream);
    Ok(takes_calls && !queued_messages(connection, *run)?.is_empty())
}
