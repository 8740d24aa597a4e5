//! Tests of the rules of budgets.

use super::*;
use proptest::prelude::*;

#[test]
fn budgets_are_parsed() {
    let all = Budget {
        time_ms: Some(5_400_000),
        tokens: Some(2_000_000),
        cost_micros: Some(5_000_000),
        is_hard: true,
    };
    assert_eq!(Budget::parse("cost=5, tokens=2M,time=1h30m,hard"), Ok(all));
    assert_eq!(
        Budget::parse("cost=$0.25").map(|budget| budget.cost_micros),
        Ok(Some(250_000))
    );
    assert_eq!(
        Budget::parse("tokens=1.5k").map(|budget| budget.tokens),
        Ok(Some(1_500))
    );
    assert_eq!(
        Budget::parse("time=90s").map(|budget| budget.time_ms),
        Ok(Some(90_000))
    );
    for wrong in [
        "",
        "hard",
        "5",
        "cost",
        "cost=",
        "cost=0",
        "cost=-1",
        "cost=NaN",
        "cost=inf",
        "cost=1e3",
        "cost=5M",
        "cost=.",
        "cost=1.",
        "cost=0.0000001",
        "cost=99999999999999999999",
        "cost=1,cost=2",
        "tokens=1.5",
        "tokens=-3",
        "tokens=M",
        "tokens=9999999G",
        "time=5",
        "time=0s",
        "time=1y",
        "time=99999999999999d",
        "euros=5",
        "cost=5,,tokens=1",
    ] {
        assert!(Budget::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn amounts_are_shown_for_people() {
    for (kind, amount, text) in [
        (BudgetKind::Cost, 5_000_000, "$5.00"),
        (BudgetKind::Cost, 1_234, "$0.001234"),
        (BudgetKind::Tokens, 2_000_000, "2M"),
        (BudgetKind::Tokens, 1_540, "1.54k"),
        (BudgetKind::Tokens, 7, "7"),
        (BudgetKind::Time, 5_400_000, "1h30m"),
        (BudgetKind::Time, 90_500, "1m30s"),
        (BudgetKind::Time, 20, "20ms"),
    ] {
        assert_eq!(kind.text(amount), text);
    }
}

#[test]
fn missing_amounts_come_from_the_general_budget() {
    let parse = |text| Budget::parse(text).expect("valid");
    assert_eq!(
        parse("cost=1").or(parse("cost=5,time=1h")),
        parse("cost=1,time=1h")
    );
    assert_eq!(
        Budget::default().or(parse("cost=5,hard")),
        parse("cost=5,hard")
    );
    assert_eq!(
        parse("cost=6").exceeds(&parse("cost=5,time=1h")),
        Some((BudgetKind::Cost, 5_000_000))
    );
    assert_eq!(
        parse("cost=5,tokens=9M").exceeds(&parse("cost=5,time=1h")),
        None
    );
}

#[test]
fn unusable_costs_are_refused() {
    assert_eq!(micros_of(0.25), Some(250_000));
    for wrong in [-0.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30] {
        assert_eq!(micros_of(wrong), None, "{wrong}");
    }
}

#[test]
fn usage_beyond_a_limit_reduces_the_budget_above() {
    let (above, below) = Account::new(100).transfer(10).expect("enough");
    let after = below.charge(60);
    let above = above.adjust_reserved(below, after);
    assert_eq!((after.left(), above.left()), (0, 40));
    let above = above.reclaim(after);
    assert_eq!((above.used, above.reserved, above.left()), (60, 0, 40));
}

#[test]
fn unknown_usage_can_exhaust_an_account() {
    let account = Account {
        limit: 10,
        used: 2,
        reserved: 3,
    }
    .exhaust();
    assert_eq!(
        (account.used, account.has_left(), account.claim()),
        (7, false, 10)
    );
    assert_eq!(
        Account {
            limit: 10,
            used: 20,
            reserved: 3
        }
        .exhaust()
        .used,
        20
    );
    assert_eq!(account.raise(5).map(|account| account.left()), Some(5));
}

#[test]
fn only_one_transfer_gets_the_last_unit() {
    let mut account = Account {
        limit: 10,
        used: 6,
        reserved: 3,
    };
    let winners = (0..64)
        .filter(|_| account.transfer(1).map(|(rest, _)| account = rest).is_ok())
        .count();
    assert_eq!((winners, account.left()), (1, 0));
}

/// A step of a tree of accounts.
#[derive(Debug, Clone)]
enum Step {
    Charge(usize, i64),
    Transfer(usize, i64),
    Reclaim(usize),
}

/// Sets an account, and adjusts the accounts above it.
fn change(tree: &mut [(Account, Option<usize>, bool)], at: usize, after: Account) {
    let before = std::mem::replace(&mut tree[at].0, after);
    if let Some(lender) = tree[at].1 {
        let above = tree[lender].0.adjust_reserved(before, after);
        change(tree, lender, above);
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let amount = prop_oneof![
        -5_i64..2_000,
        Just(i64::MAX),
        Just(i64::MIN),
        Just(AMOUNT_MAX)
    ];
    let step = (0_usize..8, amount, 0_u8..3).prop_map(|(at, amount, kind)| match kind {
        0 => Step::Charge(at, amount.min(2_000)),
        1 => Step::Transfer(at, amount),
        _ => Step::Reclaim(at),
    });
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn transfers_conserve_the_sum(limit in 1_i64..5_000, steps in steps()) {
        // Each account with the index of the one above it, and whether it is open.
        let mut tree = vec![(Account::new(limit), None::<usize>, true)];
        let mut charged = 0;
        for step in steps {
            match step {
                Step::Charge(at, amount) => {
                    if let Some((account, _, true)) = tree.get(at).copied() {
                        change(&mut tree, at, account.charge(amount));
                        charged += amount.max(0);
                    }
                }
                Step::Transfer(at, amount) => {
                    let Some((account, _, true)) = tree.get(at).copied() else { continue };
                    match account.transfer(amount) {
                        Ok((rest, below)) => {
                            prop_assert!(amount <= account.left(), "no more than it has");
                            change(&mut tree, at, rest);
                            tree.push((below, Some(at), true));
                        }
                        Err(TooLittleLeft { left }) => prop_assert!(amount <= 0 || amount > left),
                    }
                }
                Step::Reclaim(at) => {
                    let is_lender = tree.iter().any(|(_, lender, is_open)| *is_open && *lender == Some(at));
                    let Some((account, Some(lender), true)) = tree.get(at).copied() else { continue };
                    if !is_lender {
                        tree[at].2 = false;
                        let above = tree[lender].0.reclaim(account);
                        change(&mut tree, lender, above);
                    }
                }
            }
            let open: Vec<_> = tree.iter().filter(|(_, _, is_open)| *is_open).collect();
            let used: i64 = open.iter().map(|(account, ..)| account.used).sum();
            prop_assert_eq!(used, charged, "all usage is charged once");
            let lent: i64 = open.iter().filter(|(_, lender, _)| lender.is_some()).map(|(account, ..)| account.claim()).sum();
            let reserved: i64 = open.iter().map(|(account, ..)| account.reserved).sum();
            prop_assert_eq!(reserved, lent, "what is reserved is what the accounts below may use or have used");
            let root = tree[0].0;
            prop_assert!(root.left() <= (limit - used).max(0), "usage beyond a limit below is not left above");
            for (account, ..) in &open {
                prop_assert!(account.left() >= 0 && account.left() <= account.limit);
                prop_assert!(account.used > account.limit - account.reserved || account.left() == account.limit - account.used - account.reserved);
            }
        }
    }

    #[test]
    fn charged_totals_are_never_less_than_any_report(counts in proptest::collection::vec(any::<[u16; 4]>(), 0..20)) {
        // Input decreases when it is later reported as cached, and reports can arrive out of order.
        let totals = counts.into_iter().map(|count| {
            let [input, cached, cache_write, output] = count.map(u64::from);
            Tokens { input, cached, cache_write, output }
        });
        let (mut known, mut charged) = (Tokens::default(), 0);
        for stated in totals {
            charged += stated.since(&known).charged();
            known = stated.max(&known);
            prop_assert!(charged == known.charged() && charged >= stated.charged());
        }
    }

    #[test]
    fn accounts_never_overflow(limit in any::<i64>(), amounts in proptest::collection::vec(any::<i64>(), 0..20)) {
        let mut account = Account::new(limit);
        for amount in amounts {
            account = account.charge(amount);
            if let Ok((rest, below)) = account.transfer(amount) {
                account = rest.reclaim(below.charge(amount));
            }
            account = account.raise(amount).unwrap_or(account);
            prop_assert!((0..=AMOUNT_MAX).contains(&account.limit) && (0..=AMOUNT_MAX).contains(&account.used));
            prop_assert!((account.left() > 0) == account.has_left());
            prop_assert_eq!(check_left([(BudgetKind::Cost, account)]).is_ok(), account.has_left());
        }
    }

    #[test]
    fn budget_text_round_trips(time in 1..AMOUNT_MAX, tokens in 1..AMOUNT_MAX, cost in 1..AMOUNT_MAX, is_hard in any::<bool>()) {
        let budget = Budget { time_ms: Some(time), tokens: Some(tokens), cost_micros: Some(cost), is_hard };
        prop_assert_eq!(Budget::parse(&budget.to_string()), Ok(budget));
    }

    #[test]
    fn repeated_and_smaller_totals_add_nothing(a in any::<[u64; 4]>(), b in any::<[u64; 4]>()) {
        let of = |[input, cached, cache_write, output]: [u64; 4]| Tokens { input, cached, cache_write, output };
        let (a, b) = (of(a), of(b));
        let known = a.max(&b);
        prop_assert_eq!(a.since(&known), Tokens::default());
        prop_assert_eq!(known.since(&known).charged(), 0);
        prop_assert!(known.charged() <= AMOUNT_MAX && known.charged() >= a.charged());
        let price = Price { input: u64::MAX, cached: 1, cache_write: 1, output: u64::MAX };
        prop_assert!((0..=AMOUNT_MAX).contains(&price.cost_micros(&known)));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
        if let Ok(budget) = Budget::parse(&text) {
            prop_assert!(budget.amounts().all(|(_, amount)| (1..=AMOUNT_MAX).contains(&amount)));
        }
    }
}

#[test]
fn price_is_rounded_up() {
    let price = Price {
        input: 3_000,
        cached: 300,
        cache_write: 3_750,
        output: 15_000,
    };
    assert_eq!(
        price.cost_micros(&Tokens {
            input: 1_000_000,
            ..Tokens::default()
        }),
        3_000_000
    );
    assert_eq!(
        price.cost_micros(&Tokens {
            cached: 1,
            ..Tokens::default()
        }),
        1
    );
}

#[test]
fn request_begins_only_while_something_is_left() {
    for (left, reserved, wanted, fits) in [
        (10, 0, 5, true),
        (10, 0, 50, true),
        (10, 5, 5, true),
        (10, 6, 5, false),
        (1, 0, 5, true),
        (0, 0, 0, false),
        (-3, 0, 1, false),
        (0, 5, 0, false),
    ] {
        assert_eq!(
            fits_beside(left, reserved, wanted),
            fits,
            "{left} {reserved} {wanted}"
        );
    }
}
