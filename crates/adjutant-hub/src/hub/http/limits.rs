//! Limits for each token, so that one program in an endless loop cannot block the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum size of the head of a request, in bytes.
pub(super) const HEAD_BYTES_MAX: u16 = 32 * 1024;
/// Maximum number of calls with one token in a period.
pub(super) const CALLS_MAX: u32 = 5_000;
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of open calls on one connection of a runner. Two calls of each worker wait.
pub(super) const OPEN_CALLS_MAX: u32 = 4096;
/// Largest total of the bodies of one runner that are in memory at the same time: two of the
/// largest, and small ones.
const BODIES_BYTES_MAX: usize = 80 * 1024 * 1024;
/// Posts of a peer that are read at the same time.
const POSTING_MAX: usize = 2;
/// What a peer may post at once, and in each second after that. A post is one unit, and one more
/// for each `POST_UNIT_BYTES`.
const POSTS_AT_ONCE: f64 = 2_000.0;
const POSTS_PER_S: f64 = 20.0;
const POST_UNIT_BYTES: f64 = 16.0 * 1024.0;
/// The number of tokens at which those without a connection are removed.
const TOKENS_MAX: usize = 256;

/// The use of all tokens.
#[derive(Debug)]
pub(super) struct TokenLimits {
    connections_max: usize,
    uses: Mutex<HashMap<i64, TokenUse>>,
}

/// The use of one token.
#[derive(Debug)]
struct TokenUse {
    connections: usize,
    /// The number of calls since the start of the period, `since`.
    calls: u32,
    since: Instant,
    /// The bytes of bodies of a runner that are in memory.
    bodies: Arc<AtomicUsize>,
    /// Posts of a peer that are being read.
    posting: usize,
    /// What the peer may still post, in units of posts. Below 0 after a long post.
    allowance: f64,
    allowance_at: Instant,
}

/// A connection that counts for a token.
#[derive(Debug)]
pub(super) struct TokenConnection {
    token: i64,
    limits: Arc<TokenLimits>,
}

impl TokenLimits {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            uses: Mutex::default(),
        }
    }

    pub(super) fn connections_max(&self) -> usize {
        self.connections_max
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<i64, TokenUse>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection of a token until the returned guard is dropped. `None`: the token has
    /// too many.
    pub(super) fn admit(self: &Arc<Self>, token: i64) -> Option<TokenConnection> {
        let mut uses = self.uses();
        if uses.len() >= TOKENS_MAX {
            uses.retain(|_, used| used.connections > 0);
        }
        let used = uses
            .entry(token)
            .or_insert_with(|| TokenUse::new(Instant::now()));
        if used.connections >= self.connections_max {
            return None;
        }
        used.connections += 1;
        Some(TokenConnection {
            token,
            limits: Arc::clone(self),
        })
    }

    /// Counts a call of a token. Returns `false` if it has made too many.
    pub(super) fn count_call(&self, token: i64, now: Instant) -> bool {
        let mut uses = self.uses();
        let Some(used) = uses.get_mut(&token) else {
            return true;
        };
        if now.duration_since(used.since) >= PERIOD {
            (used.since, used.calls) = (now, 0);
        }
        used.calls = used.calls.saturating_add(1);
        used.calls <= CALLS_MAX
    }
}

impl TokenUse {
    fn new(now: Instant) -> Self {
        Self {
            connections: 0,
            calls: 0,
            since: now,
            bodies: Arc::default(),
            posting: 0,
            allowance: POSTS_AT_ONCE,
            allowance_at: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now
            .saturating_duration_since(self.allowance_at)
            .as_secs_f64();
        self.allowance = (self.allowance + passed * POSTS_PER_S).min(POSTS_AT_ONCE);
        self.allowance_at = now;
    }
}

/// The bytes of a body in memory.
#[derive(Debug)]
pub(super) struct BodyBytes {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl BodyBytes {
    /// Counts bytes that were received. Returns `false` if the runner has too many in memory.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes <= BODIES_BYTES_MAX
    }
}

impl Drop for BodyBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl TokenLimits {
    /// Begins to count a body of a runner until the returned value is dropped.
    pub(super) fn begin_body(&self, token: i64) -> BodyBytes {
        let all = self
            .uses()
            .get(&token)
            .map(|used| Arc::clone(&used.bodies))
            .unwrap_or_default();
        BodyBytes { bytes: 0, all }
    }
}

/// A post that a peer sends.
#[derive(Debug)]
pub(super) struct Posting {
    token: i64,
    limits: Arc<TokenLimits>,
}

impl TokenLimits {
    /// Begins to read a post. `None`: the peer posts too much now.
    pub(super) fn begin_post(self: &Arc<Self>, token: i64, now: Instant) -> Option<Posting> {
        let mut uses = self.uses();
        let used = uses.get_mut(&token)?;
        used.refill(now);
        if used.posting >= POSTING_MAX || used.allowance < 1.0 {
            return None;
        }
        used.posting += 1;
        used.allowance -= 1.0;
        Some(Posting {
            token,
            limits: Arc::clone(self),
        })
    }
}

impl Posting {
    /// Counts the length of the post.
    pub(super) fn count_bytes(&self, bytes: usize) {
        if let Some(used) = self.limits.uses().get_mut(&self.token) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a body has at most some megabytes"
            )]
            let units = bytes as f64 / POST_UNIT_BYTES;
            used.allowance -= units;
        }
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        if let Some(used) = self.limits.uses().get_mut(&self.token) {
            used.posting = used.posting.saturating_sub(1);
        }
    }
}

impl TokenConnection {
    pub(super) fn token(&self) -> i64 {
        self.token
    }
}

impl Drop for TokenConnection {
    fn drop(&mut self) {
        if let Some(used) = self.limits.uses().get_mut(&self.token) {
            used.connections = used.connections.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_own_number_of_connections() {
        let limits = Arc::new(TokenLimits::new(2));
        let (first, _second) = (limits.admit(1), limits.admit(1));
        assert!(first.is_some() && limits.admit(1).is_none() && limits.admit(2).is_some());
        drop(first);
        assert!(limits.admit(1).is_some());
    }

    #[test]
    fn calls_are_counted_for_a_second_and_a_token() {
        let limits = Arc::new(TokenLimits::new(2));
        let (_one, _other) = (limits.admit(1), limits.admit(2));
        let now = Instant::now();
        assert!((0..CALLS_MAX).all(|_| limits.count_call(1, now)));
        assert!(!limits.count_call(1, now) && limits.count_call(2, now));
        assert!(limits.count_call(1, now + PERIOD));
    }

    #[test]
    fn posts_of_a_peer_are_limited() {
        let limits = Arc::new(TokenLimits::new(2));
        let (_one, _other) = (limits.admit(1), limits.admit(2));
        let now = Instant::now();
        let first = limits.begin_post(1, now).expect("admitted");
        let second = limits.begin_post(1, now);
        assert!(
            second.is_some()
                && limits.begin_post(1, now).is_none()
                && limits.begin_post(2, now).is_some(),
            "two are read at a time"
        );
        drop(second);
        first.count_bytes(64 * 1024 * 1024);
        drop(first);
        assert!(
            limits.begin_post(1, now).is_none(),
            "it has posted too much"
        );
        assert!(
            limits
                .begin_post(1, now + Duration::from_secs(60))
                .is_none()
                && limits
                    .begin_post(1, now + Duration::from_secs(600))
                    .is_some()
        );
    }

    #[test]
    fn bodies_of_a_runner_are_counted_together() {
        let limits = Arc::new(TokenLimits::new(2));
        let (_one, _other) = (limits.admit(1), limits.admit(2));
        let (mut first, mut second, mut other) = (
            limits.begin_body(1),
            limits.begin_body(1),
            limits.begin_body(2),
        );
        assert!(first.add(BODIES_BYTES_MAX) && other.add(1) && !second.add(1));
        drop((first, second));
        assert!(limits.begin_body(1).add(BODIES_BYTES_MAX));
    }

    #[test]
    fn unused_tokens_are_forgotten() {
        let limits = Arc::new(TokenLimits::new(2));
        let _kept = limits.admit(0);
        for token in 1..10 * i64::try_from(TOKENS_MAX).expect("small") {
            drop(limits.admit(token));
        }
        assert!(limits.uses().len() <= TOKENS_MAX && limits.uses().contains_key(&0));
    }
}
