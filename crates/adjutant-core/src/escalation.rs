//! Escalation: which people are notified of an open request, and when.
//!
//! A request waits for its parent first. After configured times it is escalated to people, in
//! order; a person is not notified in quiet hours. Escalation never answers: without an answer, the
//! request's own default or expiry applies.

use crate::SteadyTime;
use std::fmt;

const MINUTES_OF_DAY: u16 = 24 * 60;
const MINUTE_MS: i64 = 60_000;

/// Hours of each day in which a person is not notified. They may contain midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    /// Minutes of the day.
    from: u16,
    until: u16,
}

/// A text is not a time range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time range: write 22:00-07:00")]
pub struct QuietHoursError(String);

impl QuietHours {
    /// Parses `22:00-07:00`.
    ///
    /// # Errors
    /// The text has another form, or covers no time.
    pub fn parse(text: &str) -> Result<Self, QuietHoursError> {
        let wrong = || QuietHoursError(text.to_owned());
        let minute = |text: &str| -> Option<u16> {
            let (hours, minutes) = text.trim().split_once(':')?;
            let is_plain = |part: &str| {
                (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
            };
            let (hours, minutes): (u16, u16) = (
                is_plain(hours).then(|| hours.parse().ok())??,
                is_plain(minutes).then(|| minutes.parse().ok())??,
            );
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let (from, until) = text.split_once('-').ok_or_else(wrong)?;
        let (from, until) = minute(from).zip(minute(until)).ok_or_else(wrong)?;
        if from == until {
            Err(wrong())
        } else {
            Ok(Self { from, until })
        }
    }

    /// Returns how long they still last at a time of the day. `None`: it is not in them.
    #[must_use]
    pub fn lasts_ms(self, ms_of_day: i64) -> Option<i64> {
        let day_ms = i64::from(MINUTES_OF_DAY) * MINUTE_MS;
        let since_start = (ms_of_day - i64::from(self.from) * MINUTE_MS).rem_euclid(day_ms);
        let length =
            i64::from((self.until + MINUTES_OF_DAY - self.from) % MINUTES_OF_DAY) * MINUTE_MS;
        (since_start < length).then_some(length - since_start)
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until } = self;
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            until / 60,
            until % 60
        )
    }
}

/// One person to whom requests are escalated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalationStep {
    pub name: String,
    /// How long a request waits before.
    pub after_ms: i64,
    pub quiet: Option<QuietHours>,
    /// The time zone of the quiet hours. `None`: the hub's.
    pub zone: Option<String>,
}

/// The notifications that are due about an open request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalation {
    /// Escalate to the person at this place.
    Now(usize),
    /// Look again at this time.
    At(SteadyTime),
    /// Every person has been notified.
    Done,
}

/// Decides whom to notify about an open request now. `escalated`: the people who have been
/// notified. Each is notified once. `ms_of_day`: the time of the day where a person is.
#[must_use]
pub fn next_escalation(
    steps: &[EscalationStep],
    escalated: &[&str],
    asked_at: SteadyTime,
    now: SteadyTime,
    ms_of_day: impl Fn(&EscalationStep) -> i64,
) -> Escalation {
    let mut next: Option<SteadyTime> = None;
    for (place, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| !escalated.contains(&step.name.as_str()))
    {
        let due = asked_at.plus_ms(step.after_ms);
        let at = match step.quiet.and_then(|quiet| quiet.lasts_ms(ms_of_day(step))) {
            _ if now < due => due,
            None => return Escalation::Now(place),
            Some(lasts) => now.plus_ms(lasts),
        };
        next = Some(next.map_or(at, |earlier| earlier.min(at)));
    }
    next.map_or(Escalation::Done, Escalation::At)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR_MS: i64 = 60 * MINUTE_MS;

    fn step(name: &str, after_ms: i64, quiet: Option<&str>) -> EscalationStep {
        EscalationStep {
            name: name.to_owned(),
            after_ms,
            quiet: quiet.map(|text| QuietHours::parse(text).expect("quiet hours")),
            zone: None,
        }
    }

    #[test]
    fn quiet_hours_may_contain_midnight() {
        let night = QuietHours::parse("22:00-07:00").expect("quiet hours");
        assert_eq!(
            (night.lasts_ms(23 * HOUR_MS), night.lasts_ms(6 * HOUR_MS)),
            (Some(8 * HOUR_MS), Some(HOUR_MS))
        );
        assert_eq!(
            (
                night.lasts_ms(7 * HOUR_MS),
                night.lasts_ms(21 * HOUR_MS),
                night.lasts_ms(22 * HOUR_MS)
            ),
            (None, None, Some(9 * HOUR_MS))
        );
        let noon = QuietHours::parse("12:30-13:00").expect("quiet hours");
        assert_eq!(
            (
                noon.lasts_ms(12 * HOUR_MS),
                noon.lasts_ms(12 * HOUR_MS + 45 * MINUTE_MS)
            ),
            (None, Some(15 * MINUTE_MS))
        );
        assert_eq!(night.to_string(), "22:00-07:00");
        for wrong in [
            "",
            "22-07",
            "22:00",
            "24:00-07:00",
            "22:60-07:00",
            "22:00-22:00",
            "+1:00-02:00",
            "22:00-07:00-08:00",
        ] {
            assert!(QuietHours::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn people_are_notified_in_order_and_once() {
        let steps = [step("anna", 10, None), step("ben", 20, None)];
        let next = |escalated: &[&str], now| {
            next_escalation(&steps, escalated, SteadyTime(100), SteadyTime(now), |_| 0)
        };
        assert_eq!(next(&[], 100), Escalation::At(SteadyTime(110)));
        assert_eq!(next(&[], 110), Escalation::Now(0));
        assert_eq!(next(&["anna"], 110), Escalation::At(SteadyTime(120)));
        assert_eq!(
            (next(&["anna"], 500), next(&["anna", "ben"], 500)),
            (Escalation::Now(1), Escalation::Done)
        );
    }

    #[test]
    fn person_in_quiet_hours_is_notified_in_the_morning() {
        let steps = [step("anna", 10, Some("22:00-07:00")), step("ben", 20, None)];
        let at_six = 6 * HOUR_MS;
        assert_eq!(
            next_escalation(&steps, &[], SteadyTime(0), SteadyTime(10), |_| at_six),
            Escalation::At(SteadyTime(20))
        );
        assert_eq!(
            next_escalation(&steps, &[], SteadyTime(0), SteadyTime(20), |_| at_six),
            Escalation::Now(1)
        );
        assert_eq!(
            next_escalation(&steps, &["ben"], SteadyTime(0), SteadyTime(20), |_| at_six),
            Escalation::At(SteadyTime(20 + HOUR_MS))
        );
        assert_eq!(
            next_escalation(
                &steps,
                &["ben"],
                SteadyTime(0),
                SteadyTime(20 + HOUR_MS),
                |_| 7 * HOUR_MS
            ),
            Escalation::Now(0)
        );
    }

    #[test]
    fn quiet_hours_use_the_persons_time_zone() {
        let zone = |name: &str| Some(name.to_owned());
        let steps = [
            EscalationStep {
                zone: zone("there"),
                ..step("anna", 10, Some("22:00-07:00"))
            },
            EscalationStep {
                zone: zone("here"),
                ..step("ben", 10, Some("22:00-07:00"))
            },
        ];
        let ms_of_day = |step: &EscalationStep| {
            if step.zone.as_deref() == Some("there") {
                23 * HOUR_MS
            } else {
                12 * HOUR_MS
            }
        };
        assert_eq!(
            next_escalation(&steps, &[], SteadyTime(0), SteadyTime(10), ms_of_day),
            Escalation::Now(1)
        );
        assert_eq!(
            next_escalation(&steps, &["ben"], SteadyTime(0), SteadyTime(10), ms_of_day),
            Escalation::At(SteadyTime(10 + 8 * HOUR_MS))
        );
    }

    proptest! {
        /// Following the decisions notifies each person exactly once, never before the time, never
        /// in quiet hours.
        #[test]
        fn each_person_is_notified_once_and_in_time(afters in proptest::collection::vec(0_i64..40 * 3_600_000, 1..5), quiet in any::<[bool; 5]>(), start in 0_i64..24 * 3_600_000) {
            let names = ["a", "b", "c", "d", "e"];
            let night = |place: usize| quiet[place].then_some("22:00-07:00");
            let steps: Vec<EscalationStep> = afters.iter().enumerate().map(|(place, after)| step(names[place], *after, night(place))).collect();
            let mut escalated: Vec<&str> = Vec::new();
            let mut now = SteadyTime(0);
            for _ in 0..100 {
                let of_day = (start + now.0) % (24 * HOUR_MS);
                match next_escalation(&steps, &escalated, SteadyTime(0), now, |_| of_day) {
                    Escalation::Now(place) => {
                        prop_assert!(!escalated.contains(&names[place]) && now.0 >= steps[place].after_ms);
                        prop_assert!(steps[place].quiet.is_none_or(|quiet| quiet.lasts_ms(of_day).is_none()));
                        escalated.push(names[place]);
                    }
                    Escalation::At(at) => {
                        prop_assert!(at > now);
                        now = at;
                    }
                    Escalation::Done => break,
                }
            }
            prop_assert_eq!(escalated.len(), steps.len());
        }
    }
}
