//! Listing what needs the caller, and recording notifications.

use crate::clock;
use crate::config::Home;
use crate::ops::chats::mentions_for;
use crate::ops::policy_changes::policy_change;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup, render};
use crate::store::{
    Connection, Page, RequestsOf, Store, StoreError, can_set_notified, requests_page,
    runs_with_interrupted_undo, silent_after_report, stopped_below, stopped_runs,
    unnotified_bad_ends,
};
use crate::view::{AttentionList, ConfirmNotified, ListAttention, Mentions, Notified, SetBackView};
use adjutant_core::{Action, Denied, EventSeq, Principal, RequestNo, RunId};

/// Default and maximum number of entries of each kind in a list.
const LIST_DEFAULT: u32 = 100;
const LIST_MAX: u32 = 1_000;
/// How long the inbox says that the database was set back.
const SET_BACK_SHOWN_MS: i64 = 24 * 60 * 60 * 1000;
/// Maximum number of runs in one confirmation.
const CONFIRMED_MAX: usize = 1_000;

/// Returns when the database was last set back.
pub fn set_back(store: &Store) -> Option<SetBackView> {
    let era = store.eras().last()?;
    Some(SetBackView {
        at: clock::rfc3339(era.began_at),
        era: era.number,
        last_event: era.gap("events").map_or(0, |gap| gap.last),
    })
}

fn was_set_back_lately(store: &Store) -> bool {
    store
        .eras()
        .last()
        .is_some_and(|era| clock::now().ms_since(era.began_at) < SET_BACK_SHOWN_MS)
}

/// Lists what needs the caller.
///
/// # Errors
/// The run is unknown or foreign, or `after` is not a request number.
pub fn list_attention(
    store: &Store,
    home: &Home,
    settings: &Settings,
    who: &Principal,
    call: &ListAttention,
) -> Result<AttentionList, OpError> {
    lookup::check(who, Action::ListRequests)?;
    let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    let after = match &call.after {
        None => RequestNo(0),
        Some(given) => RequestNo::parse(given)
            .map_err(|_| Denied::invalid("after", "use a request's number, such as Q12"))?,
    };
    Ok(store.read(|connection| {
        let (requests, runs, mentions) = match &call.run {
            None => (
                requests_page(connection, RequestsOf::Answerer(who), false, after, limit)?,
                runs(connection, who, limit)?,
                mentions_for(connection, who, limit)?,
            ),
            Some(run) => {
                let run = lookup::run(connection, who, Action::See, run)?;
                let requests =
                    requests_page(connection, RequestsOf::Run(run.id), false, after, limit)?;
                let mut runs = stopped_below(connection, run.id, limit)?;
                if run.need().is_some() {
                    runs.insert(0, run);
                }
                (requests, Page { runs, more: 0 }, Mentions::default())
            }
        };
        let (found, requests_more) = requests;
        let mut requests = render::requests(&found);
        render::add_room(
            connection,
            &settings.config_or_builtin(),
            store.queued_runs(),
            &mut requests,
        )?;
        Ok(AttentionList {
            requests,
            requests_more,
            runs: runs
                .runs
                .iter()
                .map(|run| render::run(connection, home, run))
                .collect::<Result<_, _>>()?,
            runs_more: runs.more,
            mentions: mentions.mentions,
            mentions_more: mentions.more,
            set_back: set_back(store).filter(|_| {
                *who == Principal::Person && call.run.is_none() && was_set_back_lately(store)
            }),
            policy_change: if call.run.is_none() {
                policy_change(settings, connection, who)?
            } else {
                None
            },
        })
    })?)
}

/// Records that the caller was notified of stops and ends of its own runs.
///
/// # Errors
/// A run id is malformed, or the store fails.
pub async fn confirm_notified(
    store: &Store,
    caller: Caller,
    call: ConfirmNotified,
) -> Result<Notified, OpError> {
    lookup::check(&caller.who, Action::Wait)?;
    if call.runs.len() > CONFIRMED_MAX {
        return Err(Denied::invalid("runs", format!("at most {CONFIRMED_MAX}")).into());
    }
    let mut runs = Vec::with_capacity(call.runs.len());
    for run in &call.runs {
        let id = RunId::parse(&run.run_id)
            .map_err(|_| Denied::invalid("run_id", "is not a run's id"))?;
        runs.push((id, EventSeq(run.cursor)));
    }
    let until = call.until.map(EventSeq);
    // Clients confirm what every result showed, mostly the same again. That costs no commit.
    let is_outside_runs = !matches!(caller.who, Principal::Run(_));
    if is_outside_runs
        && !store.read(|connection| can_set_notified(connection, &caller.who, &runs, until))?
    {
        return Ok(caller.stored_reply(store)?.unwrap_or_default());
    }
    caller
        .write(store, move |tx, who| {
            let mut confirmed = tx.set_notified(who, &runs)?;
            if let Some(until) = until {
                confirmed += tx.set_all_notified(who, until)?;
            }
            Ok(Notified { runs: confirmed })
        })
        .await
}

/// Returns the runs that need attention: stopped runs first, then those that live on after their
/// reports, then failed ones. For a person, who alone can undo, then those with an interrupted
/// undo.
fn runs(connection: &Connection, who: &Principal, limit: u32) -> Result<Page, StoreError> {
    let mut page = stopped_runs(connection, who, limit)?;
    page.runs
        .extend(silent_after_report(connection, who, limit)?);
    let ends = unnotified_bad_ends(connection, who, limit)?;
    page.runs.extend(ends.runs);
    page.more += ends.more;
    if *who == Principal::Person {
        let undos = runs_with_interrupted_undo(connection, limit)?;
        let others: Vec<_> = undos
            .into_iter()
            .filter(|run| page.runs.iter().all(|listed| listed.id != run.id))
            .collect();
        page.runs.extend(others);
    }
    Ok(page)
}
