//! Printing pages of logs, with the times of their lines if wanted.

use super::context::{self, Context};
use super::out::Failure;
use super::style::{Paint, Style};
use crate::text;
use crate::view::LogPage;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What is shown instead of a time that is not known.
const NO_TIME: &str = "-";

/// Prints the pages of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct PagePrinter {
    timestamps: bool,
    /// The times decide what is printed.
    by_time: bool,
    /// It was reported that times are not known.
    is_gap_reported: bool,
    /// It was reported that output is left out.
    is_missing_reported: bool,
}

impl PagePrinter {
    pub(super) fn new(timestamps: bool, by_time: bool) -> Self {
        Self {
            timestamps,
            by_time,
            is_gap_reported: false,
            is_missing_reported: false,
        }
    }

    /// Returns whether pages have to contain times.
    pub(crate) fn needs_times(&self) -> bool {
        self.timestamps || self.by_time
    }

    /// Prints one page: sanitized for people, unchanged in JSON. `is_line_open`: it continues a
    /// printed line.
    pub(super) fn print(
        &mut self,
        page: &LogPage,
        is_line_open: bool,
        cx: &Context,
    ) -> Result<(), Failure> {
        self.report_gap(page, cx)?;
        if cx.out.json {
            return cx.out.print_json(page);
        }
        if !self.timestamps {
            return cx.out.print_data(&text::block(&page.text));
        }
        let times = TimeColumn::new(page, cx);
        let mut shown = String::new();
        for (n, line) in page.text.split_inclusive('\n').enumerate() {
            if n > 0 || !is_line_open {
                shown.push_str(&times.prefix(n));
            }
            shown.push_str(&text::block(line));
        }
        cx.out.print_data(&shown)
    }

    /// Returns the time before a line, if wanted.
    pub(super) fn prefix(&self, times: &TimeColumn<'_>, line: usize) -> String {
        if self.timestamps {
            times.prefix(line)
        } else {
            String::new()
        }
    }

    /// Reports once which output is left out.
    pub(crate) fn report_missing(&mut self, page: &LogPage, cx: &Context) -> Result<(), Failure> {
        if page.missing.is_empty() || std::mem::replace(&mut self.is_missing_reported, true) {
            return Ok(());
        }
        page.missing.iter().try_for_each(|missing| {
            cx.out
                .print_message(&format!("note: {}", text::line(&missing.to_string())))
        })
    }

    /// Reports once that times are not known.
    pub(crate) fn report_gap(&mut self, page: &LogPage, cx: &Context) -> Result<(), Failure> {
        let has_gap = page.times.iter().flatten().any(|mark| mark.time.is_none());
        if !has_gap || std::mem::replace(&mut self.is_gap_reported, true) {
            return Ok(());
        }
        let effect = if self.by_time {
            "; the output is printed whatever its time"
        } else {
            ""
        };
        let name = text::line(&page.name);
        cx.out.print_message(&format!(
            "note: the times of some output of {name} are not known{effect}"
        ))
    }
}

/// The times of the lines of a page.
pub(crate) struct TimeColumn<'a> {
    page: &'a LogPage,
    zone: Option<TimeZone>,
    paint: Paint,
}

impl<'a> TimeColumn<'a> {
    pub(super) fn new(page: &'a LogPage, cx: &Context) -> Self {
        Self {
            page,
            zone: cx.out.terminal.then(context::zone),
            paint: cx.out.paint,
        }
    }

    /// Returns the time of a line, with a space: local on a terminal, else RFC 3339 in UTC.
    fn prefix(&self, line: usize) -> String {
        let marks = self.page.times.as_deref().unwrap_or_default();
        let at =
            marks.partition_point(|mark| usize::try_from(mark.line).is_ok_and(|mark| mark <= line));
        let time = at
            .checked_sub(1)
            .and_then(|at| marks[at].time.as_deref())
            .and_then(|time| time.parse::<Timestamp>().ok());
        let (time, width) = match &self.zone {
            Some(zone) => (
                time.map(|time| time.to_zoned(zone.clone()).strftime("%F %T").to_string()),
                "2026-11-21 01:02:03".len(),
            ),
            None => (
                time.map(|time| format!("{time:.0}")),
                "2026-11-21T01:02:03Z".len(),
            ),
        };
        let time = format!("{:<width$}", time.as_deref().unwrap_or(NO_TIME));
        format!("{} ", self.paint.apply(Style::Dim, &time))
    }
}
