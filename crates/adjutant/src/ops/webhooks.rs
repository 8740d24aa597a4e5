//! Webhooks: who is told what, and what a delivery says.

use super::chats::shown_entry;
use super::{OpError, Ops, render};
use crate::clock::{self, rfc3339};
use crate::config::Webhook;
use crate::store::{Connection, Delivery, StoreError, chat_by_id, entry_by_id, has_deliveries, next_delivery, outbox, request_by_id, run_by_id};
use crate::view::WebhookView;
use crate::webhook::Message;
use adjutant_core::Time;
use serde_json::{Value, json};

impl Ops {
    /// Makes the configured webhooks those that are told what happens from now on.
    ///
    /// # Errors
    /// The configuration cannot be used (then everything stays as it was), or a failure of the store.
    pub async fn set_webhooks(&self) -> Result<Vec<Webhook>, OpError> {
        let hooks = self.config()?.webhooks.clone();
        let wanted: Vec<(String, Vec<String>)> = hooks.iter().map(|hook| (hook.url.to_string(), hook.events.clone())).collect();
        // Where there are none and were none, nothing is written.
        if !wanted.is_empty() || !self.store.read(outbox)?.is_empty() {
            self.store.write(move |tx| tx.set_webhooks(&wanted)).await?;
        }
        Ok(hooks)
    }

    /// Returns what has to be delivered to a webhook next, not before the time beside it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn next_delivery(&self, hook: &Webhook) -> Result<Option<(Delivery, Time)>, OpError> {
        let next = self.store.read(|connection| next_delivery(connection, &hook.url.to_string()))?;
        Ok(next.map(|delivery| {
            let not_before = delivery.next_at;
            (delivery, not_before)
        }))
    }

    /// Writes what a delivery says, as things are now.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn message(&self, delivery: &Delivery) -> Result<Message, OpError> {
        let payload = self.store.read(|connection| self.payload(connection, delivery))?;
        let timestamp_s = clock::now().0.div_euclid(1000);
        Ok(Message { id: delivery.id.clone(), timestamp_s, body: payload.to_string().into_bytes() })
    }

    fn payload(&self, connection: &Connection, delivery: &Delivery) -> Result<Value, StoreError> {
        let Delivery { no: _, id: _, kind, at, run, request, entry, by, text, next_at: _ } = delivery;
        let mut data = json!({"by": by, "text": text});
        if let Some(id) = run {
            data["run_id"] = json!(id.to_string());
            if let Some(run) = run_by_id(connection, *id)? {
                data["run"] = json!(render::run(connection, &self.home, &run)?);
            }
        }
        if let Some(request) = request.map(|id| request_by_id(connection, id)).transpose()?.flatten() {
            data["request"] = json!(render::request(&request));
        }
        if let Some(entry) = entry.map(|id| entry_by_id(connection, id)).transpose()?.flatten() {
            data["text"] = json!(entry.text.lines().next().unwrap_or_default());
            data["message"] = json!(shown_entry(&entry));
            data["chat_title"] = json!(chat_by_id(connection, entry.chat)?.map(|chat| chat.title));
        }
        Ok(json!({"type": kind, "timestamp": rfc3339(*at), "data": data}))
    }

    /// Notes what became of a delivery.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn note_delivery(&self, hook: &Webhook, delivery: &Delivery, delivered: Result<(), String>) -> Result<(), OpError> {
        let (no, url) = (delivery.no, hook.url.to_string());
        let note = self.store.write(move |tx| match &delivered {
            Ok(()) => tx.delivered(no),
            Err(problem) => {
                tx.not_delivered(no, problem)?;
                tx.trim_outbox(&url)
            }
        });
        Ok(note.await?)
    }

    /// Tells whether anything has to be delivered yet.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn has_deliveries(&self) -> Result<bool, OpError> {
        Ok(self.store.read(has_deliveries)?)
    }

    /// Reads how things stand with the webhooks. Of an address only its beginning is shown: the rest of
    /// some is as good as a password.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn webhooks(&self) -> Result<Vec<WebhookView>, OpError> {
        let states = self.store.read(outbox)?;
        let view = |state: crate::store::OutboxState| {
            let place = state.url.parse::<http::Uri>().ok().and_then(|url| Some(format!("{}://{}", url.scheme_str()?, url.authority()?)));
            WebhookView {
                place: place.unwrap_or_default(),
                waiting: state.waiting,
                parked: state.parked,
                dropped: state.dropped,
                problem: state.problem,
            }
        };
        Ok(states.into_iter().map(view).collect())
    }
}
