//! Configured agents: whether their programs are installed, their versions, and whether the user is
//! signed in.

use crate::clock::{self, rfc3339};
use crate::config::{AgentEntry, BUILT_IN, Config, GateSettings, KeySource};
use crate::ops::checks::checked_env;
use crate::ops::programs::{own_env, program};
use crate::ops::settings::Settings;
use crate::ops::{OpError, lookup, profiles};
use crate::preset::{About, Capabilities, Preset, TestedVersions, Version, VersionMin};
use crate::store::{QuotaWindowRow, Store, quota_windows, usage_limits};
use crate::versions::{VersionQuery, VersionReply, query_env};
use crate::view::{
    AgentList, AgentView, CanView, GateView, ListAgents, QuotaWindowView, SignInView,
    VersionMinView, Word,
};
use adjutant_core::{Action, AgentSpec, HarnessKind, Permissions, Principal, PromptVia};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn unsupported_profiles(
    agent: &AgentSpec,
    preset: Option<&Preset>,
) -> BTreeMap<Word<Permissions>, String> {
    let problem = |profile: Permissions| {
        Some((
            profile.into(),
            profiles::problem(agent, preset, agent.permissions, profile)?,
        ))
    };
    Permissions::ALL.into_iter().filter_map(problem).collect()
}

fn view(
    entry: &AgentEntry,
    preset: Option<&Preset>,
    found: &FoundProgram,
    env: &BTreeMap<String, String>,
) -> AgentView {
    let about = preset.map(|preset| &preset.about);
    AgentView {
        name: entry.spec.name.to_string(),
        harness: preset.map_or_else(
            || entry.spec.harness.word().to_owned(),
            |preset| preset.name.clone(),
        ),
        description: entry.spec.description.clone(),
        found: found.is_ok(),
        problem: found.as_ref().err().map(ToString::to_string),
        problem_code: found.as_ref().err().map(|error| error.view().code),
        program: found
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|path| path.display().to_string()),
        source: entry.source.clone(),
        version: None,
        version_pending: false,
        version_note: None,
        versions_tried: about
            .and_then(|about| about.tested_versions())
            .map(|tried| tried.to_string()),
        version_min: about.and_then(|about| about.version_min.as_ref()).map(
            |VersionMin { version, why }| VersionMinView {
                version: version.clone(),
                why: why.clone(),
            },
        ),
        documented_only: about.is_some_and(|about| about.versions_tried.is_empty()),
        sign_in: about.and_then(|about| sign_in(about, &entry.spec.env, env)),
        can: match (preset, entry.spec.harness) {
            (Some(preset), _) => Some(can(preset.can)),
            // The built-in agent supports everything but usage.
            (None, HarnessKind::Echo) => Some(CanView {
                tools: true,
                resume: true,
                live: entry.spec.prompt == PromptVia::Stream,
                approvals: true,
                usage: false,
            }),
            (None, HarnessKind::Plain | HarnessKind::Vendor) => None,
        },
        permissions: entry.spec.permissions.into(),
        pool: String::new(),
        limited_until: None,
        limit_reported_at: None,
        gate: None,
        can_have_gate: preset.is_some_and(|preset| preset.gate.is_some()),
        quota_windows: Vec::new(),
        unsupported_profiles: unsupported_profiles(&entry.spec, preset),
        permissions_not_enforced: !profiles::is_enforced(
            &entry.spec,
            preset,
            entry.spec.permissions,
        ),
    }
}

fn gate(settings: &GateSettings) -> GateView {
    let key = match &settings.key {
        KeySource::File(path) => format!("file {}", path.display()),
        KeySource::Env(name) => format!("variable {name}"),
    };
    GateView {
        base_url: settings.base_url.to_string(),
        key,
    }
}

fn quota_window(row: &QuotaWindowRow) -> QuotaWindowView {
    let QuotaWindowRow {
        agent: _,
        window,
        reported_at,
    } = row;
    QuotaWindowView {
        minutes: window.minutes,
        used_percent: window.used_percent,
        resets_at: rfc3339(window.resets_at),
        reported_at: rfc3339(*reported_at),
    }
}

fn can(can: Capabilities) -> CanView {
    let Capabilities {
        tools,
        resume,
        live,
        approvals,
        usage,
    } = can;
    CanView {
        tools,
        resume,
        live,
        approvals,
        usage,
    }
}

/// Returns the environment of a version query: the agent's, without the variables that are set per
/// attempt.
fn asked_env(
    entry: &AgentEntry,
    preset: &Preset,
    env: &BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut own = own_env(&entry.spec, env.clone());
    own.extend(entry.spec.env.clone());
    query_env(preset, own)
}

/// Checks whether the files and variables of a sign-in exist. Never reads them.
fn sign_in(
    about: &About,
    own: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Option<SignInView> {
    if about.sign_in_files.is_empty() && about.sign_in_env.is_empty() {
        return None;
    }
    let value = |name: &str| {
        own.get(name)
            .or_else(|| env.get(name))
            .filter(|value| !value.is_empty())
    };
    let by_variable = about
        .sign_in_env
        .iter()
        .find(|name| value(name).is_some())
        .cloned();
    let named = about.sign_in_files.iter().filter_map(|file| {
        let (name, rest) = file.strip_prefix('$')?.split_once('/')?;
        Some(Path::new(value(name)?).join(rest))
    });
    let at_home = about
        .sign_in_files
        .iter()
        .filter_map(|file| Some(Path::new(value("HOME")?).join(file.strip_prefix("~/")?)));
    let named: Vec<PathBuf> = named.collect();
    let files = if named.is_empty() {
        at_home.collect()
    } else {
        named
    };
    let by_file = || {
        files
            .into_iter()
            .find(|file| file.exists())
            .map(|file| file.display().to_string())
    };
    let by = by_variable.or_else(by_file);
    Some(SignInView {
        found: by.is_some(),
        by,
        how: about.sign_in.clone(),
    })
}

/// Adds versions to a list of agents. `None`: the query is still running.
pub fn add_versions(list: &mut AgentList, replies: &BTreeMap<PathBuf, Option<VersionReply>>) {
    for agent in &mut list.agents {
        let Some(reply) = agent
            .program
            .as_ref()
            .and_then(|program| replies.get(Path::new(program)))
        else {
            continue;
        };
        // A program without a preset is not queried; the same program's answer for another agent
        // does not apply.
        if agent.can.is_none() {
            continue;
        }
        let Some(reply) = reply else {
            agent.version_pending = true;
            continue;
        };
        let version = reply.as_ref().map(|reply| Version::find(reply));
        let tried = agent
            .versions_tried
            .as_deref()
            .and_then(TestedVersions::parse);
        (agent.version, agent.version_note) = match version {
            Ok(Some(version)) => {
                let least = agent.version_min.as_ref().map(|min| VersionMin {
                    version: min.version.clone(),
                    why: min.why.clone(),
                });
                let note = least
                    .and_then(|least| least.problem(&version))
                    .or_else(|| tried.and_then(|tried| tried.note(&version)));
                (Some(version.to_string()), note)
            }
            Ok(None) => (None, Some("no version found in its output".to_owned())),
            Err(problem) => (None, Some(format!("cannot read its version: {problem}"))),
        };
    }
}

/// Lists the configured agents and whether they can be started. With versions, also returns the
/// version queries to run.
///
/// # Errors
/// The configuration cannot be used.
pub fn configured_agents(
    store: &Store,
    settings: &Settings,
    who: &Principal,
    call: &ListAgents,
) -> Result<(AgentList, Vec<VersionQuery>), OpError> {
    lookup::check(who, Action::ListAgents)?;
    checked_env(&call.env)?;
    let config = settings.config()?;
    let mut env = if call.env.is_empty() {
        crate::config::dispatch_env()
    } else {
        call.env.clone()
    };
    for (name, value) in crate::config::base_env() {
        env.entry(name).or_insert(value);
    }
    let mut asking: BTreeMap<PathBuf, VersionQuery> = BTreeMap::new();
    let mut agents = Vec::new();
    let limits = store.read(usage_limits)?;
    let windows = store.read(|connection| quota_windows(connection, clock::now()))?;
    for (entry, found) in listed(&config, &env, call.all) {
        let preset = Preset::from_text(&entry.spec.preset);
        let mut agent = view(entry, preset.as_ref(), &found, &env);
        agent.pool = config.pool_of(&entry.spec.name).to_string();
        agent.gate = config.gate_of(&entry.spec.name).map(gate);
        agent.quota_windows = windows
            .iter()
            .filter(|row| row.agent == agent.name)
            .map(quota_window)
            .collect();
        if let Some(row) = limits
            .iter()
            .find(|row| row.agent == agent.name && row.limit.is_closed(clock::steady()))
        {
            agent.limited_until = Some(rfc3339(clock::expected_wall_time(row.limit.until)));
            agent.limit_reported_at = Some(rfc3339(row.reported_at));
        }
        if let (true, Some(preset), Ok(Some(path))) = (call.versions, &preset, found)
            && !preset.about.version_args.is_empty()
        {
            asking.entry(path.clone()).or_insert_with(|| VersionQuery {
                program: path,
                args: preset.about.version_args.clone(),
                env: asked_env(entry, preset, &env),
            });
        }
        agents.push(agent);
    }
    Ok((
        AgentList {
            agents,
            warnings: Vec::new(),
        },
        asking.into_values().collect(),
    ))
}

type FoundProgram = Result<Option<PathBuf>, OpError>;

/// Returns the agents with their programs. A built-in preset whose program is not installed is
/// listed only with `all`.
fn listed<'a>(
    config: &'a Config,
    env: &'a BTreeMap<String, String>,
    all: bool,
) -> impl Iterator<Item = (&'a AgentEntry, FoundProgram)> {
    let path = env.get("PATH").map_or("", String::as_str);
    let with_program = config
        .agents
        .values()
        .map(move |entry| (entry, program(entry, path)));
    with_program.filter(move |(entry, found)| {
        all || entry.source != BUILT_IN || !matches!(found, Err(OpError::ProgramNotFound { .. }))
    })
}

/// Returns the agents of a configuration, without what only the hub knows of them: versions,
/// limits, pools.
#[must_use]
pub fn agents_of(config: &Config, env: &BTreeMap<String, String>) -> Vec<AgentView> {
    listed(config, env, false)
        .map(|(entry, found)| {
            view(
                entry,
                Preset::from_text(&entry.spec.preset).as_ref(),
                &found,
                env,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(files: &[&str], variables: &[&str]) -> About {
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        About {
            sign_in_files: all(files),
            sign_in_env: all(variables),
            ..About::default()
        }
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn sign_in_is_found_by_a_variable_or_a_file_without_reading_it() {
        let home = tempfile::tempdir().expect("a directory");
        let at = home.path().to_str().expect("UTF-8");
        std::fs::create_dir(home.path().join("moved")).expect("a directory");
        // A directory cannot be read as a file, so this shows that only its existence is checked.
        std::fs::create_dir_all(home.path().join(".x/auth.json")).expect("a directory");
        let about = about(&["$X_HOME/auth.json", "~/.x/auth.json"], &["X_KEY"]);
        let found = |pairs: &[(&str, &str)]| {
            let view = sign_in(&about, &BTreeMap::new(), &env(pairs)).expect("a view");
            assert_eq!(view.found, view.by.is_some());
            view.by
        };
        assert_eq!(found(&[("HOME", at)]), Some(format!("{at}/.x/auth.json")));
        assert_eq!(
            found(&[("HOME", at), ("X_KEY", "secret")]).as_deref(),
            Some("X_KEY")
        );
        assert_eq!(
            found(&[("HOME", at), ("X_KEY", "")]),
            Some(format!("{at}/.x/auth.json"))
        );
        assert_eq!(
            found(&[("HOME", at), ("X_HOME", &format!("{at}/moved"))]),
            None
        );
        assert_eq!(found(&[("HOME", "/no/such/home")]), None);
        assert_eq!(
            sign_in(&About::default(), &BTreeMap::new(), &env(&[])),
            None
        );
    }
}
