//! Percentiles, and the printed table of a benchmark.

use std::time::Duration;

/// Measured times, in nanoseconds.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<u64>);

impl Samples {
    pub fn push(&mut self, time: Duration) {
        self.0
            .push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn push_ns(&mut self, time_ns: u64) {
        self.0.push(time_ns);
    }

    pub fn into_ns(self) -> Vec<u64> {
        self.0
    }

    /// Returns the value that `percent` of the samples do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return f64::NAN;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index far below 2^52"
        )]
        let at =
            ((sorted.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, sorted.len()) - 1;
        ms(sorted[at])
    }

    pub fn p50(&self) -> f64 {
        self.percentile_ms(50.0)
    }

    pub fn p99(&self) -> f64 {
        self.percentile_ms(99.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// A number that can be compared.
#[derive(Debug, Clone, Copy)]
pub enum Measured {
    /// Less is better.
    Cost(f64),
    /// More is better.
    Rate(f64),
}

impl Measured {
    pub fn value(self) -> f64 {
        let (Self::Cost(value) | Self::Rate(value)) = self;
        value
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    pub what: String,
    pub value: String,
    pub p99: String,
    pub floor: String,
    pub target: String,
    pub met: Option<bool>,
    pub measured: Option<Measured>,
}

impl Row {
    /// A latency with its median against a target.
    pub fn latency(what: &str, samples: &Samples, floor: Option<f64>, target_ms: f64) -> Self {
        Self {
            what: what.to_string(),
            value: format!("{} ms", short(samples.p50())),
            p99: format!("{} ms", short(samples.p99())),
            floor: floor.map_or_else(String::new, |floor| format!("{} ms", short(floor))),
            target: format!("<= {} ms", short(target_ms)),
            met: Some(samples.p50() <= target_ms),
            measured: Some(Measured::Cost(samples.p50())),
        }
    }

    /// A latency whose 99th percentile has a target.
    pub fn latency_p99(what: &str, samples: &Samples, floor: Option<f64>, target_ms: f64) -> Self {
        let row = Self::latency(what, samples, floor, target_ms);
        Self {
            target: format!("p99 {}", row.target),
            met: Some(samples.p99() <= target_ms),
            ..row
        }
    }

    /// A value without a target.
    pub fn plain(what: &str, value: String, p99: String) -> Self {
        Self {
            what: what.to_string(),
            value,
            p99,
            floor: String::new(),
            target: String::new(),
            met: None,
            measured: None,
        }
    }

    /// A number that must not exceed (or fall below) a target.
    pub fn number(what: &str, value: f64, unit: &str, target: f64, at_most: bool) -> Self {
        let sign = if at_most { "<=" } else { ">=" };
        Self {
            what: what.to_string(),
            value: format!("{} {unit}", short(value)),
            p99: String::new(),
            floor: String::new(),
            target: format!("{sign} {} {unit}", short(target)),
            met: Some(if at_most {
                value <= target
            } else {
                value >= target
            }),
            measured: Some(if at_most {
                Measured::Cost(value)
            } else {
                Measured::Rate(value)
            }),
        }
    }

    /// Something that could not be measured.
    pub fn failed(what: &str, why: &str) -> Self {
        let value = format!("not measured: {}", why.lines().next().unwrap_or_default());
        Self {
            what: what.to_string(),
            value,
            p99: String::new(),
            floor: String::new(),
            target: String::new(),
            met: Some(false),
            measured: None,
        }
    }
}

pub fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Prints the rows as one table.
pub fn print(rows: &[Row]) {
    let header = ["what", "p50", "p99", "floor", "target", "verdict"].map(str::to_string);
    let mut lines = vec![header];
    for row in rows {
        let verdict = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        lines.push([
            row.what.clone(),
            row.value.clone(),
            row.p99.clone(),
            row.floor.clone(),
            row.target.clone(),
            verdict.to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..6)
        .map(|column| {
            lines
                .iter()
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        println!("| {} |", cells.join(" | "));
        if number == 0 {
            println!(
                "|{}|",
                widths
                    .iter()
                    .map(|width| "-".repeat(width + 2))
                    .collect::<Vec<_>>()
                    .join("|")
            );
        }
    }
}
