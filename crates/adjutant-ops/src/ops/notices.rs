//! Messages to people: which deliveries need a person, and what they say.
//!
//! A message is about one thing: an open request, or a stop, a hold or an end of a run. Whether it
//! still needs a person is decided when it is sent, so quiet hours and slow services send nothing
//! that was dealt with meanwhile, and later changes send nothing.

use super::answer_links::AnswerLinks;
use super::settings::Settings;
use super::{OpError, Ops, render};
use crate::clock;
use crate::config::Notices;
use crate::store::{
    Connection, Delivery, Request, Store, StoreError, has_later_delivery, request_by_id, run_by_id,
};
use crate::view::AttentionView;
use crate::webhook::Notice;
use adjutant_core::escalation::EscalationStep;
use adjutant_core::{
    EventKind, Principal, RequestId, RequestKind, RequestState, RunId, RunState, shorten,
};

/// Maximum number of options in a message, and of characters of one.
const OPTIONS_MAX: usize = 10;
const OPTION_CHARS_MAX: usize = 100;
const QUESTION_CHARS_MAX: usize = 1_000;

/// Writes the messages.
#[derive(Debug, Clone)]
pub(super) struct NoticeWriter {
    store: Store,
    settings: Settings,
    links: AnswerLinks,
}

impl NoticeWriter {
    pub(super) fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            links: AnswerLinks::of(ops),
        }
    }

    /// Returns the message of a delivery. `None`: nobody needs it.
    ///
    /// # Errors
    /// A failure of the store, or the key for links cannot be read.
    pub(super) fn notice(
        &self,
        delivery: &Delivery,
        key: &str,
        notices: &Notices,
    ) -> Result<Option<Notice>, OpError> {
        let draft = match (
            EventKind::from_word(&delivery.kind),
            delivery.request,
            delivery.run,
        ) {
            (Some(EventKind::RequestAsked), Some(request), _) => {
                self.notice_of_request(request, None, notices)?
            }
            (Some(EventKind::RequestEscalated), Some(request), _) => {
                self.notice_of_request(request, Some(&delivery.text), notices)?
            }
            (
                Some(EventKind::RunStopped | EventKind::RunHeld | EventKind::RunFinished),
                _,
                Some(run),
            ) => self
                .store
                .read(|connection| notice_of_run(connection, delivery, key, run))?,
            _ => None,
        };
        let timestamp_s = clock::now().0.div_euclid(1000);
        Ok(draft.map(|Draft { title, text, link }| Notice {
            id: delivery.id.clone(),
            timestamp_s,
            title,
            text,
            link,
        }))
    }

    /// `escalation`: the text of the event that escalated the request.
    fn notice_of_request(
        &self,
        id: RequestId,
        escalation: Option<&str>,
        notices: &Notices,
    ) -> Result<Option<Draft>, OpError> {
        let Some(request) = self
            .store
            .read(|connection| request_by_id(connection, id))?
        else {
            return Ok(None);
        };
        let config = self.settings.config_or_builtin();
        if request.state != RequestState::Pending
            || !is_for(&request, escalation, notices, &config.escalation)
        {
            return Ok(None);
        }
        let link = match &config.http.public_url {
            Some(url) if notices.links => Some(self.links.link(url, &request, &notices.person)?),
            _ => None,
        };
        let what = request.subject.kind().asks();
        let mut text = match request.subject.kind() {
            // One line that shows every part of what would be allowed.
            RequestKind::Approval => request.subject.line(&request.question),
            RequestKind::Question | RequestKind::Delegation => {
                shorten::counted(&request.question, QUESTION_CHARS_MAX).into_owned()
            }
        };
        for (option, number) in request.options.iter().zip(1..).take(OPTIONS_MAX) {
            text.push_str(&format!(
                "\n{number}) {}",
                shorten::counted(option, OPTION_CHARS_MAX)
            ));
        }
        if request.options.len() > OPTIONS_MAX {
            text.push_str(&format!("\n… {} more", request.options.len() - OPTIONS_MAX));
        }
        text.push_str(&format!(
            "\nopen until {}",
            clock::to_the_minute(clock::expected_wall_time(request.expires_at))
        ));
        Ok(Some(Draft {
            title: format!("{} {what} ({})", request.run_name, request.no),
            text,
            link,
        }))
    }
}

struct Draft {
    title: String,
    text: String,
    link: Option<String>,
}

/// Returns whether a request is for the person of these messages: from the moment when it waits for
/// them, and once. If requests are escalated to this person by name, that is the moment. Otherwise
/// a request of a run that a person started waits for them at once, and one that waits for a parent
/// agent from its first escalation on.
fn is_for(
    request: &Request,
    escalation: Option<&str>,
    notices: &Notices,
    steps: &[EscalationStep],
) -> bool {
    let person = notices.person.as_str();
    let is_to = |name: &str| {
        escalation.is_some_and(|text| text == format!("{} to {}", request.no, name.trim()))
    };
    if steps.iter().any(|step| step.name == person) {
        return is_to(person);
    }
    let is_of_person = request.owner == Principal::Person;
    match escalation {
        None => is_of_person,
        Some(_) => {
            !is_of_person
                && request
                    .escalated
                    .first()
                    .is_some_and(|(name, _)| is_to(name))
        }
    }
}

/// A run that a person started, and that needs them. An earlier stop says nothing if a later
/// delivery is about the run.
fn notice_of_run(
    connection: &Connection,
    delivery: &Delivery,
    key: &str,
    id: RunId,
) -> Result<Option<Draft>, StoreError> {
    let Some(run) = run_by_id(connection, id)?
        .filter(|run| run.owner == Principal::Person && run.parent.is_none())
    else {
        return Ok(None);
    };
    if has_later_delivery(connection, key, delivery.no, id)? {
        return Ok(None);
    }
    let Some(AttentionView {
        kind: _,
        why,
        details,
        needs,
        is_new: _,
    }) = render::attention_with_causes(connection, &run)?
    else {
        return Ok(None);
    };
    let why = why.as_str().replace('_', " ");
    let what = match run.state {
        state if state.is_finished() => format!("ended: {why}"),
        _ if run.is_held() => "cannot start".to_owned(),
        RunState::Running => "has reported and is still alive".to_owned(),
        _ => format!("stopped: {why}"),
    };
    let needs = needs
        .map(|needs| format!("\nneeds: {needs}"))
        .unwrap_or_default();
    let text = format!(
        "{}{}",
        shorten::counted(details.trim(), QUESTION_CHARS_MAX),
        shorten::counted(&needs, QUESTION_CHARS_MAX)
    );
    Ok(Some(Draft {
        title: format!("{} {what}", run.name),
        text,
        link: None,
    }))
}
