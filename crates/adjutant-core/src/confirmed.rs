//! What a store has confirmed, as remembered outside of it: how one notices that its database was
//! set back.
//!
//! A database goes back if an older dump of it is restored, or if a replica that lacked its last
//! transactions takes its place. What callers know is then gone, and numbers would be given out
//! again. So hubs and runners remember the last transaction that they know of. A database that does
//! not contain it has gone back, and a new *era* begins: numbers continue above all that can have
//! been given out.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How many numbers may have been given out since the last known one: more than are given out in
/// the time between two notes of it.
const UNKNOWN_NUMBERS_MAX: i64 = 5_000;
/// An era leaves out at least so many numbers.
pub(crate) const GAP_MIN: i64 = UNKNOWN_NUMBERS_MAX;
/// The first number of an era is one above a multiple of this.
const ERA_STEP: i64 = 10_000;
/// Of how many leads the last transaction is remembered, the newest.
const LEADS_MAX: usize = 16;

/// A transaction: a hub counts those of its time as the leader, which has a random id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    pub epoch: i64,
    pub transaction: i64,
}

/// What is known to be confirmed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The identity of the store, which its dumps have too.
    pub store: String,
    pub era: i64,
    /// The last transaction of each lead, by the id of the lead.
    pub leads: BTreeMap<String, Reached>,
    /// The last number of each table.
    pub numbers: BTreeMap<String, i64>,
}

/// A time during which one hub led a store, as its database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    pub epoch: i64,
    pub id: String,
    /// The number of its last transaction so far.
    pub last: i64,
}

/// The history of a store, as its database knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub store: String,
    pub era: i64,
    /// The newest leads.
    pub leads: Vec<Led>,
    /// Above which numbers of each table the eras began.
    pub starts: BTreeMap<i64, BTreeMap<String, i64>>,
}

impl History {
    /// Returns whether a later era began above all numbers that are known.
    fn covers(&self, known: &Confirmed) -> bool {
        let is_above = |starts: &BTreeMap<String, i64>| {
            known
                .numbers
                .iter()
                .all(|(table, last)| starts.get(table).is_some_and(|start| last <= start))
        };
        self.starts
            .range(known.era.saturating_add(1)..)
            .any(|(_, starts)| is_above(starts))
    }

    fn lacks(&self, id: &str, reached: &Reached) -> bool {
        match self.leads.iter().find(|led| led.epoch == reached.epoch) {
            Some(led) => led.id != id || led.last < reached.transaction,
            // Older leads than the history has cannot be checked.
            None => self.leads.iter().all(|led| led.epoch < reached.epoch),
        }
    }
}

impl Confirmed {
    /// Returns whether a database has gone back behind what was confirmed. Another store cannot
    /// have.
    #[must_use]
    pub fn is_missing_in(&self, history: &History) -> bool {
        if self.store != history.store {
            return false;
        }
        match self.era.cmp(&history.era) {
            Ordering::Greater => true,
            Ordering::Equal => self
                .leads
                .iter()
                .any(|(id, reached)| history.lacks(id, reached)),
            // The hub that began the era may have known less.
            Ordering::Less => !history.covers(self),
        }
    }

    /// Continues with the store and the era of a database.
    pub fn enter(&mut self, store: &str, era: i64) {
        if self.store != store {
            *self = Self {
                store: store.to_owned(),
                era,
                ..Self::default()
            };
        } else if self.era != era {
            self.era = era;
            self.leads.clear();
        }
    }

    /// Notes a transaction of the current store and era, and the last numbers of tables.
    pub fn note(
        &mut self,
        lead: &str,
        reached: Reached,
        numbers: impl IntoIterator<Item = (String, i64)>,
    ) {
        let known = self
            .leads
            .entry(lead.to_owned())
            .or_insert_with(|| reached.clone());
        known.transaction = known.transaction.max(reached.transaction);
        while self.leads.len() > LEADS_MAX {
            let oldest = self
                .leads
                .iter()
                .min_by_key(|(_, reached)| reached.epoch)
                .map(|(id, _)| id.clone());
            oldest.and_then(|oldest| self.leads.remove(&oldest));
        }
        for (table, last) in numbers {
            let known = self.numbers.entry(table).or_insert(last);
            *known = last.max(*known);
        }
    }

    /// Learns what someone else knows.
    pub fn learn(&mut self, other: &Self) {
        if self.store != other.store || self.era < other.era {
            self.enter(&other.store, other.era);
        }
        if self.era == other.era {
            other
                .leads
                .iter()
                .for_each(|(id, reached)| self.note(id, reached.clone(), []));
        }
        for (table, last) in &other.numbers {
            let known = self.numbers.entry(table.clone()).or_insert(*last);
            *known = (*last).max(*known);
        }
    }

    /// Returns the part about one lead.
    #[must_use]
    pub fn of_lead(&self, id: &str) -> Self {
        let leads = self
            .leads
            .get(id)
            .map(|reached| (id.to_owned(), reached.clone()))
            .into_iter()
            .collect();
        Self {
            leads,
            ..self.clone()
        }
    }

    /// Returns by how much the most advanced number is ahead of that in an earlier state.
    #[must_use]
    pub fn numbers_since(&self, earlier: &Self) -> i64 {
        let ahead = |(table, last): (&String, &i64)| {
            last - earlier.numbers.get(table).copied().unwrap_or(0)
        };
        self.numbers.iter().map(ahead).max().unwrap_or(0)
    }
}

/// The numbers of a table that the end of an era has left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberGap {
    /// The last number that the database has.
    pub last: i64,
    /// The new era gives out numbers above this one.
    pub start: i64,
}

impl NumberGap {
    /// Returns the gap of a table at the beginning of an era. `known`: the last number that is
    /// known to be confirmed.
    #[must_use]
    pub fn after(last: i64, known: i64) -> Self {
        let given_out = last.max(known).saturating_add(UNKNOWN_NUMBERS_MAX);
        Self {
            last,
            start: given_out
                .div_euclid(ERA_STEP)
                .saturating_add(1)
                .saturating_mul(ERA_STEP),
        }
    }

    /// Returns whether a number may have been given out before the database went back, for
    /// something that it lost.
    #[must_use]
    pub fn contains(self, number: i64) -> bool {
        self.last < number && number < self.start
    }
}

/// The most that a hub may confirm before what it knows is on disk, so that the gap of an era is
/// wide enough after a power failure.
pub const UNSYNCED_NUMBERS_MAX: i64 = UNKNOWN_NUMBERS_MAX - 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn history(era: i64, leads: &[(i64, &str, i64)]) -> History {
        let leads = leads.iter().map(|(epoch, id, last)| Led {
            epoch: *epoch,
            id: (*id).to_owned(),
            last: *last,
        });
        let starts = (1..=era)
            .map(|era| (era, BTreeMap::from([("events".to_owned(), era * 10_000)])))
            .collect();
        History {
            store: "s".to_owned(),
            era,
            leads: leads.collect(),
            starts,
        }
    }

    fn confirmed(era: i64, leads: &[(i64, &str, i64)]) -> Confirmed {
        let mut confirmed = Confirmed::default();
        confirmed.enter("s", era);
        for (epoch, id, transaction) in leads {
            confirmed.note(
                id,
                Reached {
                    epoch: *epoch,
                    transaction: *transaction,
                },
                [],
            );
        }
        confirmed
    }

    #[test]
    fn database_with_all_that_was_confirmed_has_not_gone_back() {
        let known = confirmed(0, &[(3, "a", 219), (4, "b", 7)]);
        assert!(!known.is_missing_in(&history(0, &[(3, "a", 219), (4, "b", 7)])));
        assert!(!known.is_missing_in(&history(0, &[(3, "a", 300), (4, "b", 8), (5, "c", 0)])));
        assert!(
            !known.is_missing_in(&history(0, &[(90, "c", 1)])),
            "leads that are too old cannot be checked"
        );
        assert!(
            !known.is_missing_in(&history(1, &[(3, "a", 1)])),
            "an earlier era was dealt with"
        );
        assert!(!Confirmed::default().is_missing_in(&history(0, &[])));
        assert!(!known.is_missing_in(&History {
            store: "other".to_owned(),
            ..history(0, &[])
        }));
    }

    #[test]
    fn database_that_lacks_a_confirmed_transaction_has_gone_back() {
        let known = confirmed(0, &[(3, "a", 219), (4, "b", 7)]);
        for (leads, why) in [
            (&[(3, "a", 195), (4, "b", 7)][..], "a lead ended earlier"),
            (
                &[(3, "a", 219), (4, "b", 6)],
                "the last one lost a transaction",
            ),
            (
                &[(3, "a", 219), (4, "x", 900)],
                "another hub led with the same epoch",
            ),
            (&[(3, "a", 219)], "a lead is missing"),
            (&[], "all are missing"),
        ] {
            assert!(known.is_missing_in(&history(0, leads)), "{why}");
        }
        assert!(
            confirmed(2, &[]).is_missing_in(&history(1, &[(3, "a", 219)])),
            "a whole era is missing"
        );
        // The hub that began the era knew less.
        let with_events = |last| Confirmed {
            numbers: [("events".to_owned(), last)].into(),
            ..known.clone()
        };
        assert!(
            with_events(10_001).is_missing_in(&history(1, &[]))
                && !with_events(10_000).is_missing_in(&history(1, &[]))
        );
        assert!(
            !with_events(10_001).is_missing_in(&history(2, &[])),
            "a later one covers it"
        );
        assert!(
            Confirmed {
                numbers: [("other".to_owned(), 1)].into(),
                ..known
            }
            .is_missing_in(&history(1, &[]))
        );
    }

    #[test]
    fn knowledge_of_others_is_added() {
        let mut own = confirmed(1, &[(3, "a", 10)]);
        own.numbers.insert("events".to_owned(), 64);
        let mut other = confirmed(1, &[(3, "a", 12), (4, "b", 1)]);
        other
            .numbers
            .extend([("events".to_owned(), 60), ("requests".to_owned(), 7)]);
        own.learn(&other);
        assert_eq!(own.leads, confirmed(1, &[(3, "a", 12), (4, "b", 1)]).leads);
        assert_eq!((own.numbers["events"], own.numbers["requests"]), (64, 7));
        // What an earlier era has confirmed counts only for the numbers.
        own.learn(&Confirmed {
            numbers: [("events".to_owned(), 99)].into(),
            ..confirmed(0, &[(9, "z", 1)])
        });
        assert_eq!((own.leads.len(), own.numbers["events"]), (2, 99));
        own.learn(&confirmed(2, &[(9, "z", 1)]));
        assert_eq!(
            (own.era, own.leads.len(), own.numbers["events"]),
            (2, 1, 99)
        );
        own.enter("t", 0);
        assert_eq!(
            own,
            Confirmed {
                store: "t".to_owned(),
                ..Confirmed::default()
            }
        );
    }

    #[test]
    fn only_the_newest_leads_are_kept() {
        let leads: Vec<(i64, String)> = (1..=40)
            .map(|epoch| (epoch, format!("lead {epoch}")))
            .collect();
        let known = confirmed(
            0,
            &leads
                .iter()
                .map(|(epoch, id)| (*epoch, id.as_str(), 1))
                .collect::<Vec<_>>(),
        );
        assert_eq!(known.leads.len(), LEADS_MAX);
        assert!(known.leads.contains_key("lead 40") && !known.leads.contains_key("lead 24"));
    }

    #[test]
    fn numbers_of_an_era_are_above_all_that_can_have_been_given_out() {
        assert_eq!(
            NumberGap::after(0, 0),
            NumberGap {
                last: 0,
                start: 10_000
            }
        );
        assert_eq!(
            NumberGap::after(56, 64),
            NumberGap {
                last: 56,
                start: 10_000
            }
        );
        assert_eq!(
            NumberGap::after(56, 8_000),
            NumberGap {
                last: 56,
                start: 20_000
            }
        );
        let gap = NumberGap::after(56, 64);
        assert!(gap.contains(57) && gap.contains(64) && gap.contains(9_999));
        assert!(!gap.contains(56) && !gap.contains(10_000) && !gap.contains(10_001));
        for known in [0, 1, 4_999, 5_000, 9_999, 10_000, 14_999, 15_000] {
            assert!(
                NumberGap::after(0, known).start >= known + UNKNOWN_NUMBERS_MAX,
                "{known}"
            );
        }
    }
}
