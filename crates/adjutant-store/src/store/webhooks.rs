//! The outbox of webhooks: pending deliveries for each receiver, and their failed tries. The
//! transaction of an event fills it.

use super::{StoreError, Topic, Tx};
use crate::store::db::{Connection, params, row, select};
use adjutant_core::webhook::{AfterFailure, after_failure};
use adjutant_core::{EventKind, EventSeq, RequestId, RunId, SteadyTime, Time};

/// Maximum number of waiting and of parked deliveries for each receiver. Beyond it, the oldest are
/// dropped.
const WAITING_MAX: i64 = 10_000;
const PARKED_MAX: i64 = 1_000;

row! {
    /// One delivery.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Delivery {
        pub no: i64,
        pub id: String,
        pub kind: String,
        pub at: Time,
        pub run: Option<RunId>,
        pub request: Option<RequestId>,
        /// The chat entry to deliver, instead of an event.
        pub entry: Option<i64>,
        pub by: String,
        pub text: String,
        /// The earliest time for the next try.
        pub next_at: SteadyTime,
    }
}

row! {
    /// The state of one receiver's deliveries.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OutboxState as w {
        pub url: String,
        pub waiting: i64 = "(SELECT count(*) FROM outbox o WHERE o.url = w.url AND o.state = 'waiting')",
        pub parked: i64 = "(SELECT count(*) FROM outbox o WHERE o.url = w.url AND o.state = 'parked')",
        pub dropped: i64,
        /// When the first waiting delivery is tried next.
        pub next_at: Option<SteadyTime> =
            "(SELECT o.next_at FROM outbox o WHERE o.url = w.url AND o.state = 'waiting' ORDER BY o.no LIMIT 1)",
        /// The most recent problem of a delivery that is still in the outbox.
        pub problem: Option<String> =
            "(SELECT o.problem FROM outbox o WHERE o.url = w.url AND o.problem IS NOT NULL ORDER BY o.state DESC, o.no LIMIT 1)",
    }
}

/// Returns a receiver's next delivery, in order of the events.
///
/// # Errors
/// A failure of the store.
pub fn next_delivery(connection: &Connection, url: &str) -> Result<Option<Delivery>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            Delivery,
            "FROM outbox WHERE url = ?1 AND state = 'waiting' ORDER BY no LIMIT 1"
        ))?
        .find_row([url])?)
}

/// Returns whether a later delivery to a receiver waits that is about the same run and no request
/// of it.
///
/// # Errors
/// A failure of the store.
pub fn has_later_delivery(
    connection: &Connection,
    url: &str,
    no: i64,
    run: RunId,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox WHERE url = ?1 AND state = 'waiting' AND no > ?2 AND run = ?3 AND request IS NULL)")?
        .read_row(params![url, no, run.to_string()])?)
}

/// Reads the state of every receiver.
///
/// # Errors
/// A failure of the store.
pub fn outbox(connection: &Connection) -> Result<Vec<OutboxState>, StoreError> {
    Ok(connection
        .prepare_cached(select!(OutboxState, "FROM webhooks w ORDER BY w.url"))?
        .read_rows([])?)
}

/// Returns whether any delivery is waiting.
///
/// # Errors
/// A failure of the store.
pub fn has_deliveries(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'waiting')")?
        .read_row([])?)
}

/// The kinds of events that receivers want.
const WANTED: &str = "SELECT kind FROM webhook_events";

/// Announces the read of the kinds of events that receivers want, at the beginning of a
/// transaction.
pub(super) fn announce_wanted(connection: &Connection) {
    connection.announce(|connection| connection.prepare_cached(WANTED)?.exists([]));
}

impl Tx<'_> {
    /// Replaces the receivers and the events that each wants. Deliveries to other receivers are
    /// dropped.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_webhooks(&mut self, hooks: &[(String, Vec<String>)]) -> Result<(), StoreError> {
        let known: Vec<String> = self.prepare("SELECT url FROM webhooks")?.read_rows([])?;
        for url in known
            .iter()
            .filter(|url| hooks.iter().all(|(wanted, _)| wanted != *url))
        {
            self.prepare("DELETE FROM webhooks WHERE url = ?1")?
                .run([url])?;
        }
        self.prepare("DELETE FROM webhook_events")?.run([])?;
        self.forget_wanted_events();
        for (url, kinds) in hooks {
            self.prepare("INSERT INTO webhooks (url) VALUES (?1) ON CONFLICT DO NOTHING")?
                .run([url])?;
            for kind in kinds {
                self.prepare(
                    "INSERT INTO webhook_events (kind, url) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                )?
                .run([kind, url])?;
            }
        }
        Ok(())
    }

    /// Returns the end of the outbox.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn outbox_end(&self) -> Result<i64, StoreError> {
        Ok(self
            .prepare("SELECT coalesce(max(no), 0) FROM outbox")?
            .read_row([])?)
    }

    /// Drops the deliveries of a kind of event that this transaction has added after an end of the
    /// outbox.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn drop_deliveries_after(&mut self, end: i64, kind: EventKind) -> Result<(), StoreError> {
        self.prepare("DELETE FROM outbox WHERE no > ?1 AND kind = ?2")?
            .run(params![end, kind.word()])?;
        Ok(())
    }

    /// Removes a delivery that was accepted.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn delivered(&mut self, no: i64) -> Result<(), StoreError> {
        self.prepare("DELETE FROM outbox WHERE no = ?1")?
            .run([no])?;
        Ok(())
    }

    /// Records a failed delivery. It is retried later, or parked after too many tries.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn not_delivered(&mut self, no: i64, problem: &str) -> Result<(), StoreError> {
        let attempts: Option<u32> = self
            .prepare("UPDATE outbox SET attempts = attempts + 1, problem = ?2 WHERE no = ?1 RETURNING attempts")?
            .find_row(params![no, problem])?;
        let Some(attempts) = attempts else {
            return Ok(());
        };
        match after_failure(attempts) {
            AfterFailure::Retry { after_ms } => {
                self.prepare("UPDATE outbox SET next_at = ?2 WHERE no = ?1")?
                    .run(params![no, self.steady().plus_ms(after_ms).0])?;
            }
            AfterFailure::Parked => {
                // For a parked delivery, this is the time when it was parked.
                self.prepare("UPDATE outbox SET state = 'parked', next_at = ?2 WHERE no = ?1")?
                    .run(params![no, self.steady().0])?;
            }
        }
        Ok(())
    }

    /// Schedules a receiver's failed deliveries, including parked ones, for a retry now. Returns
    /// their number.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn retry_deliveries(&mut self, url: &str) -> Result<u64, StoreError> {
        let again = self
            .prepare("UPDATE outbox SET state = 'waiting', attempts = 0, next_at = 0 WHERE url = ?1 AND (state = 'parked' OR next_at > ?2)")?
            .execute(params![url, self.steady().0])?;
        self.notify(Topic::Outbox);
        Ok(u64::try_from(again).unwrap_or(u64::MAX))
    }

    /// Removes deliveries that were parked before a time.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_parked(&mut self, before: SteadyTime) -> Result<(), StoreError> {
        self.prepare("DELETE FROM outbox WHERE state = 'parked' AND next_at < ?1")?
            .run([before.0])?;
        Ok(())
    }

    /// Drops the oldest deliveries of a receiver beyond the limits.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn trim_outbox(&mut self, url: &str) -> Result<(), StoreError> {
        for (state, most) in [("waiting", WAITING_MAX), ("parked", PARKED_MAX)] {
            let dropped = self
                .prepare(
                    "DELETE FROM outbox WHERE url = ?1 AND state = ?2
                     AND no <= (SELECT no FROM outbox WHERE url = ?1 AND state = ?2 ORDER BY no DESC LIMIT 1 OFFSET ?3)",
                )?
                .execute(params![url, state, most])?;
            if dropped > 0 {
                self.prepare("UPDATE webhooks SET dropped = dropped + ?2 WHERE url = ?1")?
                    .run(params![url, i64::try_from(dropped).unwrap_or(0)])?;
            }
        }
        Ok(())
    }
}

/// Adds an event to the outbox for every receiver that wants its kind.
pub(in crate::store) fn add_deliveries(
    tx: &Tx<'_>,
    event: EventSeq,
    kind: EventKind,
) -> Result<(), StoreError> {
    // Most events concern no webhook.
    if tx
        .wanted_events(WANTED)
        .is_some_and(|wanted| !wanted.iter().any(|wanted| wanted == kind.word()))
    {
        return Ok(());
    }
    Ok(tx.connection().run_if(
        "SELECT 1 FROM webhook_events w WHERE w.kind = ?1 AND ?2 > 0",
        "INSERT INTO outbox (id, url, kind, at, run, request, by, text)
         SELECT random_id(), w.url, e.kind, e.at, e.run, e.request, e.by, e.text
         FROM webhook_events w CROSS JOIN events e WHERE w.kind = ?1 AND e.seq = ?2",
        (kind.word(), event.0),
    )?)
}

/// The same for an event of a pool.
pub(in crate::store) fn add_deliveries_of_pool(
    tx: &Tx<'_>,
    event: EventSeq,
    kind: EventKind,
) -> Result<(), StoreError> {
    tx.prepare(
        "INSERT INTO outbox (id, url, kind, at, by, text)
         SELECT random_id(), w.url, e.kind, e.at, e.by, e.text
         FROM webhook_events w CROSS JOIN pool_events e WHERE w.kind = ?1 AND e.seq = ?2",
    )?
    .run(params![kind.word(), event.0])?;
    Ok(())
}

/// Adds a chat entry to the outbox for every receiver that wants entries.
pub(in crate::store) fn add_deliveries_of_entry(tx: &Tx<'_>, entry: i64) -> Result<(), StoreError> {
    tx.prepare(
        "INSERT INTO outbox (id, url, kind, at, entry, by, text)
         SELECT random_id(), w.url, w.kind, m.at, m.id, m.author, ''
         FROM webhook_events w CROSS JOIN chat_messages m JOIN chats c ON c.id = m.chat
         WHERE w.kind = 'chat.message' AND m.id = ?1 AND c.imported = 0",
    )?
    .run([entry])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Home;
    use crate::store::Store;

    const URL: &str = "https://example.org/x";

    #[tokio::test]
    async fn failing_deliveries_are_set_aside_and_excess_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        let store = Store::open(&home).expect("a store");
        let put = store.write(|tx| {
            tx.set_webhooks(&[(URL.to_owned(), vec!["run.finished".to_owned()])])?;
            for n in 0..WAITING_MAX + 5 {
                let insert = "INSERT INTO outbox (id, url, kind, at, by, text) VALUES (?1, ?2, 'run.finished', ?3, 'hub', '')";
                tx.prepare(insert)?.execute(params![n.to_string(), URL, n])?;
            }
            Ok(())
        });
        put.await.expect("written");
        let next = || {
            store
                .read(|connection| next_delivery(connection, URL))
                .expect("read")
                .expect("a waiting delivery")
        };
        let state = || store.read(outbox).expect("read").remove(0);
        let first = next();
        assert_eq!(first.id, "0");
        for attempt in 1..10 {
            store
                .write(move |tx| tx.not_delivered(first.no, "gone"))
                .await
                .expect("written");
            let again = next();
            assert!(
                again.id == "0" && again.next_at > crate::clock::steady(),
                "the order is kept: attempt {attempt}, {again:?}"
            );
        }
        store
            .write(move |tx| tx.not_delivered(first.no, "gone"))
            .await
            .expect("written");
        assert_eq!(next().id, "1");
        assert_eq!(
            (state().parked, state().waiting, state().problem),
            (1, WAITING_MAX + 4, Some("gone".to_owned()))
        );
        assert_eq!(
            store
                .write(|tx| tx.retry_deliveries(URL))
                .await
                .expect("written"),
            1
        );
        assert_eq!(
            (state().parked, state().next_at, next().id),
            (0, Some(SteadyTime(0)), "0".to_owned()),
            "it is the first again"
        );
        for _ in 0..10 {
            store
                .write(move |tx| tx.not_delivered(first.no, "gone"))
                .await
                .expect("written");
        }
        assert_eq!((state().parked, next().id), (1, "1".to_owned()));
        store
            .write(|tx| tx.trim_outbox(URL))
            .await
            .expect("written");
        assert_eq!(
            (state().waiting, state().dropped, next().id),
            (WAITING_MAX, 4, "5".to_owned())
        );
        store
            .write(|tx| tx.forget_parked(crate::clock::steady().plus_ms(1)))
            .await
            .expect("written");
        assert_eq!(state().parked, 0);
        store
            .write(|tx| tx.set_webhooks(&[]))
            .await
            .expect("written");
        assert!(
            store.read(outbox).expect("read").is_empty()
                && !store.read(has_deliveries).expect("read")
        );
    }
}
