//! The stored steady clock: one row, written together with other writes, at most once a minute.

use super::StoreError;
use crate::clock;
use crate::store::db::{Connection, params, row, select};
use adjutant_core::steady::{Away, Jump, Reading, SteadyClock};
use adjutant_core::{SteadyTime, Time};

/// The interval between saves, in milliseconds. After a power failure, at most this much of the
/// counted time is lost.
const SAVE_EVERY_MS: i64 = 60 * 1000;

/// Starts the steady clock from the value in a store that was just opened.
pub(super) fn begin(connection: &Connection) -> Result<(), StoreError> {
    let reading = clock::reading();
    let stored = load(connection)?;
    let mut clock = match &stored {
        Some(clock) => clock.clone(),
        None => match last_written(connection)? {
            Some(last) => SteadyClock::after_wall_clock(last, reading.clone()),
            None => SteadyClock::new(reading.clone()),
        },
    };
    if let Some(jump) = clock.advance(reading) {
        report(jump);
    }
    if stored.is_none_or(|stored| {
        stored.seen.boot != clock.seen.boot
            || stored.away != clock.away
            || stored.jump != clock.jump
    }) {
        save(connection, &clock)?;
    }
    clock::start(clock);
    Ok(())
}

/// Logs that the wall clock was changed.
fn report(jump: Jump) {
    tracing::warn!(
        by_ms = jump.by_ms,
        "the machine's clock was set {}; deadlines do not follow it",
        clock::jump_text(jump)
    );
}

/// The clock as last stored. Owned by the writer thread.
#[derive(Debug, Default)]
pub(super) struct Saved(Option<SteadyClock>);

impl Saved {
    /// Advances the clock and stores it if the interval has passed, within the transaction that
    /// uses the new time.
    pub(super) fn advance(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let Some((clock, jump)) = clock::advance() else {
            return Ok(());
        };
        if let Some(jump) = jump {
            report(jump);
        }
        let is_due = |saved: &SteadyClock| {
            jump.is_some()
                || saved.away.is_some() != clock.away.is_some()
                || clock.now.ms_since(saved.now) >= SAVE_EVERY_MS
        };
        if self.0.as_ref().is_none_or(is_due) {
            save(connection, &clock)?;
            self.0 = Some(clock);
        }
        Ok(())
    }

    /// Forgets the stored value after a rollback.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Returns the time of the newest event, the starting point for a store that has used only the wall
/// clock so far.
fn last_written(connection: &Connection) -> Result<Option<Time>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT at FROM events ORDER BY seq DESC LIMIT 1")?
        .find_row([])?)
}

row! {
    /// The stored clock.
    struct ClockRow {
        now: SteadyTime,
        wall: Time,
        since_boot: i64,
        boot: String,
        away_expected: Option<Time>,
        away_calm: Option<i64>,
        jump_by: Option<i64>,
        jump_noticed: Option<SteadyTime>,
        ahead: i64,
    }
}

impl ClockRow {
    fn clock(self) -> SteadyClock {
        let Self {
            now,
            wall,
            since_boot,
            boot,
            away_expected,
            away_calm,
            jump_by,
            jump_noticed,
            ahead,
        } = self;
        SteadyClock {
            now,
            seen: Reading {
                wall,
                since_boot_ms: since_boot,
                boot,
            },
            ahead_ms: ahead,
            away: away_expected
                .zip(away_calm)
                .map(|(expected, calm_ms)| Away { expected, calm_ms }),
            jump: jump_by
                .zip(jump_noticed)
                .map(|(by_ms, noticed_at)| Jump { by_ms, noticed_at }),
        }
    }
}

fn load(connection: &Connection) -> Result<Option<SteadyClock>, StoreError> {
    let found: Option<ClockRow> = connection
        .prepare_cached(select!(ClockRow, "FROM clock"))?
        .find_row([])?;
    Ok(found.map(ClockRow::clock))
}

fn save(connection: &Connection, clock: &SteadyClock) -> Result<(), StoreError> {
    let SteadyClock {
        now,
        seen: Reading {
            wall,
            since_boot_ms,
            boot,
        },
        away,
        ahead_ms,
        jump,
    } = clock;
    connection
        .prepare_cached(
            "INSERT INTO clock (one, now, wall, since_boot, boot, away_expected, away_calm, jump_by, jump_noticed, ahead)
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (one) DO UPDATE SET now = ?1, wall = ?2, since_boot = ?3, boot = ?4, away_expected = ?5, away_calm = ?6, jump_by = ?7,
               jump_noticed = ?8, ahead = ?9",
        )?
        .run(params![
            now.0,
            wall.0,
            since_boot_ms,
            boot,
            away.map(|away| away.expected.0),
            away.map(|away| away.calm_ms),
            jump.map(|jump| jump.by_ms),
            jump.map(|jump| jump.noticed_at.0),
            ahead_ms
        ])?;
    Ok(())
}
