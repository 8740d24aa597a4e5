//! The usage of an attempt's models, as counted by the gate.

use adjutant_stream::api_usage::{Stated, Tokens};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of models that are counted separately. Further ones count under the empty name.
const MODELS_MAX: usize = 32;
/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 128;

/// The use of one model. The numbers only grow, except that input can turn out to be cached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelUse {
    /// The model's name in the response, or else in the request. Empty: unknown.
    pub model: String,
    /// Requests that the model has answered or may have answered.
    pub requests: u64,
    /// Requests whose usage is unknown or only partly known.
    pub unknown_requests: u64,
    pub tokens: Tokens,
}

/// The counts of one model.
#[derive(Debug, Default)]
pub(super) struct Counted {
    model: String,
    pub(super) requests: u64,
    pub(super) unknown_requests: u64,
    pub(super) stated: Stated,
}

/// The numbers of changes of the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    pub all: u64,
    /// Changes at the end of a request.
    pub ended: u64,
}

/// The totals of all models.
#[derive(Debug)]
pub(super) struct Tally {
    // All connections update this, also when they are dropped. Never held across an await.
    models: Mutex<Vec<Counted>>,
    changes: watch::Sender<Changes>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            models: Mutex::default(),
            changes: watch::channel(Changes::default()).0,
        }
    }
}

impl Tally {
    /// Changes the use of a model. `has_ended`: the change is the end of a request.
    pub(super) fn change(&self, model: &str, has_ended: bool, change: impl FnOnce(&mut Counted)) {
        let mut models = self.models();
        let model = if model.len() <= MODEL_BYTES_MAX {
            model
        } else {
            ""
        };
        let known =
            |models: &[Counted], name: &str| models.iter().position(|used| used.model == name);
        let at = known(&models, model)
            .or_else(|| {
                (models.len() >= MODELS_MAX)
                    .then(|| known(&models, ""))
                    .flatten()
            })
            .unwrap_or_else(|| {
                let name = if models.len() < MODELS_MAX { model } else { "" };
                models.push(Counted {
                    model: name.to_owned(),
                    ..Counted::default()
                });
                models.len() - 1
            });
        change(&mut models[at]);
        drop(models);
        self.changes.send_modify(|changes| {
            changes.all += 1;
            changes.ended += u64::from(has_ended);
        });
    }

    /// Notes that a request has ended, with or without usage.
    pub(super) fn note_end(&self) {
        self.changes.send_modify(|changes| {
            changes.all += 1;
            changes.ended += 1;
        });
    }

    pub(super) fn totals(&self) -> Vec<ModelUse> {
        let of = |counted: &Counted| {
            let Counted {
                model,
                requests,
                unknown_requests,
                stated,
            } = counted;
            ModelUse {
                model: model.clone(),
                requests: *requests,
                unknown_requests: *unknown_requests,
                tokens: stated.tokens(),
            }
        };
        self.models().iter().map(of).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }

    fn models(&self) -> MutexGuard<'_, Vec<Counted>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
