//! The functions of the store's SQL that no standard has under one name for all engines.
//! PostgreSQL's are in its schema.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Error, Result};
use serde_json::Value;

/// A function that returns the same result for the same arguments.
const PURE: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

/// Registers them for a connection.
pub(super) fn register(connection: &Connection) -> Result<()> {
    // NULL if one of both is.
    connection.create_scalar_function("larger", 2, PURE, |of| both(of, i64::max))?;
    connection.create_scalar_function("smaller", 2, PURE, |of| both(of, i64::min))?;
    connection.create_scalar_function("random_id", 0, FunctionFlags::SQLITE_UTF8, |_| {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::UserFunctionError(error.to_string().into()))?;
        Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
    })?;
    connection.create_scalar_function("is_valid_json", 1, PURE, |of| {
        let text: Option<String> = of.get(0)?;
        Ok(text.map(|text| serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()))
    })?;
    // A path has the form `$.a.b`. A text is returned without its quotes, any other value as JSON,
    // and `null` as NULL.
    connection.create_scalar_function("json_text_at", 2, PURE, |of| {
        Ok(part(of)?.and_then(|part| match part {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }))
    })?;
    connection.create_scalar_function("json_part_at", 2, PURE, |of| {
        Ok(part(of)?.map(|part| part.to_string()))
    })?;
    // Return the first argument with another value at the path, or as it is if the value's parent
    // does not exist.
    connection.create_scalar_function("json_with_part", 3, PURE, |of| {
        let part: Option<String> = of.get(2)?;
        with(of, part.map_or(Ok(Value::Null), |part| json(&part))?)
    })?;
    connection.create_scalar_function("json_with_text", 3, PURE, |of| {
        let text: Option<String> = of.get(2)?;
        with(of, text.map_or(Value::Null, Value::String))
    })
}

fn both(of: &Context<'_>, choose: fn(i64, i64) -> i64) -> Result<Option<i64>> {
    let (first, second): (Option<i64>, Option<i64>) = (of.get(0)?, of.get(1)?);
    Ok(first
        .zip(second)
        .map(|(first, second)| choose(first, second)))
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Error::UserFunctionError(error.into()))
}

/// Splits `$.a.b`.
fn keys(path: &str) -> Vec<&str> {
    path.trim_start_matches("$.").split('.').collect()
}

fn part(of: &Context<'_>) -> Result<Option<Value>> {
    let (Some(text), path) = (of.get::<Option<String>>(0)?, of.get::<String>(1)?) else {
        return Ok(None);
    };
    let mut at = json(&text)?;
    for key in keys(&path) {
        match at.get_mut(key) {
            Some(inner) => at = inner.take(),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn with(of: &Context<'_>, part: Value) -> Result<Option<String>> {
    let (Some(text), path) = (of.get::<Option<String>>(0)?, of.get::<String>(1)?) else {
        return Ok(None);
    };
    let mut all = json(&text)?;
    let mut keys = keys(&path);
    let last = keys.pop().unwrap_or_default();
    let parent = keys
        .into_iter()
        .try_fold(&mut all, |at, key| at.get_mut(key));
    if let Some(Value::Object(parent)) = parent {
        parent.insert(last.to_owned(), part);
    }
    Ok(Some(all.to_string()))
}
