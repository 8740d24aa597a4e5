use super::*;
use proptest::prelude::*;

const RUN: RunFacts<'_> = RunFacts {
    state: RunStateKind::Finished,
    outcome: Some(OutcomeKind::Succeeded),
    has_started: true,
    is_retried: false,
    is_merged: false,
    is_verified: false,
    has_used_chat: false,
    queue_ms: Some(5),
    active_ms: 7,
    cost_micros: None,
    tokens: None,
    requests: &[],
};

fn request(asked_at_ms: i64, until_ms: i64, answered_by: AnswerSource) -> RequestTimes {
    RequestTimes {
        asked_at_ms,
        until_ms,
        answered_by: Some(answered_by),
        is_blocking: true,
    }
}

#[test]
fn unknown_cost_is_never_zero() {
    let mut stats = Stats::default();
    stats.add(None, &RUN);
    assert_eq!(
        (
            stats.total.cost_micros.known(),
            stats.total.cost_micros.unknown
        ),
        (None, 1)
    );
    stats.add(
        None,
        &RunFacts {
            cost_micros: Some(0),
            tokens: Some(Tokens {
                input: 3,
                output: 4,
            }),
            ..RUN
        },
    );
    assert_eq!(
        (
            stats.total.cost_micros.known(),
            stats.total.cost_micros.unknown
        ),
        (Some(0), 1)
    );
    assert_eq!(
        (
            stats.total.input_tokens.known(),
            stats.total.output_tokens.known()
        ),
        (Some(3), Some(4))
    );
    // A run that never started has cost nothing.
    stats.add(
        None,
        &RunFacts {
            has_started: false,
            outcome: Some(OutcomeKind::SpawnFailed),
            ..RUN
        },
    );
    assert_eq!(stats.total.cost_micros.unknown, 1);
}

#[test]
fn overlapping_requests_are_waited_for_once() {
    let requests = [
        request(0, 10, AnswerSource::Person),
        request(5, 8, AnswerSource::Parent),
        request(20, 25, AnswerSource::Parent),
    ];
    let optional = RequestTimes {
        is_blocking: false,
        ..request(30, 90, AnswerSource::Policy)
    };
    let all = [&requests[..], &[optional]].concat();
    let mut stats = Stats::default();
    stats.add(
        None,
        &RunFacts {
            requests: &all,
            ..RUN
        },
    );
    assert_eq!(stats.total.waiting_ms.quantile_ms(50), Some(15));
    let counts: Vec<_> = stats
        .total
        .answers
        .iter()
        .map(|(source, times)| (*source, times.count()))
        .collect();
    assert_eq!(
        counts,
        [
            (AnswerSource::Parent, 2),
            (AnswerSource::Person, 1),
            (AnswerSource::Policy, 1)
        ]
    );
}

#[test]
fn merged_and_verified_run_is_accepted_once() {
    let mut stats = Stats::default();
    stats.add(
        Some("a"),
        &RunFacts {
            is_merged: true,
            is_verified: true,
            ..RUN
        },
    );
    stats.add(
        Some("b"),
        &RunFacts {
            is_verified: true,
            is_retried: true,
            has_used_chat: true,
            ..RUN
        },
    );
    let Tally {
        merged,
        verified,
        accepted,
        retried,
        used_chat,
        ..
    } = stats.total;
    assert_eq!(
        (merged, verified, accepted, retried, used_chat),
        (1, 2, 2, 1, 1)
    );
}

#[test]
fn groups_beyond_the_maximum_are_counted_together() {
    let mut stats = Stats::default();
    for n in 0..GROUPS_MAX + 3 {
        stats.add(Some(&n.to_string()), &RUN);
    }
    stats.add(Some("0"), &RUN);
    let (groups, others) = stats.groups();
    assert_eq!(
        (groups.len(), groups[0].0, others.map(|others| others.runs)),
        (GROUPS_MAX, "0", Some(3))
    );
}

proptest! {
    #[test]
    fn groups_add_up_to_the_total(runs in prop::collection::vec((0_u8..5, any::<bool>(), any::<Option<u32>>(), prop::option::of(0_usize..5)), 0..60)) {
        let mut stats = Stats::default();
        for (group, is_merged, cost, outcome) in runs {
            let outcome = outcome.map(|n| OutcomeKind::ALL[n]);
            let facts = RunFacts { is_merged, cost_micros: cost.map(u64::from), outcome, state: RunStateKind::Queued, ..RUN };
            stats.add(Some(&group.to_string()), &facts);
        }
        let (groups, _) = stats.groups();
        let sum = |of: fn(&Tally) -> u64| groups.iter().map(|(_, tally)| of(tally)).sum::<u64>();
        let total = &stats.total;
        prop_assert_eq!(sum(|tally| tally.runs), total.runs);
        prop_assert_eq!(sum(|tally| tally.merged), total.accepted);
        prop_assert_eq!(sum(|tally| tally.cost_micros.unknown), total.cost_micros.unknown);
        prop_assert_eq!(sum(|tally| tally.cost_micros.known().unwrap_or(0)), total.cost_micros.known().unwrap_or(0));
        let Tally { queued, unfinished, succeeded, failed, cancelled, spawn_failed, lost, runs, .. } = total;
        prop_assert_eq!(queued + unfinished + succeeded + failed + cancelled + spawn_failed + lost, *runs);
    }

    #[test]
    fn waiting_is_at_most_the_span(mut asked in prop::collection::vec((0_i64..1_000, 0_i64..1_000), 1..20)) {
        asked.sort_unstable();
        let requests: Vec<RequestTimes> = asked.iter().map(|(at, ms)| request(*at, at + ms, AnswerSource::Parent)).collect();
        let span = requests.iter().map(|one| one.until_ms).max().expect("some") - requests[0].asked_at_ms;
        let longest = asked.iter().map(|(_, ms)| *ms).max().expect("some");
        let waited = waiting_ms(&requests);
        prop_assert!(longest <= waited && waited <= span, "{waited} of {span}");
    }
}
