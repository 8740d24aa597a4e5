//! Compares two binaries (`--against`): each measurement runs with both in turn, so that a change of the machine's load affects both.

use crate::stats::{Measured, Row};
use std::path::{Path, PathBuf};

/// How often each binary is measured.
const TIMES: usize = 5;
/// How much worse than before a figure may be.
const RATIO_MAX: f64 = 1.05;
/// Measurements of code that this program contains, which do not start `adj`.
const WITHOUT_ADJ: [&str; 7] = ["signal: scan", "pairs", "pools: claim", "pools: races", "snapshots: take", "workspaces", "agents: streams"];

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

    /// Returns the binaries in the order in which they are measured, each with whether it is the one before. The first and the second place
    /// alternate too.
    pub fn in_turn(&self) -> Vec<(&Path, bool)> {
        let now = (self.now.as_path(), false);
        let Some(before) = &self.before else { return vec![now] };
        let before = (before.as_path(), true);
        (0..TIMES).flat_map(|n| if n % 2 == 0 { [before, now] } else { [now, before] }).collect()
    }
}

/// Returns the rows of a measurement, with two binaries their ratios.
pub fn summary(mut parts: Vec<Part>) -> Vec<Row> {
    if parts.len() == 1 {
        return parts.remove(0).rows;
    }
    let first = parts.first().map(|part| part.rows.clone()).unwrap_or_default();
    first.iter().filter_map(|row| compared(row, &parts)).collect()
}

/// Compares the medians of a row. `None`: it is no number, or only one binary has it.
fn compared(row: &Row, parts: &[Part]) -> Option<Row> {
    let of = |is_before: bool| {
        let rows = parts.iter().filter(|part| part.is_before == is_before).flat_map(|part| &part.rows);
        median(rows.filter(|found| found.what == row.what).filter_map(|found| found.measured.map(Measured::value)).collect())
    };
    let (before, now) = (of(true)?, of(false)?);
    let ratio = match row.measured? {
        Measured::Cost(_) => now / before,
        Measured::Rate(_) => before / now,
    };
    let what = format!("{}: {before:.3} before, {now:.3} now; times as bad", row.what);
    ratio.is_finite().then(|| Row::number(&what, ratio, "", RATIO_MAX, true))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
