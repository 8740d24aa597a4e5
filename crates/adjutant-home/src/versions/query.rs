//! What a program is asked for its version, and whether the reply is too old for its preset.

use crate::preset::{Preset, Version};
use crate::protocol::Order;
use adjutant_core::Cause;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// A program whose version is queried.
#[derive(Debug)]
pub struct VersionQuery {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
}

/// The output of a version query, or why it failed.
pub type VersionReply = Result<String, String>;

/// Returns the environment of a version query: that of the agent with the variables of its preset,
/// without those that are set per attempt.
#[must_use]
pub fn query_env(preset: &Preset, env: BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<String, String> = preset
        .env
        .iter()
        .filter(|(_, value)| !value.contains('{'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    all.extend(env);
    all.into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Returns the version query to run before an attempt starts, if the preset requires a version, and
/// its program was found.
pub(super) fn of_order(order: &Order) -> Option<VersionQuery> {
    let preset = order.preset.as_ref().filter(|preset| {
        preset.about.version_min.is_some() && !preset.about.version_args.is_empty()
    })?;
    let program = order
        .argv
        .first()
        .map(PathBuf::from)
        .filter(|program| program.is_absolute())?;
    Some(VersionQuery {
        program,
        args: preset.about.version_args.clone(),
        env: query_env(preset, order.env.clone()),
    })
}

/// Returns why a program with this version is not started, and what to do.
pub(super) fn too_old(order: &Order, output: &str) -> Option<String> {
    let preset = order.preset.as_ref()?;
    let version = Version::find(output)?;
    let problem = preset.about.version_min.as_ref()?.problem(&version)?;
    let hint = preset
        .failures
        .iter()
        .find(|pattern| pattern.cause == Cause::TooOld.word())
        .map_or("update it", |pattern| &pattern.hint);
    Some(format!("{} {version} is {problem}\n{hint}", preset.title))
}
