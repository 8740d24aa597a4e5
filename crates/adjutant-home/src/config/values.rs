//! Values of a configuration file that parse but are invalid. They are collected and reported
//! together.

use super::error::ConfigError;
use super::problems::{self, Problem, Structure};
use adjutant_core::Budget;
use adjutant_core::units::duration;
use std::fmt;
use std::path::Path;

/// Invalid values: the field and the problem of each.
#[derive(Debug, Default)]
pub(super) struct UnusableValues(Vec<(String, String)>);

/// All problems, in one line.
impl fmt::Display for UnusableValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (field, problem)) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{field}: {problem}")?;
        }
        Ok(())
    }
}

impl UnusableValues {
    pub(super) fn report(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push((field.into(), problem.into()));
    }

    /// Returns a value, or reports the problem and returns `None`.
    pub(super) fn check<T>(
        &mut self,
        field: &str,
        read: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        read.map_err(|problem| self.report(field, problem.to_string()))
            .ok()
    }

    /// Parses a duration. An invalid one, or zero, is reported.
    pub(super) fn duration(&mut self, field: &str, text: Option<&str>, default: i64) -> i64 {
        text.and_then(|text| self.check(field, duration::parse_positive(text)))
            .unwrap_or(default)
    }

    /// Parses a duration that may be zero. An invalid one is reported.
    pub(super) fn duration_or_zero(
        &mut self,
        field: &str,
        text: Option<&str>,
        default: i64,
    ) -> i64 {
        text.and_then(|text| self.check(field, duration::parse(text)))
            .unwrap_or(default)
    }

    /// Parses a duration that may be `never`. An invalid one is reported.
    pub(super) fn optional_duration(
        &mut self,
        field: &str,
        text: Option<&str>,
        default: i64,
    ) -> Option<i64> {
        (text != Some("never")).then(|| self.duration(field, text, default))
    }

    /// Parses a budget. An invalid one is reported.
    pub(super) fn budget(&mut self, field: &str, text: Option<&str>) -> Budget {
        text.and_then(|text| self.check(field, Budget::parse(text)))
            .unwrap_or_default()
    }

    /// Returns all problems with those of the structure as one error, in the order of the file, or
    /// `None` if there are none.
    pub(super) fn into_error<T>(
        self,
        path: &Path,
        text: &str,
        structure: &Structure<T>,
    ) -> Option<ConfigError> {
        let to_problem = |(field, problem): (String, String)| Problem {
            line: problems::line_of_field(text, &field),
            text: format!("{field}: {problem}"),
        };
        let mut all: Vec<Problem> = self
            .0
            .into_iter()
            .filter(|(field, _)| !structure.explains(field))
            .map(to_problem)
            .collect();
        all.extend(structure.problems.iter().cloned());
        all.sort_by_key(|problem| problem.line);
        all.dedup();
        (!all.is_empty()).then(|| ConfigError::all(path, &all))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<&str> {
        self.0.iter().map(|(field, _)| field.as_str()).collect()
    }
}
