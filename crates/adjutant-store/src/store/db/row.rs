//! Reading rows: as a value, as a tuple, or as a record of [`row!`], whose list of fields makes
//! both the columns of the `SELECT` and the reader.

use super::{Error, FromValue, Result, ValueRef, postgres, sqlite};

/// A row of a query.
pub struct Row<'a>(Source<'a>);

enum Source<'a> {
    Sqlite(sqlite::Row<'a>),
    Postgres(postgres::Row<'a>),
}

impl<'a> Row<'a> {
    pub(super) fn of_sqlite(row: sqlite::Row<'a>) -> Self {
        Self(Source::Sqlite(row))
    }

    pub(super) fn of_postgres(row: postgres::Row<'a>) -> Self {
        Self(Source::Postgres(row))
    }

    /// Reads the whole row: a value of one column, a tuple, or a record.
    ///
    /// # Errors
    /// A value has another type, or is not one of its type.
    #[inline]
    pub fn read<T: FromRow>(&self) -> Result<T> {
        let mut columns = Columns { row: self, next: 0 };
        let read = T::from_columns(&mut columns)?;
        debug_assert_eq!(
            columns.next,
            self.width(),
            "a query returns the columns that are read"
        );
        Ok(read)
    }

    /// Reads all columns of a query that is not known in advance.
    ///
    /// # Errors
    /// A failure of the database.
    pub(in crate::store) fn values<T: FromValue>(&self) -> Result<Vec<T>> {
        (0..self.width()).map(|column| self.get(column)).collect()
    }

    /// Reads one column as a type.
    ///
    /// # Errors
    /// The value has another type, or is not one of this type.
    #[inline]
    pub(crate) fn get<T: FromValue>(&self, column: usize) -> Result<T> {
        let value = self.value(column)?;
        T::from_value(value).ok_or_else(|| unreadable::<T>(value, column))
    }

    #[inline]
    fn value(&self, column: usize) -> Result<ValueRef<'a>> {
        match &self.0 {
            Source::Sqlite(row) => row.value(column),
            Source::Postgres(row) => row.value(column),
        }
    }

    fn width(&self) -> usize {
        match &self.0 {
            Source::Sqlite(row) => row.width(),
            Source::Postgres(row) => row.width(),
        }
    }

    fn name(&self, column: usize) -> &str {
        match &self.0 {
            Source::Sqlite(row) => row.name(column),
            Source::Postgres(row) => row.name(column),
        }
    }
}

#[cold]
fn unreadable<T: FromValue>(value: ValueRef<'_>, column: usize) -> Error {
    match (T::NOUN, value) {
        (Some(noun), ValueRef::Text(_) | ValueRef::Integer(_)) => {
            Error::unreadable(format!("{noun} {}", text_of(value)))
        }
        _ => Error::Type {
            column,
            found: value.type_name(),
        },
    }
}

fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Integer(number) => number.to_string(),
        value => value.type_name().to_owned(),
    }
}

/// The columns of a row, which are read in their order.
pub struct Columns<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl Columns<'_> {
    /// Reads the next column.
    ///
    /// # Errors
    /// The value has another type, or is not one of this type.
    #[inline]
    pub(in crate::store) fn value<T: FromValue>(&mut self) -> Result<T> {
        let column = self.next;
        self.next += 1;
        self.row.get(column)
    }

    /// Returns the name of the column that was read last, for a message.
    pub(in crate::store) fn last_name(&self) -> &str {
        self.row.name(self.next.saturating_sub(1))
    }

    /// Returns the first value of the row as text, for a message. It identifies the row.
    pub(in crate::store) fn key(&self) -> String {
        self.text_at(0)
    }

    fn text_at(&self, column: usize) -> String {
        self.row.value(column).map(text_of).unwrap_or_default()
    }

    /// Reads a record. `name` names its row, of which it gets the first value, in the error for a
    /// value that cannot be understood.
    ///
    /// # Errors
    /// Those of `read`.
    #[inline]
    pub(in crate::store) fn record<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
        name: Option<fn(&str) -> String>,
    ) -> Result<T> {
        let first = self.next;
        read(self).map_err(|error| match name {
            Some(name) => error.in_row(|| name(&self.text_at(first))),
            None => error,
        })
    }
}

/// What can be read from the columns of a row.
pub trait FromRow: Sized {
    /// Reads the next columns.
    ///
    /// # Errors
    /// A value has another type, or is not one of its type.
    fn from_columns(columns: &mut Columns<'_>) -> Result<Self>;
}

impl<T: FromValue> FromRow for T {
    #[inline]
    fn from_columns(columns: &mut Columns<'_>) -> Result<Self> {
        columns.value()
    }
}

macro_rules! tuples {
    ($($($type:ident)+),+) => {
        $(impl<$($type: FromRow),+> FromRow for ($($type,)+) {
            #[inline]
            fn from_columns(columns: &mut Columns<'_>) -> Result<Self> {
                Ok(($($type::from_columns(columns)?,)+))
            }
        })+
    };
}
tuples!(A B, A B C, A B C D, A B C D E, A B C D E F, A B C D E F G, A B C D E F G H);

/// A struct of [`row!`].
pub(in crate::store) trait Record: FromRow {
    /// The columns of a `SELECT`, in the order in which the record reads them.
    const COLUMNS: &'static str;
    /// The beginning of a statement that reads records, up to `FROM`.
    const SELECT: &'static str;

    /// Returns a statement that reads records, see also [`select!`]. `rest` begins with `FROM`.
    fn select(rest: &str) -> String {
        format!("{} {rest}", Self::SELECT)
    }
}

/// Defines a record: a struct whose fields also state the columns that they are read from.
///
/// ```text
/// row! {
///     /// A cat.
///     #[derive(Debug)]
///     pub struct Cat as c, named "cat {}" {
///         pub id: CatId,
///         pub owner_name: String = "o.name",
///         pub collar: Option<Collar> as word,
///         pub place: Place [PlaceRow] as PlaceRow::decode,
///     }
/// }
/// ```
///
/// - `name: Type`: the column of this name, in the table with the alias, if there is one.
/// - `= "…"`: another column, or an expression.
/// - `as function`: the function reads the column (`fn(&mut Columns<'_>) -> db::Result<Type>`).
///   If it returns a tuple, the further fields follow in braces.
/// - `[Part] as function`: the columns of another record, which the function converts
///   (`fn(Part) -> db::Result<Type>`). Without a function, the field is that record.
///
/// `named`: how an error names a row with a value that cannot be understood. `{}` is the first
/// value.
macro_rules! row {
    ($(#[$meta:meta])* $vis:vis struct $name:ident as $alias:ident $(, named $row:literal)? { $($fields:tt)+ }) => {
        $crate::store::db::row! {
            @define (concat!(stringify!($alias), ".")) ($($row)?)
            $(#[$meta])* $vis struct $name { $($fields)+ }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(, named $row:literal)? { $($fields:tt)+ }) => {
        $crate::store::db::row! { @define ("") ($($row)?) $(#[$meta])* $vis struct $name { $($fields)+ } }
    };
    (@define ($prefix:expr) ($($row:literal)?) $(#[$meta:meta])* $vis:vis struct $name:ident {
        $(
            $(#[$field_meta:meta])*
            $field_vis:vis $field:ident : $type:ty
            $(= $column:literal)? $([$part:ty])? $(as $decode:path)?
            $({ $($(#[$also_meta:meta])* $also_vis:vis $also:ident : $also_type:ty),+ $(,)? })?
        ),+ $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $(
                $(#[$field_meta])*
                $field_vis $field: $type,
                $($($(#[$also_meta])* $also_vis $also: $also_type,)+)?
            )+
        }

        impl $crate::store::db::Record for $name {
            const COLUMNS: &'static str = {
                const COLUMNS: &[(&str, &str)] = &[
                    $($crate::store::db::row!(@column ($prefix) $field $(= $column)? $([$part])?)),+
                ];
                const TEXT: [u8; $crate::store::db::joined_len(COLUMNS)] =
                    $crate::store::db::joined(COLUMNS);
                $crate::store::db::joined_text(&TEXT)
            };
            const SELECT: &'static str = {
                const SELECT: &[(&str, &str)] =
                    &[("SELECT ", <$name as $crate::store::db::Record>::COLUMNS)];
                const TEXT: [u8; $crate::store::db::joined_len(SELECT)] =
                    $crate::store::db::joined(SELECT);
                $crate::store::db::joined_text(&TEXT)
            };
        }

        impl $crate::store::db::FromRow for $name {
            fn from_columns(
                columns: &mut $crate::store::db::Columns<'_>,
            ) -> $crate::store::db::Result<Self> {
                columns.record(
                    |columns| {
                        $(let $crate::store::db::row!(@pattern $field $({ $($also)+ })?) =
                            $crate::store::db::row!(@read columns $type $(; [$part])? $(; as $decode)?);)+
                        Ok(Self { $($field, $($($also,)+)?)+ })
                    },
                    $crate::store::db::row!(@name $($row)?),
                )
            }
        }
    };
    (@column ($prefix:expr) $field:ident) => { ($prefix, stringify!($field)) };
    (@column ($prefix:expr) $field:ident = $column:literal) => { ("", $column) };
    (@column ($prefix:expr) $field:ident [$part:ty]) => {
        ("", <$part as $crate::store::db::Record>::COLUMNS)
    };
    (@pattern $field:ident) => { $field };
    (@pattern $field:ident { $($also:ident)+ }) => { ($field, $($also),+) };
    (@read $columns:ident $type:ty) => {
        <$type as $crate::store::db::FromRow>::from_columns($columns)?
    };
    (@read $columns:ident $type:ty; as $decode:path) => { $decode($columns)? };
    (@read $columns:ident $type:ty; [$part:ty]) => {
        <$part as $crate::store::db::FromRow>::from_columns($columns)?
    };
    (@read $columns:ident $type:ty; [$part:ty]; as $decode:path) => {
        $decode(<$part as $crate::store::db::FromRow>::from_columns($columns)?)?
    };
    (@name) => { None };
    (@name $row:literal) => { Some(|key: &str| format!($row, key)) };
}
pub(in crate::store) use row;

/// Returns the statement that reads records, made when the program is compiled.
macro_rules! select {
    ($record:ty, $rest:literal $(,)?) => {{
        const PARTS: &[(&str, &str)] = &[(
            <$record as $crate::store::db::Record>::SELECT,
            concat!(" ", $rest),
        )];
        const TEXT: [u8; $crate::store::db::joined_len(PARTS)] = $crate::store::db::joined(PARTS);
        $crate::store::db::joined_text(&TEXT)
    }};
}
pub(in crate::store) use select;

const SEPARATOR: &[u8] = b", ";

/// Returns the length of the list of these columns, each with its prefix.
pub(in crate::store) const fn joined_len(columns: &[(&str, &str)]) -> usize {
    let mut len = 0;
    let mut at = 0;
    while at < columns.len() {
        if at > 0 {
            len += SEPARATOR.len();
        }
        len += columns[at].0.len() + columns[at].1.len();
        at += 1;
    }
    len
}

/// Returns the list of these columns in UTF-8, when the program is compiled.
pub(in crate::store) const fn joined<const LEN: usize>(columns: &[(&str, &str)]) -> [u8; LEN] {
    let mut text = [0; LEN];
    let mut len = 0;
    let mut at = 0;
    while at < columns.len() {
        if at > 0 {
            len = append(&mut text, len, SEPARATOR);
        }
        len = append(&mut text, len, columns[at].0.as_bytes());
        len = append(&mut text, len, columns[at].1.as_bytes());
        at += 1;
    }
    text
}

const fn append<const LEN: usize>(text: &mut [u8; LEN], len: usize, more: &[u8]) -> usize {
    let mut at = 0;
    while at < more.len() {
        text[len + at] = more[at];
        at += 1;
    }
    len + more.len()
}

pub(in crate::store) const fn joined_text(text: &[u8]) -> &str {
    match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(_) => panic!("columns are joined whole"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db;
    use crate::store::db::{Connection, params};

    row! {
        /// Where a cat is.
        #[derive(Debug, PartialEq)]
        struct Place as p {
            room: String,
            shelf: i64,
        }
    }

    impl Place {
        fn text(self) -> db::Result<String> {
            match self.shelf {
                1..=9 => Ok(format!("{}, shelf {}", self.room, self.shelf)),
                shelf => Err(Error::unreadable(format!("shelf {shelf}"))),
            }
        }
    }

    row! {
        #[derive(Debug, PartialEq)]
        struct Cat as c, named "cat {}" {
            id: i64,
            /// Of the table that is joined.
            owner_name: String = "o.name",
            is_old: bool = "c.age > 10",
            place: String [Place] as Place::text,
            first_name: String = "c.names" as names {
                other_names: Vec<String>,
            },
            age: u8,
        }
    }

    fn names(columns: &mut Columns<'_>) -> db::Result<(String, Vec<String>)> {
        let text: String = columns.value()?;
        let mut names = text.split(' ').map(ToOwned::to_owned);
        let first = names.next().ok_or_else(|| Error::unreadable("no name"))?;
        Ok((first, names.collect()))
    }

    const FROM: &str =
        "FROM cats c JOIN owners o ON o.id = c.owner JOIN places p ON p.id = c.place";

    fn cats() -> Connection {
        let connection = Connection::open_in_memory();
        // The columns of the tables have another order than the fields.
        connection
            .execute_batch(
                "CREATE TABLE owners (name TEXT, id INTEGER);
                 CREATE TABLE places (shelf INTEGER, id INTEGER, room TEXT);
                 CREATE TABLE cats (names TEXT, age INTEGER, place INTEGER, owner INTEGER, id INTEGER);
                 INSERT INTO owners VALUES ('Ada', 7);
                 INSERT INTO places VALUES (3, 5, 'kitchen');
                 INSERT INTO cats VALUES ('Tom Tiger Tim', 12, 5, 7, 1);",
            )
            .expect("tables");
        connection
    }

    #[test]
    fn record_selects_the_columns_that_it_reads() {
        assert_eq!(
            Cat::COLUMNS,
            "c.id, o.name, c.age > 10, p.room, p.shelf, c.names, c.age"
        );
        let cat: Cat = cats()
            .prepare_cached(&Cat::select(FROM))
            .and_then(|mut statement| statement.read_row([]))
            .expect("a cat");
        assert_eq!(
            cat,
            Cat {
                id: 1,
                owner_name: "Ada".to_owned(),
                is_old: true,
                place: "kitchen, shelf 3".to_owned(),
                first_name: "Tom".to_owned(),
                other_names: vec!["Tiger".to_owned(), "Tim".to_owned()],
                age: 12,
            }
        );
    }

    #[test]
    fn record_is_part_of_a_tuple() {
        let sql = format!("SELECT {}, p.id {FROM}", Cat::COLUMNS);
        let found: Vec<(Cat, i64)> = cats()
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.read_rows([]))
            .expect("cats");
        assert_eq!((found[0].0.age, found[0].1), (12, 5));
    }

    #[test]
    #[should_panic(expected = "a query returns the columns that are read")]
    fn query_with_a_further_column_is_a_bug() {
        let sql = format!("SELECT {}, p.id {FROM}", Cat::COLUMNS);
        let cats = cats();
        let mut statement = cats.prepare_cached(&sql).expect("a statement");
        drop(statement.read_row::<Cat>([]));
    }

    #[test]
    fn missing_column_is_an_error() {
        let cats = cats();
        let mut statement = cats
            .prepare_cached("SELECT id FROM cats")
            .expect("a statement");
        assert!(statement.read_row::<(i64, String)>([]).is_err());
    }

    #[test]
    fn error_names_the_row_with_an_unreadable_value() {
        let cats = cats();
        cats.execute("UPDATE places SET shelf = ?1", params![12])
            .expect("updated");
        let failed = cats
            .prepare_cached(&Cat::select(FROM))
            .and_then(|mut statement| statement.read_row::<Cat>([]))
            .expect_err("no such shelf");
        assert_eq!(failed.to_string(), "an unreadable value: cat 1");
        let source = std::error::Error::source(&failed).expect("a source");
        assert_eq!(source.to_string(), "an unreadable value: shelf 12");
    }
}
