//! The ports of live runs. A range is in use for as long as its run is live; nothing has to release it.

use crate::store::db::{self, Connection, OptionalExtension, params};
use crate::store::{StoreError, Tx};
use adjutant_core::port::free_range;
use adjutant_core::{PortRange, RunId};

/// Reads the ports of a run's newest attempt.
///
/// # Errors
/// A failure of the store.
pub fn ports_of(connection: &Connection, run: RunId) -> Result<Option<PortRange>, StoreError> {
    let sql = "SELECT port_base, port_count FROM runs WHERE id = ?1 AND port_base IS NOT NULL AND port_count IS NOT NULL";
    let read = |row: &db::Row<'_>| {
        Ok(PortRange {
            base: row.get(0)?,
            count: row.get(1)?,
        })
    };
    Ok(connection
        .prepare_cached(sql)?
        .query_row([run.to_string()], read)
        .optional()?)
}

impl Tx<'_> {
    /// Assigns ports to a run that no other live run has, at or above `from` if possible. `None`: there are not enough free ports.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn allocate_ports(
        &mut self,
        run: RunId,
        count: u16,
        from: u16,
    ) -> Result<Option<PortRange>, StoreError> {
        let taken: Vec<PortRange> = self
            .prepare(
                "SELECT port_base, port_count FROM runs
                 WHERE id <> ?1 AND state IN ('starting', 'running', 'stopping') AND port_base IS NOT NULL AND port_count IS NOT NULL",
            )?
            .query_map([run.to_string()], |row| Ok(PortRange { base: row.get(0)?, count: row.get(1)? }))?
            .collect::<db::Result<_>>()?;
        let range = free_range(&taken, count, from);
        self.prepare("UPDATE runs SET port_base = ?2, port_count = ?3 WHERE id = ?1")?
            .run(params![
                run.to_string(),
                range.map(|range| range.base),
                range.map(|range| range.count)
            ])?;
        Ok(range)
    }
}
