//! `env_pass`: which variables of the dispatcher are passed to a declared agent or preset.

use super::FILE_BYTES_MAX;
use crate::files;
use std::path::Path;

/// Shortest prefix before a `*`.
const BEGINNING_CHARS_MIN: usize = 2;
/// Patterns of a file that are used; further ones are ignored.
const PATTERNS_MAX: usize = 200;
/// Prefixes of variables that make the dynamic loader load other code into every program.
const LOADERS: [&str; 2] = ["LD_", "DYLD_"];

/// Why a pattern passes no variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvPassProblem {
    #[error("{0:?} is not a variable: write a name such as MY_KEY, or a prefix such as MY_*")]
    NotAVariable(String),
    #[error("{0:?} is adj's own and is not passed to agents")]
    Own(String),
    #[error(
        "{0:?} would load code into every program: set it by env = {{ … }} if that is intended"
    )]
    LoadsCode(String),
}

/// Checks patterns: names of variables, optionally with `*` as the last character.
///
/// # Errors
/// The first invalid pattern, and the reason.
pub fn check(patterns: &[String]) -> Result<(), EnvPassProblem> {
    patterns.iter().try_for_each(|pattern| check_one(pattern))
}

fn check_one(pattern: &str) -> Result<(), EnvPassProblem> {
    let (name, is_beginning) = pattern
        .strip_suffix('*')
        .map_or((pattern, false), |name| (name, true));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name || is_beginning && name.len() < BEGINNING_CHARS_MIN {
        return Err(EnvPassProblem::NotAVariable(pattern.to_owned()));
    }
    if name.starts_with("ADJ_") || is_beginning && "ADJ_".starts_with(name) {
        return Err(EnvPassProblem::Own(pattern.to_owned()));
    }
    if LOADERS
        .iter()
        .any(|loader| name.starts_with(loader) || is_beginning && loader.starts_with(name))
    {
        return Err(EnvPassProblem::LoadsCode(pattern.to_owned()));
    }
    Ok(())
}

/// Reads the patterns of all declared agents and presets of a configuration file, and the variables
/// with keys for gates. Returns none for an unreadable file; loading the configuration reports the
/// error.
pub(super) fn declared_patterns(path: &Path) -> Vec<String> {
    let Ok(bytes) = files::read_named(path, FILE_BYTES_MAX) else {
        return Vec::new();
    };
    let table: toml::Table = String::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let declared = ["agents", "presets"]
        .iter()
        .filter_map(|section| table.get(*section)?.as_table())
        .flat_map(toml::Table::values);
    let patterns = |entry: &toml::Value| -> Vec<String> {
        let passed = entry
            .get("env_pass")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten();
        let key = entry.get("key").and_then(|key| key.get("env"));
        passed
            .chain(key)
            .filter_map(toml::Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    declared
        .flat_map(patterns)
        .filter(|pattern| check_one(pattern).is_ok())
        .take(PATTERNS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_pass_and_dangerous_ones_do_not() {
        for pattern in ["MY_KEY", "_x", "OPENAI_*", "LDAP_PASSWORD", "ADJUST"] {
            assert_eq!(check(&[pattern.to_owned()]), Ok(()), "{pattern}");
        }
        for pattern in [
            "",
            "*",
            "A*",
            "1X",
            "MY KEY",
            "X=1",
            "A*B",
            "ADJ_HOME",
            "ADJ_*",
            "AD*",
            "LD_PRELOAD",
            "LD*",
            "LD_*",
            "DYLD_INSERT_LIBRARIES",
            "é",
        ] {
            assert!(check(&[pattern.to_owned()]).is_err(), "{pattern}");
        }
    }
}
