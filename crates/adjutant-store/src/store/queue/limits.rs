//! Usage limits of agents, as their vendors reported them.

use crate::store::db::{self, Connection, params, row, select};
use crate::store::{Run, StoreError, Topic, Tx};
use adjutant_core::rate_limit::{QuotaWindow, UsageLimit};
use adjutant_core::{SteadyTime, Time};

row! {
    /// The usage limit of one agent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UsageLimitRow {
        pub agent: String,
        pub limit: UsageLimit [LimitRow] as LimitRow::decode,
        /// When a run of the agent last met it.
        pub reported_at: Time,
    }
}

/// Reads the usage limits.
///
/// # Errors
/// A failure of the store.
pub fn usage_limits(connection: &Connection) -> Result<Vec<UsageLimitRow>, StoreError> {
    Ok(connection
        .prepare_cached(select!(UsageLimitRow, "FROM usage_limits ORDER BY agent"))?
        .read_rows([])?)
}

row! {
    /// The columns of a usage limit.
    struct LimitRow {
        until_at: SteadyTime,
        spread: u32,
    }
}

impl LimitRow {
    fn decode(self) -> db::Result<UsageLimit> {
        let Self { until_at, spread } = self;
        Ok(UsageLimit {
            until: until_at,
            spread,
        })
    }
}

row! {
    /// A rolling window of an agent's quota.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct QuotaWindowRow {
        pub agent: String,
        pub window: QuotaWindow [QuotaRow] as QuotaRow::decode,
        pub reported_at: Time,
    }
}

/// Reads the windows that have not been reset, the shortest first.
///
/// # Errors
/// A failure of the store.
pub fn quota_windows(
    connection: &Connection,
    now: Time,
) -> Result<Vec<QuotaWindowRow>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            QuotaWindowRow,
            "FROM quota_windows WHERE resets_at > ?1 ORDER BY agent, minutes"
        ))?
        .read_rows([now.0])?)
}

row! {
    /// The columns of a window of a quota.
    struct QuotaRow {
        minutes: u32,
        used_percent: u8,
        resets_at: Time,
    }
}

impl QuotaRow {
    fn decode(self) -> db::Result<QuotaWindow> {
        let Self {
            minutes,
            used_percent,
            resets_at,
        } = self;
        Ok(QuotaWindow {
            minutes,
            used_percent,
            resets_at,
        })
    }
}

/// Returns when the next usage limit ends.
///
/// # Errors
/// A failure of the store.
pub fn next_limit_end(
    connection: &Connection,
    now: SteadyTime,
) -> Result<Option<SteadyTime>, StoreError> {
    let sql = "SELECT min(until_at) FROM usage_limits WHERE until_at > ?1";
    let next: Option<i64> = connection.prepare_cached(sql)?.read_row([now.0])?;
    Ok(next.map(SteadyTime))
}

impl Tx<'_> {
    /// Records that an agent has reached its usage limit until a time that its vendor reported.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_usage_limit(&mut self, agent: &str, until: SteadyTime) -> Result<(), StoreError> {
        let limit = UsageLimit::new(until);
        self.prepare(
            "INSERT INTO usage_limits (agent, until_at, spread, reported_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (agent) DO UPDATE SET until_at = larger(usage_limits.until_at, ?2), spread = ?3, reported_at = ?4",
        )?
        .run(params![agent, limit.until.0, limit.spread, self.happened_at().0])?;
        // The next end of a limit may have changed.
        self.notify(Topic::Queue);
        Ok(())
    }

    /// Records a window of an agent's quota. An older statement changes nothing.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_quota_window(&mut self, agent: &str, window: QuotaWindow) -> Result<(), StoreError> {
        let QuotaWindow {
            minutes,
            used_percent,
            resets_at,
        } = window;
        self.prepare(
            "INSERT INTO quota_windows (agent, minutes, used_percent, resets_at, reported_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (agent, minutes) DO UPDATE SET used_percent = ?3, resets_at = ?4, reported_at = ?5 WHERE quota_windows.reported_at <= ?5",
        )?
        .run(params![agent, minutes, used_percent, resets_at.0, self.happened_at().0])?;
        Ok(())
    }

    /// Records that an agent works again: a run of it that started after the limit was reported has
    /// succeeded, or a caller resumes one by hand. `since`: only a limit that was reported before.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn clear_usage_limit(&mut self, agent: &str, since: Time) -> Result<(), StoreError> {
        let cleared = self
            .prepare("DELETE FROM usage_limits WHERE agent = ?1 AND reported_at <= ?2")?
            .execute(params![agent, since.0])?;
        if cleared > 0 {
            self.notify(Topic::Queue);
        }
        Ok(())
    }
}

/// Spreads out the starts of an agent's runs after its limit.
pub(in crate::store) fn spread_starts(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let limit: Option<LimitRow> = tx
        .prepare(select!(LimitRow, "FROM usage_limits WHERE agent = ?1"))?
        .find_row([&run.agent])?;
    let Some(limit) = limit else { return Ok(()) };
    let limit = limit.decode()?;
    match limit.after_start(tx.steady()) {
        Some(next) => tx
            .prepare("UPDATE usage_limits SET until_at = ?2, spread = ?3 WHERE agent = ?1")?
            .execute(params![run.agent, next.until.0, next.spread])?,
        None => tx
            .prepare("DELETE FROM usage_limits WHERE agent = ?1")?
            .execute([&run.agent])?,
    };
    Ok(())
}
