//! Wake-ups: how a commit wakes its waiters. A waiter subscribes before it reads, so it misses no
//! commit, and reads again when it is woken. A wake-up carries no data except a settled request,
//! which never changes again.

use super::records::request::Request;
use adjutant_core::chat::ChatId;
use adjutant_core::{RequestId, RunId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The topic of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Any change of one run.
    Run(RunId),
    /// The orders for one run's attempt may have changed, other than whether its clock runs.
    Orders(RunId),
    /// A request was settled.
    Request(RequestId),
    /// A request was settled, for the run that asked. While this subscription exists, the run waits
    /// for the answer.
    Answer(RunId, RequestId),
    /// Any change of an owner's runs. The owner is a serialized principal.
    Owner(String),
    /// Any change.
    All,
    /// A slot may have become free, or a run was queued.
    Queue,
    /// A deadline was set that is earlier than the next check.
    Deadline,
    /// A run has asked for a decision.
    Asked,
    /// Any change of one chat.
    Chat(ChatId),
    /// An entry mentions a participant, given in serialized form.
    Mention(String),
    /// A webhook may have something to deliver.
    Outbox,
    /// An agent must answer in a chat, or an answering run has ended.
    Turns,
    /// Something is due about the tree of a run.
    Trees,
    /// A run uses more or less of the machine, or has ended.
    Load,
    /// A token was revoked.
    Tokens,
    /// Peers, their permissions, or the chats that are followed have changed.
    Peers,
    /// A followed chat may have a post to send.
    Outgoing(ChatId),
}

#[derive(Debug, Default)]
pub struct WakeUps {
    subscriptions: Mutex<Subscriptions>,
    /// When the deadlines are checked next. `None`: a check is due or in progress.
    next_check: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Subscriptions {
    next: u64,
    by_topic: HashMap<Topic, HashMap<u64, Arc<Waiter>>>,
}

#[derive(Debug, Default)]
struct Waiter {
    notify: Notify,
    settled: Mutex<Option<Arc<Request>>>,
}

impl WakeUps {
    /// Subscribes to several topics.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, topics: Vec<Topic>) -> Subscription {
        let waiter = Arc::new(Waiter::default());
        let mut subscriptions = self
            .subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let id = subscriptions.next;
        subscriptions.next += 1;
        for topic in &topics {
            subscriptions
                .by_topic
                .entry(topic.clone())
                .or_default()
                .insert(id, Arc::clone(&waiter));
        }
        drop(subscriptions);
        Subscription {
            wake_ups: Arc::clone(self),
            topics,
            id,
            waiter,
        }
    }

    /// Returns whether a topic has a subscriber.
    #[must_use]
    pub fn has_subscriber(&self, topic: &Topic) -> bool {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_topic
            .contains_key(topic)
    }

    /// Sets when the deadlines are checked next. `None`: a check begins now, so any deadline
    /// committed from here on triggers another check.
    pub fn set_next_check(&self, after: Option<Duration>) {
        *self
            .next_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = after.map(|after| Instant::now() + after);
    }

    /// Notifies of a committed deadline unless the next check is early enough.
    pub(super) fn notify_deadline(&self, due: Duration) {
        let next_check = *self
            .next_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if next_check.is_none_or(|next_check| Instant::now() + due < next_check) {
            self.notify([&Topic::Deadline]);
        }
    }

    /// Notifies every subscription to these topics.
    pub fn notify<'a>(&self, topics: impl IntoIterator<Item = &'a Topic>) {
        let subscriptions = self
            .subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            for waiter in subscriptions
                .by_topic
                .get(topic)
                .into_iter()
                .flat_map(HashMap::values)
            {
                // A permit stays with the waiter, also if it still reads and does not wait yet.
                waiter.notify.notify_one();
            }
        }
    }

    /// Passes an answered and retrieved request to the calls that wait for it. They must be woken
    /// afterwards.
    pub(super) fn deliver_settled(&self, request: &Arc<Request>) {
        let subscriptions = self
            .subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for waiter in subscriptions
            .by_topic
            .get(&Topic::Answer(request.run, request.id))
            .into_iter()
            .flat_map(HashMap::values)
        {
            *waiter
                .settled
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(request));
        }
    }
}

/// A subscription, which ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    wake_ups: Arc<WakeUps>,
    topics: Vec<Topic>,
    id: u64,
    waiter: Arc<Waiter>,
}

impl Subscription {
    /// Waits for the next notification. Returns at once if there was one since the last call.
    pub async fn wait(&self) {
        self.waiter.notify.notified().await;
    }

    /// Returns the answered and retrieved request that the wake-up carried.
    #[must_use]
    pub fn settled(&self) -> Option<Arc<Request>> {
        self.waiter
            .settled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscriptions = self
            .wake_ups
            .subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for topic in &self.topics {
            if let Some(wake_ups) = subscriptions.by_topic.get_mut(topic) {
                wake_ups.remove(&self.id);
                if wake_ups.is_empty() {
                    subscriptions.by_topic.remove(topic);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn deadline_wakes_only_if_earlier_than_the_next_check() {
        let wake_ups = Arc::new(WakeUps::default());
        let subscription = wake_ups.subscribe(vec![Topic::Deadline]);
        let notifies = |due_s| {
            wake_ups.notify_deadline(Duration::from_secs(due_s));
            subscription.wait().now_or_never().is_some()
        };
        assert!(notifies(500), "nothing was checked yet");
        wake_ups.set_next_check(Some(Duration::from_secs(500)));
        assert!(notifies(400) && !notifies(600));
        wake_ups.set_next_check(None);
        assert!(notifies(600), "the check in progress may miss it");
    }
}
