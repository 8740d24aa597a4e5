//! The start of an attempt's agent, as its supervisor reports it.

use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::claim::UNDELIVERED_MAX;
use crate::ops::attempts::resumption;
use crate::protocol::FenceText;
use crate::store::{
    FenceState, Run, StoreError, Tx, attempt_row, fruitless_attempts, undelivered_of,
};
use adjutant_core::{RequestEvent, RequestState};

/// Records how an attempt's agent was started, and that the answers and messages in its prompt have
/// been delivered.
pub(super) fn record_start(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    containment: &str,
    fence: Option<FenceText>,
) -> Result<(), StoreError> {
    tx.set_containment(run.id, id.n, containment)?;
    tx.set_workspace_ready(&run.cwd)?;
    if let (
        Some(FenceText {
            enforced,
            gaps,
            why,
            writable,
        }),
        Some(known),
    ) = (fence, &run.fence)
    {
        tx.set_fence(
            run.id,
            &FenceState {
                enforced: Some(enforced),
                gaps,
                why,
                writable,
                denied: None,
                ..known.clone()
            },
        )?;
    }
    if id.n.0 > 1 + fruitless_attempts(tx.connection(), run.id)? {
        // The answers in the new attempt's prompt have been delivered.
        for request in undelivered_of(tx.connection(), run.id, UNDELIVERED_MAX)? {
            if request.delivered_to == Some(id.n)
                && matches!(request.state, RequestState::Answered(_))
            {
                tx.advance_request(&request, RequestEvent::Retrieve)?;
            }
        }
        let claimed_at =
            attempt_row(tx.connection(), run.id, id.n)?.map_or(tx.now(), |row| row.claimed_at);
        let sent = resumption::unsent(tx, run)?
            .into_iter()
            .filter(|message| message.sent_at <= claimed_at)
            .map(|message| message.id);
        tx.deliver_messages(run, &sent.collect::<Vec<_>>(), "prompt")?;
        tx.set_resolution(run.id, None, None, None)?;
    }
    Ok(())
}
