//! The settings of `config.toml`: their names and types, taken from the types that read the file.
//!
//! A deserializer that records what is asked of it visits every field once. So the schema has
//! exactly the keys that the file may have. Descriptions are the tables of `docs/configuration.md`.

use super::file::FileConfig;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// The name of the entries of a table in which the user chooses the names.
const ANY_NAME: &str = "NAME";

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Setting {
    Text,
    Integer,
    Number,
    Switch,
    Choice(&'static [&'static str]),
    List(Box<Setting>),
    /// A table with fixed keys, in the order of the file's type.
    Table(Vec<(&'static str, Setting)>),
    /// A table in which the user chooses the keys.
    Named(Box<Setting>),
    /// A text or a list of texts.
    #[default]
    Texts,
}

impl Setting {
    /// Returns all settings of the file.
    ///
    /// # Panics
    /// Never: a test visits every type of the file.
    #[must_use]
    pub fn file() -> Self {
        let mut file = Self::default();
        FileConfig::deserialize(Recorder(&mut file))
            .expect("every type of the file accepts the recorded values");
        file
    }

    /// Returns the setting at a path of keys. An entry of a list of tables is named by its
    /// position, from 0.
    #[must_use]
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        let Some((key, below)) = path.split_first() else {
            return Some(self);
        };
        match self {
            Self::Table(fields) => fields.iter().find(|(name, _)| name == key)?.1.find(below),
            Self::Named(entry) => entry.find(below),
            Self::List(entry) if key.parse::<usize>().is_ok() => entry.find(below),
            _ => None,
        }
    }

    /// Returns the settings of a table with their names, with lists of tables included.
    fn fields(&self) -> Vec<(&'static str, &Self)> {
        match self {
            Self::Table(fields) => fields
                .iter()
                .map(|(name, setting)| (*name, setting))
                .collect(),
            Self::Named(entry) => vec![(ANY_NAME, entry)],
            Self::List(entry) => entry.fields(),
            _ => Vec::new(),
        }
    }

    /// Calls `visit` for each setting below this one, with its path.
    pub fn walk(
        &self,
        path: &mut Vec<&'static str>,
        visit: &mut impl FnMut(&[&'static str], &Self),
    ) {
        for (name, setting) in self.fields() {
            path.push(name);
            visit(path, setting);
            setting.walk(path, visit);
            path.pop();
        }
    }

    fn schema(&self, path: &mut Vec<&'static str>, documented: &DocumentedKeys) -> Value {
        let mut schema = match self {
            Self::Text => json!({ "type": "string" }),
            Self::Integer => json!({ "type": "integer", "minimum": 0 }),
            Self::Number => json!({ "type": "number" }),
            Self::Switch => json!({ "type": "boolean" }),
            Self::Choice(words) => json!({ "enum": words }),
            Self::Texts => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
            Self::List(entry) => {
                json!({ "type": "array", "items": entry.schema(path, documented) })
            }
            Self::Named(entry) => {
                path.push(ANY_NAME);
                let below = entry.schema(path, documented);
                path.pop();
                json!({ "type": "object", "additionalProperties": below })
            }
            Self::Table(fields) => {
                let mut properties = Map::new();
                for (name, setting) in fields {
                    path.push(name);
                    let mut below = setting.schema(path, documented);
                    if let Some(Documented { meaning, default }) = documented.get(&place(path)) {
                        below["description"] = json!(format!("{meaning} Default: {default}"));
                    }
                    properties.insert((*name).to_owned(), below);
                    path.pop();
                }
                json!({ "type": "object", "properties": properties, "additionalProperties": false })
            }
        };
        if path.is_empty() {
            schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
            schema["title"] = json!("The configuration of adj");
        }
        schema
    }
}

/// Returns a JSON Schema of the configuration file.
#[must_use]
pub fn json_schema() -> Value {
    Setting::file().schema(&mut Vec::new(), &read_documented_keys(PAGE))
}

/// Returns the default of a setting in the words of the documentation.
#[must_use]
pub fn documented_default(path: &[&str]) -> Option<String> {
    read_documented_keys(PAGE)
        .remove(&place(path))
        .map(|setting| setting.default)
}

/// What the documentation says about a setting.
struct Documented {
    meaning: String,
    default: String,
}

/// The documented settings, by the first key of their table (empty: the file itself) and their own
/// key.
type DocumentedKeys = BTreeMap<(String, String), Documented>;

fn place(path: &[&str]) -> (String, String) {
    let table = if path.len() > 1 { path[0] } else { "" };
    (
        table.to_owned(),
        path.last().copied().unwrap_or_default().to_owned(),
    )
}

/// Reads the tables of the page.
fn read_documented_keys(page: &str) -> DocumentedKeys {
    let mut table = String::new();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = heading
                .strip_prefix("`[")
                .and_then(|rest| rest.split("]`").next())
                .unwrap_or_default();
            table = name
                .trim_matches(['[', ']'])
                .split('.')
                .next()
                .unwrap_or_default()
                .to_owned();
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [keys, default, meaning] = cells.as_slice() else {
            continue;
        };
        if !keys.starts_with('`') {
            continue;
        }
        for key in keys.split(", ") {
            let setting = Documented {
                meaning: plain(meaning),
                default: plain(default),
            };
            found.insert((table.clone(), key.trim_matches('`').to_owned()), setting);
        }
    }
    found
}

/// Removes the links of Markdown.
fn plain(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link
            .split_once("](")
            .and_then(|(label, after)| Some((label, after.split_once(')')?.1)));
        let Some((label, after)) =
            parts.filter(|(label, _)| !label.contains('`') && !label.contains(']'))
        else {
            out += before;
            out.push('[');
            rest = link;
            continue;
        };
        out += before;
        out += label;
        rest = after;
    }
    (out + rest).replace('`', "")
}

/// Records the type that is read from it.
struct Recorder<'a>(&'a mut Setting);

#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Records a scalar and gives a value of its type.
macro_rules! record {
    ($($method:ident => $setting:ident, $visit:ident, $value:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            *self.0 = Setting::$setting;
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Refused;

    record! {
        deserialize_any => Texts, visit_str, "";
        deserialize_str => Text, visit_str, "";
        deserialize_string => Text, visit_str, "";
        deserialize_bool => Switch, visit_bool, false;
        deserialize_u8 => Integer, visit_u8, 1;
        deserialize_u16 => Integer, visit_u16, 1;
        deserialize_u32 => Integer, visit_u32, 1;
        deserialize_u64 => Integer, visit_u64, 1;
        deserialize_i32 => Integer, visit_i32, 1;
        deserialize_i64 => Integer, visit_i64, 1;
        deserialize_f64 => Number, visit_f64, 1.0;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let mut entry = Setting::default();
        let value = visitor.visit_seq(One(Some(&mut entry)))?;
        *self.0 = Setting::List(Box::new(entry));
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let mut entry = Setting::default();
        let value = visitor.visit_map(One(Some(&mut entry)))?;
        *self.0 = Setting::Named(Box::new(entry));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let mut recorded = Vec::new();
        let value = visitor.visit_map(Fields {
            left: fields.iter(),
            current: "",
            recorded: &mut recorded,
        })?;
        *self.0 = Setting::Table(recorded);
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_enum(First(words, self.0))
    }

    forward_to_deserialize_any! { i8 i16 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any }
}

/// A list or a map with one entry.
struct One<'a>(Option<&'a mut Setting>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refused> {
        self.0
            .take()
            .map(|entry| seed.deserialize(Recorder(entry)))
            .transpose()
    }
}

impl<'de> MapAccess<'de> for One<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        let key: StrDeserializer<'_, Refused> = ANY_NAME.into_deserializer();
        self.0.is_some().then(|| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        let entry = self
            .0
            .take()
            .ok_or_else(|| Refused("a value without its key".to_owned()))?;
        seed.deserialize(Recorder(entry))
    }
}

/// The fields of a struct, each once.
struct Fields<'a> {
    left: std::slice::Iter<'static, &'static str>,
    current: &'static str,
    recorded: &'a mut Vec<(&'static str, Setting)>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        let Some(name) = self.left.next() else {
            return Ok(None);
        };
        self.current = name;
        let key: StrDeserializer<'_, Refused> = (*name).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        let mut setting = Setting::default();
        let value = seed
            .deserialize(Recorder(&mut setting))
            .map_err(|Refused(why)| Refused(format!("{}: {why}", self.current)))?;
        self.recorded.push((self.current, setting));
        Ok(value)
    }
}

/// The first variant of an enum.
struct First<'a>(&'static [&'static str], &'a mut Setting);

impl<'de> EnumAccess<'de> for First<'_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Refused> {
        let word: StrDeserializer<'_, Refused> = self
            .0
            .first()
            .copied()
            .unwrap_or_default()
            .into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'de> VariantAccess<'de> for First<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        *self.1 = Setting::Choice(self.0);
        Ok(())
    }

    /// Variants with a value are one key of a table. All variants of an enum have values of the
    /// same type.
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        let mut inner = Setting::default();
        let value = seed.deserialize(Recorder(&mut inner))?;
        *self.1 = Setting::Table(self.0.iter().map(|word| (*word, inner.clone())).collect());
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refused> {
        Err(Refused(
            "a variant without a value, or with one, is expected".to_owned(),
        ))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Refused> {
        Err(Refused(
            "a variant without a value, or with one, is expected".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_setting_is_documented() {
        let mut undocumented = Vec::new();
        let mut settings = 0;
        Setting::file().walk(&mut Vec::new(), &mut |path, _| {
            settings += 1;
            let key = path.last().copied().unwrap_or_default();
            let is_there = [
                format!("`{key}`"),
                format!("`[{key}"),
                format!("`[[{key}"),
                format!(".{key}]"),
                format!("{key} = "),
                format!("`{{ {key}"),
            ];
            // The next test checks the keys of presets.
            let is_part_of_preset = path.len() > 2 && path[0] == "presets";
            if key != ANY_NAME
                && !is_part_of_preset
                && !is_there.iter().any(|text| PAGE.contains(text.as_str()))
            {
                undocumented.push(path.join("."));
            }
        });
        assert!(
            undocumented.is_empty(),
            "not in docs/configuration.md: {undocumented:?}"
        );
        assert!(settings > 150, "{settings}");
    }

    #[test]
    fn keys_of_presets_are_those_of_their_page() {
        let all = Setting::file();
        let mut keys = BTreeSet::new();
        all.find(&["presets", ANY_NAME]).expect("a table").walk(
            &mut vec!["presets", ANY_NAME],
            &mut |path, _| {
                let Some((key, table)) = path.split_last().filter(|(key, _)| **key != ANY_NAME)
                else {
                    return;
                };
                let table: Vec<&str> = table
                    .iter()
                    .map(|part| {
                        if ["read", "edit", "full"].contains(part) {
                            "PROFILE"
                        } else {
                            part
                        }
                    })
                    .collect();
                keys.insert((table.join("."), (*key).to_owned()));
            },
        );
        let mut documented = BTreeSet::new();
        let mut table = "";
        for line in include_str!("../../../../docs/presets.md").lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                table = heading.trim_matches(['`', '[', ']']);
            }
            if let Some((key, _)) = line
                .strip_prefix("| `")
                .and_then(|row| row.split_once("` | "))
            {
                documented.insert((table.to_owned(), key.to_owned()));
            }
        }
        assert_eq!(documented, keys);
    }

    #[test]
    fn every_documented_key_is_a_setting() {
        let mut known = Vec::new();
        Setting::file().walk(&mut Vec::new(), &mut |path, _| known.push(place(path)));
        let wrong: Vec<_> = read_documented_keys(PAGE)
            .into_keys()
            .filter(|key| !known.contains(key))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn schema_has_types_words_and_descriptions() {
        let schema = json_schema();
        let hub = &schema["properties"];
        assert_eq!(hub["live_runs_max"]["type"], "integer");
        assert_eq!(
            hub["containment"]["enum"],
            json!(["auto", "pid_namespace", "subreaper"])
        );
        assert!(
            hub["expiry"]["description"]
                .as_str()
                .is_some_and(|text| text.contains("24h") && !text.contains('`')),
            "{}",
            hub["expiry"]
        );
        let agent = &hub["agents"]["additionalProperties"];
        assert_eq!(
            (
                &agent["properties"]["trust_repo"]["type"],
                &agent["additionalProperties"]
            ),
            (&json!("boolean"), &json!(false))
        );
        assert!(agent["properties"]["timeout"]["description"].is_string());
        assert_eq!(
            hub["webhooks"]["items"]["properties"]["url"]["type"],
            "string"
        );
        assert_eq!(
            documented_default(&["agents", "x", "grace"]).as_deref(),
            Some("\"8s\"")
        );
    }
}
