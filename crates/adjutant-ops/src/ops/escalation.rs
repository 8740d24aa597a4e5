//! Escalates open requests to people.

use crate::clock;
use crate::ops::OpError;
use crate::ops::settings::Settings;
use crate::store::{Store, WaitingRequest, waiting_requests};
use adjutant_core::escalation::{Escalation, EscalationStep, next_escalation};
use adjutant_core::{RequestNo, SteadyTime};

/// Maximum number of open requests that are read together.
const READ_MAX: u32 = 1_000;

/// Escalates the open requests for which it is time. Returns when the next step is due.
pub(super) async fn escalate_due(
    store: &Store,
    settings: &Settings,
) -> Result<Option<SteadyTime>, OpError> {
    let config = settings.config_or_builtin();
    if config.escalation.is_empty() {
        return Ok(None);
    }
    let mut next: Option<SteadyTime> = None;
    let mut after = RequestNo(0);
    loop {
        let waiting = store.read(|connection| waiting_requests(connection, after, READ_MAX))?;
        let Some(last) = waiting.last() else {
            return Ok(next);
        };
        after = last.no;
        for request in waiting {
            let at = escalate(store, &config.escalation, request).await?;
            next = [next, at].into_iter().flatten().min();
        }
    }
}

/// Escalates one request as far as it is due. Returns when the next step is due.
async fn escalate(
    store: &Store,
    steps: &[EscalationStep],
    request: WaitingRequest,
) -> Result<Option<SteadyTime>, OpError> {
    let WaitingRequest {
        no: _,
        id,
        waits_since,
        mut escalated,
    } = request;
    loop {
        let known: Vec<&str> = escalated.iter().map(String::as_str).collect();
        let ms_of_day = |step: &EscalationStep| clock::ms_of_day(step.zone.as_deref());
        match next_escalation(steps, &known, waits_since, clock::steady(), ms_of_day) {
            Escalation::Done => return Ok(None),
            Escalation::At(at) => return Ok(Some(at)),
            Escalation::Now(place) => {
                let name = steps[place].name.clone();
                let Some(after) = store.write(move |tx| tx.escalate(id, &name)).await? else {
                    return Ok(None);
                };
                escalated = after.escalated.into_iter().map(|(name, _)| name).collect();
            }
        }
    }
}
