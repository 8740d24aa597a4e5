//! Compares two binaries (`--against`): each measurement runs with both in turn, so that a change
//! of the machine's load affects both.

use crate::stats::{Measured, Row};
use std::path::{Path, PathBuf};

/// How often each binary is measured.
const TIMES: usize = 5;
/// How much worse than before a figure may be.
const RATIO_MAX: f64 = 1.05;
/// Measurements of code that this program contains, which do not start `adj`.
const WITHOUT_ADJ: [&str; 7] = [
    "signal: scan",
    "pairs",
    "pools: claim",
    "pools: races",
    "snapshots: take",
    "workspaces",
    "agents: streams",
];

/// The binary that is measured, and the one before it.
#[derive(Debug)]
pub struct Binaries {
    pub now: PathBuf,
    pub before: Option<PathBuf>,
}

/// The rows of a measurement, and whether they are those of the binary before.
pub struct Part {
    pub is_before: bool,
    pub rows: Vec<Row>,
}

impl Binaries {
    /// Returns whether a measurement can be made with all binaries.
    pub fn have(&self, measurement: &str) -> bool {
        self.before.is_none() || !WITHOUT_ADJ.contains(&measurement)
    }

    /// Returns the binaries in the order in which they are measured, each with whether it is the
    /// one before. The first and the second place alternate too.
    pub fn in_turn(&self) -> Vec<(&Path, bool)> {
        let now = (self.now.as_path(), false);
        let Some(before) = &self.before else {
            return vec![now];
        };
        let before = (before.as_path(), true);
        (0..TIMES)
            .flat_map(|n| {
                if n % 2 == 0 {
                    [before, now]
                } else {
                    [now, before]
                }
            })
            .collect()
    }
}

/// Returns the rows of a measurement, with two binaries their ratios.
pub fn summary(mut parts: Vec<Part>) -> Vec<Row> {
    if parts.len() == 1 {
        return parts.remove(0).rows;
    }
    let first = parts
        .first()
        .map(|part| part.rows.clone())
        .unwrap_or_default();
    first
        .iter()
        .filter_map(|row| compared(row, &parts))
        .collect()
}

/// Compares the medians of a row, and names the ratio of the best values, on which the machine's
/// load has less effect. `None`: it is not a number, or only one binary has it.
fn compared(row: &Row, parts: &[Part]) -> Option<Row> {
    let is_cost = matches!(row.measured?, Measured::Cost(_));
    let from_best = |is_before: bool| {
        let rows = parts
            .iter()
            .filter(|part| part.is_before == is_before)
            .flat_map(|part| &part.rows);
        let mut values: Vec<f64> = rows
            .filter(|found| found.what == row.what)
            .filter_map(|found| found.measured.map(Measured::value))
            .collect();
        values.sort_by(|one, other| {
            if is_cost {
                one.total_cmp(other)
            } else {
                other.total_cmp(one)
            }
        });
        values
    };
    let (before, now) = (from_best(true), from_best(false));
    let ratio = |before: f64, now: f64| if is_cost { now / before } else { before / now };
    let (median_before, median_now) = (before.get(before.len() / 2)?, now.get(now.len() / 2)?);
    let (median, best) = (ratio(*median_before, *median_now), ratio(before[0], now[0]));
    let what = format!(
        "{}: {median_before:.3} before, {median_now:.3} now; times as bad (the best ones: {best:.3})",
        row.what
    );
    median
        .is_finite()
        .then(|| Row::number(&what, median, "", RATIO_MAX, true))
}
