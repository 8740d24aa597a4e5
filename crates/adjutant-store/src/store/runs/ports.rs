//! The ports of live runs. A range is in use for as long as its run is live; nothing has to release
//! it.

use crate::store::db::{Connection, params, row, select};
use crate::store::{StoreError, Tx};
use adjutant_core::port::free_range;
use adjutant_core::{PortRange, RunId};

/// Reads the ports of a run's newest attempt.
///
/// # Errors
/// A failure of the store.
pub fn ports_of(connection: &Connection, run: RunId) -> Result<Option<PortRange>, StoreError> {
    let row: Option<PortsRow> = connection
        .prepare_cached(select!(
            PortsRow,
            "FROM runs WHERE id = ?1 AND port_base IS NOT NULL AND port_count IS NOT NULL"
        ))?
        .find_row([run.to_string()])?;
    Ok(row.map(PortsRow::range))
}

row! {
    /// The columns of a run's ports.
    struct PortsRow {
        port_base: u16,
        port_count: u16,
    }
}

impl PortsRow {
    fn range(self) -> PortRange {
        PortRange {
            base: self.port_base,
            count: self.port_count,
        }
    }
}

impl Tx<'_> {
    /// Assigns ports to a run that no other live run has, at or above `from` if possible. `None`:
    /// there are not enough free ports.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn allocate_ports(
        &mut self,
        run: RunId,
        count: u16,
        from: u16,
    ) -> Result<Option<PortRange>, StoreError> {
        let taken: Vec<PortsRow> = self
            .prepare(select!(PortsRow, "FROM runs WHERE id <> ?1 AND state IN ('starting', 'running', 'stopping') AND port_base IS NOT NULL AND port_count IS NOT NULL"))?
            .read_rows([run.to_string()])?;
        let taken: Vec<PortRange> = taken.into_iter().map(PortsRow::range).collect();
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
