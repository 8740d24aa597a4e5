//! The history of a store on a server: who led it, how far, and in which era. It shows whether the
//! database was set back.

use super::{Error, PgConnection, Result};
use crate::store::confirmed::{ConfirmedNote, identity_of};
use crate::store::db::ValueRef;
use adjutant_core::confirmed::{History, Led};
use std::collections::BTreeMap;

/// How many leads the history has, the newest.
pub(super) const LEADS_KEPT: i64 = 64;

/// Reads the history, and the secret of the store.
pub(super) fn history(connection: &PgConnection) -> Result<(History, String)> {
    // `last` of the current lead is empty until the next lead begins.
    let sql = "SELECT h.store, coalesce((SELECT max(era) FROM eras), 0), l.epoch, l.id, coalesce(l.last, h.transaction)
               FROM hub h LEFT JOIN leads l ON true ORDER BY l.epoch";
    let mut statement = connection.prepare(sql);
    let mut rows = statement.query([])?;
    let (mut history, mut secret) = (History::default(), String::new());
    while let Some(row) = rows.next() {
        let text = |column| match row.value(column)? {
            ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            other => Err(Error::Type {
                column,
                found: other.type_name(),
            }),
        };
        let number = |column| match row.value(column)? {
            ValueRef::Integer(number) => Ok(number),
            other => Err(Error::Type {
                column,
                found: other.type_name(),
            }),
        };
        secret = text(0)?;
        history.era = number(1)?;
        if !matches!(row.value(2)?, ValueRef::Null) {
            history.leads.push(Led {
                epoch: number(2)?,
                id: text(3)?,
                last: number(4)?,
            });
        }
    }
    history.store = identity_of(&secret);
    if history.era > 0 {
        let mut statement = connection.prepare("SELECT era, gaps FROM eras");
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next() {
            let (ValueRef::Integer(era), ValueRef::Text(gaps)) = (row.value(0)?, row.value(1)?)
            else {
                return Err(Error::Corrupt("an era has no numbers".to_owned()));
            };
            let gaps: BTreeMap<String, (i64, i64)> = serde_json::from_slice(gaps)
                .map_err(|error| Error::Corrupt(format!("era {era}: {error}")))?;
            history.starts.insert(
                era,
                gaps.into_iter()
                    .map(|(table, (_, start))| (table, start))
                    .collect(),
            );
        }
    }
    Ok((history, secret))
}

/// Returns the id of the lead of an epoch.
pub(super) fn lead_id(connection: &PgConnection, epoch: i64) -> Result<String> {
    let (history, _) = history(connection)?;
    history
        .leads
        .into_iter()
        .find(|led| led.epoch == epoch)
        .map(|led| led.id)
        .ok_or(Error::NoRows)
}

/// Refuses a database that lacks what was confirmed.
pub(super) fn check(connection: &PgConnection, note: &ConfirmedNote) -> Result<()> {
    // First what is known: more may be confirmed while the history is read.
    let known = note.known();
    if known.is_missing_in(&history(connection)?.0) {
        note.note_gone_back();
        return Err(Error::SetBack);
    }
    Ok(())
}
