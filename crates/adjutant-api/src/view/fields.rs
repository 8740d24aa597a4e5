//! The field names of the contract's types.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the names of a type's fields. Empty for a type that is not a struct, or that includes
/// the fields of another one.
#[must_use]
pub fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    // Reading fails once the names are known.
    if T::deserialize(FieldNames(&mut names)).is_ok() {
        return &[];
    }
    names
}

/// Stores the names of the fields that are read from it.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{RunIdentityView, RunView, Word};
    use adjutant_core::RunStateKind;

    #[test]
    fn names_of_fields_are_those_of_the_json() {
        let names = field_names::<RunIdentityView>();
        assert!(
            names.starts_with(&["run_id", "name", "agent"]) && names.contains(&"session"),
            "{names:?}"
        );
        assert!(
            field_names::<Word<RunStateKind>>().is_empty()
                && field_names::<Vec<RunIdentityView>>().is_empty()
                && field_names::<RunView>().is_empty()
        );
    }
}
