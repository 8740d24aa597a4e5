//! Values of parameters and columns.

use super::{Error, Result};
use std::borrow::Cow;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// A borrowed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    Null,
    Integer(i64),
    Real(f64),
    /// A text in UTF-8.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl ValueRef<'_> {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Integer(_) => "integer",
            Self::Real(_) => "real",
            Self::Text(_) => "text",
            Self::Blob(_) => "blob",
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::Null, Self::Text)
    }
}

/// A type that can be bound to a parameter.
pub(crate) trait ToValue {
    fn to_value(&self) -> ValueRef<'_>;
}

macro_rules! integers {
    ($($type:ty),+) => {
        $(impl ToValue for $type {
            #[inline]
            fn to_value(&self) -> ValueRef<'_> {
                ValueRef::Integer(i64::from(*self))
            }
        })+
    };
}
integers!(bool, i8, i16, i32, i64, u8, u16, u32);

impl ToValue for f64 {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        ValueRef::Real(*self)
    }
}

impl ToValue for str {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        ValueRef::Text(self.as_bytes())
    }
}

impl ToValue for String {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        self.as_str().to_value()
    }
}

impl ToValue for Cow<'_, str> {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        self.as_ref().to_value()
    }
}

impl ToValue for [u8] {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl<const N: usize> ToValue for [u8; N] {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl ToValue for Vec<u8> {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl ToValue for Value {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
        }
    }
}

impl<T: ToValue> ToValue for Option<T> {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, ToValue::to_value)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    #[inline]
    fn to_value(&self) -> ValueRef<'_> {
        (**self).to_value()
    }
}

/// A type that can be read from a column.
pub trait FromValue: Sized {
    /// What a value is called that another value of its database type is not, such as an id.
    const NOUN: Option<&'static str> = None;

    /// Converts the value. `None`: it has another type or is out of range.
    fn from_value(value: ValueRef<'_>) -> Option<Self>;
}

impl FromValue for i64 {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Integer(value) => Some(value),
            _ => None,
        }
    }
}

macro_rules! small_integers {
    ($($type:ty),+) => {
        $(impl FromValue for $type {
            #[inline]
            fn from_value(value: ValueRef<'_>) -> Option<Self> {
                i64::from_value(value).and_then(|value| Self::try_from(value).ok())
            }
        })+
    };
}
small_integers!(i8, i16, i32, u8, u16, u32);

impl FromValue for bool {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        i64::from_value(value).map(|value| value != 0)
    }
}

impl FromValue for f64 {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Real(value) => Some(value),
            ValueRef::Integer(value) => Some(value as Self),
            _ => None,
        }
    }
}

/// Returns a value that is a text.
#[inline]
pub(in crate::store) fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

impl FromValue for String {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        text(value).map(ToOwned::to_owned)
    }
}

impl FromValue for Vec<u8> {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Blob(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }
}

impl<const N: usize> FromValue for [u8; N] {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Blob(bytes) => bytes.try_into().ok(),
            _ => None,
        }
    }
}

impl FromValue for Value {
    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        Some(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(text) => Self::Text(std::str::from_utf8(text).ok()?.to_owned()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        })
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const NOUN: Option<&'static str> = T::NOUN;

    #[inline]
    fn from_value(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// Receives the values of parameters in order.
pub trait Bind {
    /// Binds the next parameter.
    ///
    /// # Errors
    /// The statement has no such parameter.
    fn bind(&mut self, value: ValueRef<'_>) -> Result<()>;
}

/// The values of a statement's parameters.
pub trait Params {
    /// Binds all of them.
    ///
    /// # Errors
    /// The statement has fewer parameters.
    fn bind_to(self, to: &mut impl Bind) -> Result<()>;
}

impl Params for [&dyn ToValue; 0] {
    #[inline]
    fn bind_to(self, _: &mut impl Bind) -> Result<()> {
        Ok(())
    }
}

macro_rules! arrays {
    ($($count:literal)+) => {
        $(impl<T: ToValue> Params for [T; $count] {
            #[inline]
            fn bind_to(self, to: &mut impl Bind) -> Result<()> {
                self.iter().try_for_each(|value| to.bind(value.to_value()))
            }
        })+
    };
}
arrays!(1 2 3 4 5 6 7 8);

impl Params for &[&dyn ToValue] {
    #[inline]
    fn bind_to(self, to: &mut impl Bind) -> Result<()> {
        self.iter().try_for_each(|value| to.bind(value.to_value()))
    }
}

impl<A: ToValue, B: ToValue> Params for (A, B) {
    #[inline]
    fn bind_to(self, to: &mut impl Bind) -> Result<()> {
        to.bind(self.0.to_value())?;
        to.bind(self.1.to_value())
    }
}

/// Parameters from an iterator.
pub(crate) struct ParamsFromIter<I>(I);

/// Binds the items of an iterator.
pub(crate) fn params_from_iter<I: IntoIterator>(values: I) -> ParamsFromIter<I>
where
    I::Item: ToValue,
{
    ParamsFromIter(values)
}

impl<I: IntoIterator> Params for ParamsFromIter<I>
where
    I::Item: ToValue,
{
    #[inline]
    fn bind_to(self, to: &mut impl Bind) -> Result<()> {
        self.0
            .into_iter()
            .try_for_each(|value| to.bind(value.to_value()))
    }
}

/// Lists values of different types as parameters.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::store::db::ToValue),*] as &[&dyn $crate::store::db::ToValue]
    };
}
pub(in crate::store) use params;

/// The error for a wrong number of parameters.
pub(super) fn wrong_count(bound: usize, expected: usize) -> Error {
    Error::Other(format!(
        "the statement has {expected} parameters, not {bound}"
    ))
}
