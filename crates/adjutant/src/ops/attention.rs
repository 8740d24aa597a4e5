//! What needs the caller, and what it was notified of.

use super::chats::mentions_for;
use super::{Caller, OpError, Ops, pick, render};
use crate::store::{Connection, Page, RequestsOf, Run, StoreError, requests_page, stopped_below, stopped_runs, unnotified_bad_ends};
use crate::view::{AttentionList, AttentionView, ConfirmNotified, ListAttention, Mentions, Notified};
use adjutant_core::attention::{BadEnd, Need, Shortfall, Standing};
use adjutant_core::{Action, Denied, EventSeq, Outcome, Principal, RequestNo, RunId, RunState, StopReason};

/// Most of each kind that are listed when the caller says no number, and at all.
const LIST_DEFAULT: u32 = 100;
const LIST_MAX: u32 = 1_000;
/// Most runs that one call confirms.
const CONFIRMED_MAX: usize = 1_000;

impl Ops {
    /// Lists what needs the caller.
    ///
    /// # Errors
    /// The run is unknown or foreign, or `after` is no request's number.
    pub fn list_attention(&self, who: &Principal, call: &ListAttention) -> Result<AttentionList, OpError> {
        Self::check(who, Action::ListRequests)?;
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        let after = match &call.after {
            None => RequestNo(0),
            Some(given) => RequestNo::parse(given).map_err(|_| Denied::invalid("after", "use a request's number, such as Q12"))?,
        };
        Ok(self.store.read(|connection| {
            let (requests, runs, mentions) = match &call.run {
                None => (
                    requests_page(connection, RequestsOf::Answerer(who), false, after, limit)?,
                    runs(connection, who, limit)?,
                    mentions_for(connection, who, limit)?,
                ),
                Some(run) => {
                    let run = pick::run(connection, who, Action::See, run)?;
                    let requests = requests_page(connection, RequestsOf::Run(run.id), false, after, limit)?;
                    let mut runs = stopped_below(connection, run.id, limit)?;
                    if run.need().is_some() {
                        runs.insert(0, run);
                    }
                    (requests, Page { runs, more: 0 }, Mentions::default())
                }
            };
            let (found, requests_more) = requests;
            let mut requests = render::requests(&found);
            super::delegations::add_room(connection, &self.config_or_builtin(), &mut requests)?;
            Ok(AttentionList {
                requests,
                requests_more,
                runs: runs.runs.iter().map(|run| render::run(connection, &self.home, run)).collect::<Result<_, _>>()?,
                runs_more: runs.more,
                mentions: mentions.mentions,
                mentions_more: mentions.more,
            })
        })?)
    }

    /// Records that the caller was notified of stops and ends of its own runs.
    ///
    /// # Errors
    /// A run's id is no id, or a failure of the store.
    pub async fn confirm_notified(&self, caller: Caller, call: ConfirmNotified) -> Result<Notified, OpError> {
        Self::check(&caller.who, Action::Wait)?;
        if call.runs.len() > CONFIRMED_MAX {
            return Err(Denied::invalid("runs", format!("at most {CONFIRMED_MAX}")).into());
        }
        let mut runs = Vec::with_capacity(call.runs.len());
        for run in &call.runs {
            let id = RunId::parse(&run.run_id).map_err(|_| Denied::invalid("run_id", "is not a run's id"))?;
            runs.push((id, EventSeq(run.cursor)));
        }
        self.write(caller, move |tx, who| {
            let mut confirmed = tx.set_notified(who, &runs)?;
            if let Some(until) = call.until {
                confirmed += tx.set_all_notified(who, EventSeq(until))?;
            }
            Ok(Notified { runs: confirmed })
        })
        .await
    }
}

/// The runs that need somebody: stopped ones, then bad ends.
fn runs(connection: &Connection, who: &Principal, limit: u32) -> Result<Page, StoreError> {
    let mut page = stopped_runs(connection, who, limit)?;
    let ends = unnotified_bad_ends(connection, who, limit)?;
    page.runs.extend(ends.runs);
    page.more += ends.more;
    Ok(page)
}

/// Says why a run needs somebody, in its own words where it left some.
pub(super) fn attention(run: &Run) -> Option<AttentionView> {
    let is_new = !run.is_owner_notified;
    Some(match run.need()? {
        Need::Resume(reason) => {
            // What an earlier attempt left behind says nothing about this stop.
            let left = run.checkpoint.as_ref().filter(|_| run.checkpoint_attempt == Some(run.attempt));
            let said = left.map(|checkpoint| checkpoint.details.trim()).filter(|details| !details.is_empty());
            let details = said.or(run.detail.as_deref().map(str::trim)).unwrap_or_else(|| stop_text(reason));
            let needs = left.and_then(|checkpoint| checkpoint.requirements.clone()).filter(|needs| !needs.trim().is_empty());
            AttentionView { kind: "stopped".to_owned(), why: reason.word().to_owned(), details: details.to_owned(), needs, is_new }
        }
        Need::Notice(end) => {
            let details = run.detail.as_deref().map_or_else(|| end_text(run, end), |detail| detail.trim().to_owned());
            AttentionView { kind: "ended".to_owned(), why: end.word().to_owned(), details, needs: None, is_new }
        }
    })
}

fn stop_text(reason: StopReason) -> &'static str {
    match reason {
        StopReason::ResourceLimit => "it has used up its active time",
        StopReason::SupervisorLost => "its supervisor was lost, and what the agent did last is unknown",
        StopReason::Error => "its agent ended with an error",
        StopReason::Blocker | StopReason::Cancelled | StopReason::Parked | StopReason::Paused | StopReason::RateLimited => "it cannot continue",
    }
}

fn end_text(run: &Run, end: BadEnd) -> String {
    match (end, run.state) {
        (BadEnd::Failed, RunState::Finished(Outcome::Failed(failure))) => failure.to_string(),
        (BadEnd::Failed, _) => "it failed".to_owned(),
        (BadEnd::NotStarted, _) => "its agent could not be started".to_owned(),
        (BadEnd::Lost, _) => "nobody knows how it ended".to_owned(),
        (BadEnd::Short(Shortfall::NotAccepted), _) => "its acceptance command failed".to_owned(),
        (BadEnd::Short(Shortfall::NotChecked), _) => "its acceptance command could not be run".to_owned(),
        (BadEnd::Short(Shortfall::Contradicted), _) => "its report is contradicted by what was seen".to_owned(),
    }
}

/// Tells whether a stopped run resumes without anybody resuming it.
pub(super) fn resumes_by_itself(run: &Run) -> bool {
    matches!(run.state, RunState::Stopped { .. }) && run.standing() == Standing::Underway
}
