//! Values in the binary format of PostgreSQL.

use crate::store::db::{self, Value, ValueRef};
use tokio_postgres::types::{FromSql, ToSql, Type};

/// The type of a parameter for a value. `None`: it is inferred from the statement.
pub(super) fn type_of(value: &Value) -> Option<Type> {
    match value {
        Value::Null => None,
        Value::Integer(_) => Some(Type::INT8),
        Value::Real(_) => Some(Type::FLOAT8),
        Value::Text(_) => Some(Type::TEXT),
        Value::Blob(_) => Some(Type::BYTEA),
    }
}

/// Converts a value for a parameter of a type, which [`type_of`] named unless the value is null.
pub(super) fn parameter<'a>(value: &'a Value, of: &Type) -> &'a (dyn ToSql + Sync) {
    match value {
        Value::Integer(value) => value,
        Value::Real(value) => value,
        Value::Text(value) => value,
        Value::Blob(value) => value,
        Value::Null => null(of),
    }
}

fn null(of: &Type) -> &'static (dyn ToSql + Sync) {
    match *of {
        Type::INT8 => &None::<i64>,
        Type::INT4 => &None::<i32>,
        Type::FLOAT8 => &None::<f64>,
        Type::BOOL => &None::<bool>,
        Type::BYTEA => &None::<&[u8]>,
        _ => &None::<&str>,
    }
}

/// A column as received.
pub(super) enum Raw<'a> {
    Null,
    Value(Type, &'a [u8]),
}

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(
        of: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Value(of.clone(), raw))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl<'a> Raw<'a> {
    /// Returns the value.
    ///
    /// # Errors
    /// The store has no such type.
    pub(super) fn value(self) -> db::Result<ValueRef<'a>> {
        let Self::Value(of, raw) = self else {
            return Ok(ValueRef::Null);
        };
        let value = match of {
            Type::BOOL => raw
                .first()
                .map(|byte| ValueRef::Integer(i64::from(*byte != 0))),
            Type::INT2 => raw
                .try_into()
                .ok()
                .map(|bytes| ValueRef::Integer(i16::from_be_bytes(bytes).into())),
            Type::INT4 => raw
                .try_into()
                .ok()
                .map(|bytes| ValueRef::Integer(i32::from_be_bytes(bytes).into())),
            Type::INT8 => raw
                .try_into()
                .ok()
                .map(|bytes| ValueRef::Integer(i64::from_be_bytes(bytes))),
            Type::FLOAT8 => raw
                .try_into()
                .ok()
                .map(|bytes| ValueRef::Real(f64::from_be_bytes(bytes))),
            Type::NUMERIC => numeric(raw),
            Type::TEXT | Type::VARCHAR | Type::NAME | Type::BPCHAR | Type::UNKNOWN => {
                Some(ValueRef::Text(raw))
            }
            Type::BYTEA => Some(ValueRef::Blob(raw)),
            _ => None,
        };
        value.ok_or_else(|| db::Error::Other(format!("a column has the unexpected type {of}")))
    }
}

/// Converts a `numeric`, the type of sums and averages: an integer if it is one.
fn numeric(raw: &[u8]) -> Option<ValueRef<'static>> {
    let mut fields = raw
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (count, weight, sign, _scale) = (
        fields.next()?,
        fields.next()?.cast_signed(),
        fields.next()?,
        fields.next()?,
    );
    let sign = match sign {
        0x0000 => 1,
        0x4000 => -1,
        _ => return None,
    };
    let digits: Vec<u16> = fields.take(usize::from(count)).collect();
    let whole = usize::try_from(i32::from(weight) + 1).unwrap_or(0);
    if digits.len() <= whole {
        let digits = digits.into_iter().chain(std::iter::repeat(0)).take(whole);
        let value = digits.into_iter().try_fold(0i128, |value, digit| {
            value.checked_mul(10_000)?.checked_add(i128::from(digit))
        })?;
        return i64::try_from(sign * value).ok().map(ValueRef::Integer);
    }
    let value = digits
        .iter()
        .enumerate()
        .map(|(at, digit)| f64::from(*digit) * 10_000f64.powi(i32::from(weight) - at as i32))
        .sum::<f64>();
    Some(ValueRef::Real(sign as f64 * value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[u16]) -> Option<ValueRef<'static>> {
        numeric(
            &fields
                .iter()
                .flat_map(|field| field.to_be_bytes())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn numerics_are_read() {
        assert_eq!(read(&[0, 0, 0, 0]), Some(ValueRef::Integer(0)));
        assert_eq!(read(&[1, 0, 0x4000, 0, 42]), Some(ValueRef::Integer(-42)));
        assert_eq!(read(&[2, 1, 0, 0, 1, 2]), Some(ValueRef::Integer(10_002)));
        assert_eq!(read(&[1, 2, 0, 0, 3]), Some(ValueRef::Integer(300_000_000)));
        assert_eq!(read(&[2, 0, 0, 2, 1, 5_000]), Some(ValueRef::Real(1.5)));
        assert_eq!(
            read(&[1, u16::MAX, 0, 2, 2_500]),
            Some(ValueRef::Real(0.25))
        );
        assert_eq!(read(&[0, 0, 0xC000, 0]), None);
    }
}
