//! One request to a model and its response, with their usage.

use super::open_requests::RequestGuard;
use super::request_body::RequestInfo;
use super::tally::Tally;
use adjutant_stream::api_usage::{Known, Stated, UsageScanner};
use std::sync::Arc;

/// The progress of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotSent,
    /// The request was sent, so the model may be working.
    Sent,
    Answered,
    Ended,
}

/// An exchange. A dropped exchange counts with the usage stated so far.
#[derive(Debug)]
pub(super) struct Exchange {
    tally: Arc<Tally>,
    asked: Arc<RequestInfo>,
    /// The name of the model under which the usage counts.
    model: Option<String>,
    phase: Phase,
    scanner: UsageScanner,
    counted: Stated,
    /// Dropped after the usage is counted.
    _open: Option<RequestGuard>,
}

impl Exchange {
    /// `open`: keeps the request open, if it costs something.
    pub(super) fn new(
        tally: Arc<Tally>,
        asked: Arc<RequestInfo>,
        open: Option<RequestGuard>,
    ) -> Self {
        Self {
            tally,
            asked,
            model: None,
            phase: Phase::NotSent,
            scanner: UsageScanner::default(),
            counted: Stated::default(),
            _open: open,
        }
    }

    /// Records that the request was sent, from when it can cost something.
    pub(super) fn note_sent(&mut self) {
        self.phase = Phase::Sent;
    }

    /// Records that the head of the response has arrived. A failed request costs nothing.
    pub(super) fn note_answer(&mut self, is_success: bool) {
        self.phase = if is_success {
            Phase::Answered
        } else {
            Phase::Ended
        };
    }

    /// Counts the usage in the next bytes of the response.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.phase != Phase::Answered {
            return;
        }
        self.scanner.feed(bytes);
        // The response can state the model after the first counts.
        if self.scanner.model().is_some() {
            self.count();
        }
    }

    /// Records that the API has not received the whole request, so that it costs nothing.
    pub(super) fn note_refused(&mut self) {
        self.phase = Phase::Ended;
    }

    /// Ends the exchange. `is_whole`: the response is complete.
    pub(super) fn end(&mut self, is_whole: bool) {
        let phase = std::mem::replace(&mut self.phase, Phase::Ended);
        let is_known = match phase {
            Phase::NotSent | Phase::Ended => return,
            Phase::Sent => false,
            Phase::Answered => self.scanner.known(is_whole) == Known::All,
        };
        self.count();
        let model = self.model();
        self.tally.change(&model, true, |used| {
            used.requests += 1;
            used.unknown_requests += u64::from(!is_known);
        });
    }

    /// Counts the usage that was stated since the last call.
    fn count(&mut self) {
        let stated = self.scanner.stated();
        if stated != self.counted {
            let before = std::mem::replace(&mut self.counted, stated);
            let model = self.model();
            self.tally.change(&model, false, |used| {
                used.stated.add_growth(&before, &stated)
            });
        }
    }

    /// Returns the model that the API states, because the request could name another one.
    fn model(&mut self) -> String {
        let found = || match (self.asked.model(), self.scanner.model()) {
            (Some(asked), Some(answered)) if is_dated(answered, &asked) => asked,
            (_, Some(answered)) => answered.to_owned(),
            (asked, None) => asked.unwrap_or_default(),
        };
        self.model.get_or_insert_with(found).clone()
    }
}

/// Returns whether a name is another name with a date appended. Prices are configured for the short
/// name.
fn is_dated(answered: &str, asked: &str) -> bool {
    let date = answered
        .strip_prefix(asked)
        .and_then(|rest| rest.strip_prefix('-'));
    date.is_some_and(|date| {
        date.len() >= 8
            && date
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-')
    })
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(false);
    }
}
