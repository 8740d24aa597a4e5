//! Webhooks: subscriptions, deliveries and their payloads.

use super::chats::shown_entry;
use super::notices::NoticeWriter;
use super::settings::Settings;
use super::{Caller, OpError, Ops, lookup, render};
use crate::clock::{self, rfc3339};
use crate::config::{Home, Target, Webhook};
use crate::store::{
    Connection, Delivery, OutboxState, Store, StoreError, chat_by_id, entry_by_id, has_deliveries,
    next_delivery, outbox, request_by_id, run_by_id,
};
use crate::view::{RetryWebhooks, WebhookList, WebhookView, WebhooksRetried};
use crate::webhook::{Message, Outgoing};
use adjutant_core::{Action, Denied, Principal, SteadyTime};
use serde_json::{Value, json};
use std::sync::Arc;

/// The webhooks of a home.
#[derive(Debug, Clone)]
pub struct Webhooks {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    notices: NoticeWriter,
}

impl Webhooks {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            notices: NoticeWriter::of(ops),
        }
    }

    /// Subscribes the configured webhooks to events from now on.
    ///
    /// # Errors
    /// The configuration cannot be used (nothing changes then), or the store fails.
    pub async fn subscribe(&self) -> Result<Vec<Webhook>, OpError> {
        let hooks = self.settings.config()?.webhooks.clone();
        let wanted: Vec<(String, Vec<String>)> = hooks
            .iter()
            .map(|hook| (hook.key.clone(), hook.events.clone()))
            .collect();
        // Nothing is written when there are and were no webhooks.
        if !wanted.is_empty() || !self.store.read(outbox)?.is_empty() {
            self.store.write(move |tx| tx.set_webhooks(&wanted)).await?;
        }
        Ok(hooks)
    }

    /// Returns the next delivery for a webhook, and the earliest time for it. In quiet hours of its
    /// person, that is their end.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn next_delivery(&self, hook: &Webhook) -> Result<Option<(Delivery, SteadyTime)>, OpError> {
        let next = self
            .store
            .read(|connection| next_delivery(connection, &hook.key))?;
        let quiet_ms = match &hook.target {
            Target::Notices(notices) => notices
                .quiet
                .and_then(|quiet| quiet.lasts_ms(clock::ms_of_day(notices.zone.as_deref()))),
            Target::Signed { .. } => None,
        };
        let end_of_quiet = quiet_ms.map(|ms| clock::steady().plus_ms(ms));
        Ok(next.map(|delivery| {
            let not_before = end_of_quiet.map_or(delivery.next_at, |end| end.max(delivery.next_at));
            (delivery, not_before)
        }))
    }

    /// Builds what a delivery sends, from the current state. `None`: nothing any more.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn outgoing(
        &self,
        hook: &Webhook,
        delivery: &Delivery,
    ) -> Result<Option<Outgoing>, OpError> {
        match &hook.target {
            Target::Notices(notices) => Ok(self
                .notices
                .notice(delivery, &hook.key, notices)?
                .map(Outgoing::Notice)),
            Target::Signed { .. } => {
                let payload = self
                    .store
                    .read(|connection| payload(connection, &self.home, delivery))?;
                let timestamp_s = clock::now().0.div_euclid(1000);
                Ok(Some(Outgoing::Event(Message {
                    id: delivery.id.clone(),
                    timestamp_s,
                    body: payload.to_string().into_bytes(),
                })))
            }
        }
    }

    /// Records the result of a delivery. `problem`: why it has failed.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn note_delivery(
        &self,
        hook: &Webhook,
        delivery: &Delivery,
        problem: Option<String>,
    ) -> Result<(), OpError> {
        let (no, url) = (delivery.no, hook.key.clone());
        let note = self.store.write(move |tx| match &problem {
            None => tx.delivered(no),
            Some(problem) => {
                tx.not_delivered(no, problem)?;
                tx.trim_outbox(&url)
            }
        });
        Ok(note.await?)
    }

    /// Returns whether deliveries are pending.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn has_deliveries(&self) -> Result<bool, OpError> {
        Ok(self.store.read(has_deliveries)?)
    }

    /// Lists the webhooks, for the person.
    ///
    /// # Errors
    /// Another caller, or a failure of the store.
    pub fn list(&self, who: &Principal) -> Result<WebhookList, OpError> {
        lookup::check(who, Action::ManageHub)?;
        Ok(WebhookList {
            webhooks: self.views()?,
        })
    }

    /// Retries failed deliveries.
    ///
    /// # Errors
    /// The caller is not the person, or the address matches no webhook or more than one.
    pub async fn retry(
        &self,
        caller: Caller,
        call: RetryWebhooks,
    ) -> Result<WebhooksRetried, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let urls: Vec<String> = self
            .settings
            .config()?
            .webhooks
            .iter()
            .map(|hook| hook.key.clone())
            .collect();
        let urls = match &call.url {
            None => urls,
            Some(given) => vec![one_of(urls, given)?],
        };
        caller
            .write(&self.store, move |tx, _| {
                let mut deliveries = 0;
                for url in &urls {
                    deliveries += tx.retry_deliveries(url)?;
                }
                Ok(WebhooksRetried { deliveries })
            })
            .await
    }

    /// Returns the state of the configured webhooks, or of the known ones where the configuration
    /// cannot be read. Only the origin of an address is shown: the path may be a secret.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn views(&self) -> Result<Vec<WebhookView>, OpError> {
        let states = self.store.read(outbox)?;
        let now = clock::steady();
        let view = |url: &str, events: Vec<String>| {
            let place = url
                .parse::<http::Uri>()
                .ok()
                .and_then(|url| Some(format!("{}://{}", url.scheme_str()?, url.authority()?)));
            // A key that is not an address contains no secret.
            let view = WebhookView {
                place: place.unwrap_or_else(|| url.to_owned()),
                events,
                ..WebhookView::default()
            };
            match states.iter().find(|state| state.url == url) {
                None => view,
                Some(OutboxState {
                    url: _,
                    waiting,
                    parked,
                    dropped,
                    next_at,
                    problem,
                }) => WebhookView {
                    waiting: *waiting,
                    parked: *parked,
                    dropped: *dropped,
                    next_try_at: next_at
                        .filter(|at| *at > now)
                        .map(|at| rfc3339(clock::expected_wall_time(at))),
                    problem: problem.clone(),
                    ..view
                },
            }
        };
        Ok(match self.settings.config() {
            Ok(config) => config
                .webhooks
                .iter()
                .map(|hook| view(&hook.key, hook.events.clone()))
                .collect(),
            Err(error) => {
                tracing::warn!(%error, "webhooks are listed without their events");
                states
                    .iter()
                    .map(|state| view(&state.url, Vec::new()))
                    .collect()
            }
        })
    }
}

/// Returns what a delivery says, from the current state.
fn payload(connection: &Connection, home: &Home, delivery: &Delivery) -> Result<Value, StoreError> {
    let Delivery {
        no: _,
        id: _,
        kind,
        at,
        run,
        request,
        entry,
        by,
        text,
        next_at: _,
    } = delivery;
    let mut data = json!({"by": by, "text": text});
    if let Some(id) = run {
        data["run_id"] = json!(id.to_string());
        if let Some(run) = run_by_id(connection, *id)? {
            data["run"] = json!(render::run(connection, home, &run)?);
        }
    }
    if let Some(request) = request
        .map(|id| request_by_id(connection, id))
        .transpose()?
        .flatten()
    {
        data["request"] = json!(render::request(&request));
    }
    if let Some(entry) = entry
        .map(|id| entry_by_id(connection, id))
        .transpose()?
        .flatten()
    {
        data["text"] = json!(entry.text.lines().next().unwrap_or_default());
        data["message"] = json!(shown_entry(&entry));
        data["chat_title"] = json!(chat_by_id(connection, entry.chat)?.map(|chat| chat.title));
    }
    Ok(json!({"type": kind, "timestamp": rfc3339(*at), "data": data}))
}

/// Resolves a webhook by its address or a unique prefix of it.
fn one_of(urls: Vec<String>, given: &str) -> Result<String, Denied> {
    if let Some(url) = urls.iter().find(|url| *url == given) {
        return Ok(url.clone());
    }
    let mut begin_so = urls
        .into_iter()
        .filter(|url| !given.is_empty() && url.starts_with(given));
    match (begin_so.next(), begin_so.count()) {
        (Some(url), 0) => Ok(url),
        (None, _) => Err(Denied::invalid(
            "url",
            "no configured webhook address begins like this; see adj webhooks",
        )),
        (Some(_), others) => Err(Denied::invalid(
            "url",
            format!(
                "{} webhook addresses begin like this: give more of it",
                others + 1
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_is_resolved_by_a_unique_part_of_its_address() {
        let urls = || {
            [
                "https://a.example/x",
                "https://a.example/xy",
                "https://b.example/",
            ]
            .map(str::to_owned)
            .to_vec()
        };
        assert_eq!(
            one_of(urls(), "https://b.ex"),
            Ok("https://b.example/".to_owned())
        );
        assert_eq!(
            one_of(urls(), "https://a.example/x"),
            Ok("https://a.example/x".to_owned())
        );
        for none in ["", "https://c", "https://a.example", "b.example"] {
            assert!(one_of(urls(), none).is_err(), "{none}");
        }
    }
}
