//! Inserting rows in groups.

use crate::store::db::{Column, Connection, Result, Value, params_from_iter};

/// How many rows one statement inserts, unless they are large.
const ROWS_TOGETHER: usize = 50;
/// From this size, in bytes, rows are inserted.
const BYTES_TOGETHER: usize = 256 * 1024;
/// Largest number of parameters of a statement, on every engine.
const PARAMETERS_MAX: usize = 32_000;

/// Inserts rows into a table.
pub(super) struct Inserter<'c> {
    connection: &'c Connection,
    one: String,
    many: String,
    rows_together: usize,
    columns: usize,
    values: Vec<Value>,
    bytes: usize,
}

impl<'c> Inserter<'c> {
    /// `names`: the columns in the order of the values. `written`: the same columns with their
    /// types.
    pub(super) fn new(
        connection: &'c Connection,
        table: &str,
        names: &[&str],
        written: &[Column],
    ) -> Self {
        let types: Vec<String> = names
            .iter()
            .map(|name| {
                let column = written.iter().find(|column| column.name == *name);
                column
                    .and_then(|column| column.type_name.as_deref())
                    .map_or(String::new(), |of| format!("::{of}"))
            })
            .collect();
        let rows_together = ROWS_TOGETHER.min(PARAMETERS_MAX / names.len());
        let insert = |rows: usize| {
            let row = |row: usize| {
                let values: Vec<String> = types
                    .iter()
                    .enumerate()
                    .map(|(at, of)| format!("?{}{of}", row * names.len() + at + 1))
                    .collect();
                format!("({})", values.join(", "))
            };
            let rows: Vec<String> = (0..rows).map(row).collect();
            format!(
                "INSERT INTO \"{table}\" (\"{}\") VALUES {}",
                names.join("\", \""),
                rows.join(", ")
            )
        };
        Self {
            connection,
            one: insert(1),
            many: insert(rows_together),
            rows_together,
            columns: names.len(),
            values: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn add(&mut self, row: Vec<Value>) -> Result<()> {
        self.bytes += row.iter().map(size_of).sum::<usize>();
        self.values.extend(row);
        if self.values.len() == self.rows_together * self.columns {
            self.connection
                .execute(&self.many, params_from_iter(&self.values))?;
            self.clear();
        } else if self.bytes >= BYTES_TOGETHER {
            self.finish()?;
        }
        Ok(())
    }

    /// Inserts the remaining rows.
    pub(super) fn finish(&mut self) -> Result<()> {
        for row in self.values.chunks(self.columns) {
            self.connection.execute(&self.one, params_from_iter(row))?;
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.values.clear();
        self.bytes = 0;
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => size_of_val(value),
    }
}
