//! The details of an agent: what it is, what it can do, and how it is configured.

use crate::cli::commands::config::settings;
use crate::cli::out::{Failure, Out};
use crate::cli::style::Style;
use crate::config::{AgentEntry, BUILT_IN, Config};
use crate::preset::{Preset, Profile};
use crate::text;
use crate::view::{AgentView, Word};

/// A label and its value. A line with an empty value is not printed.
type Line = (&'static str, String);

/// The columns of a label, and the blank after it.
const LABEL_COLUMNS: usize = 12;
/// The columns without a terminal, and the narrowest column of values.
const COLUMNS: usize = 100;
const VALUE_COLUMNS_MIN: usize = 40;
/// The settings that have no line of their own.
const SETTINGS: [&str; 10] = [
    "args",
    "env",
    "env_pass",
    "permissions",
    "trust_repo",
    "isolation",
    "timeout",
    "patience",
    "stall",
    "grace",
];

/// Prints the details of an agent.
pub(super) fn print(agent: &AgentView, config: &Config, out: &Out) -> Result<(), Failure> {
    let entry = config
        .agents
        .iter()
        .find(|(name, _)| name.as_str() == agent.name)
        .map(|(_, entry)| entry);
    let columns = out
        .columns
        .unwrap_or(COLUMNS)
        .saturating_sub(LABEL_COLUMNS)
        .max(VALUE_COLUMNS_MIN);
    let lines = lines(agent, entry).into_iter();
    for (label, value) in lines.filter(|(_, value)| !value.is_empty()) {
        let label = out.paint.apply(Style::Dim, &format!("{label:<11}"));
        for (n, part) in text::wrap(&text::line(&value), columns).iter().enumerate() {
            out.print_line(&if n == 0 {
                format!("{label} {part}")
            } else {
                format!("{:<11} {part}", "")
            })?;
        }
    }
    Ok(())
}

/// Returns the lines about an agent. `entry`: its configuration, if the shell's has it.
fn lines(agent: &AgentView, entry: Option<&AgentEntry>) -> Vec<Line> {
    let preset = entry.and_then(|entry| Preset::from_text(&entry.spec.preset));
    let preset = preset.as_ref();
    let mut lines = identity(agent);
    lines.extend(
        preset
            .into_iter()
            .flat_map(|preset| installation(agent, preset)),
    );
    lines.extend(sign_in(agent));
    lines.extend(limits(agent));
    lines.push(("gate", gate(agent)));
    lines.extend(abilities(agent));
    lines.extend(
        preset
            .into_iter()
            .flat_map(|preset| preset_lines(preset, agent)),
    );
    if agent.permissions_not_enforced {
        lines.push((
            "permissions",
            format!(
                "{} (not enforced: the agent is a plain program)",
                agent.permissions
            ),
        ));
    }
    lines.extend(
        entry
            .into_iter()
            .flat_map(settings)
            .filter(|(field, _)| SETTINGS.contains(field)),
    );
    lines
}

/// Says what an agent is and which program it is.
fn identity(agent: &AgentView) -> Vec<Line> {
    let title: Vec<&str> = [agent.name.as_str(), agent.description.as_str()]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    let declared = if agent.source == BUILT_IN {
        "built in".to_owned()
    } else {
        format!("declared in {}", agent.source)
    };
    let program = match (&agent.program, agent.found) {
        (Some(program), _) => program.clone(),
        (None, true) => "adj itself".to_owned(),
        (None, false) => agent
            .problem
            .clone()
            .unwrap_or_else(|| "not found".to_owned()),
    };
    vec![
        ("agent", title.join(" – ")),
        ("harness", format!("{} ({declared})", agent.harness)),
        ("program", program),
    ]
}

fn installation(agent: &AgentView, preset: &Preset) -> Vec<Line> {
    let install = (!agent.found).then(|| ("install", preset.about.install.clone()));
    let is_version_known = agent.versions_tried.is_some() || !preset.about.version_args.is_empty();
    let version = if is_version_known {
        version(agent)
    } else {
        "unknown and not tested; check it with adj agents test".to_owned()
    };
    install.into_iter().chain([("version", version)]).collect()
}

fn sign_in(agent: &AgentView) -> Option<Line> {
    let sign_in = agent.sign_in.as_ref()?;
    let state = match &sign_in.by {
        Some(by) => format!("probably: found {by}"),
        None => format!("probably not: {}", sign_in.how),
    };
    Some(("signed in", state))
}

fn limits(agent: &AgentView) -> Vec<Line> {
    let mut lines = vec![("pool", agent.pool.clone())];
    if let (Some(until), Some(at)) = (&agent.limited_until, &agent.limit_reported_at) {
        lines.push((
            "limit",
            format!("reached at {at}; its runs wait until {until}"),
        ));
    }
    lines.extend(agent.quota_windows.iter().map(|window| {
        let text = format!("{} (reported at {})", window.text(), window.reported_at);
        ("quota", text)
    }));
    lines
}

fn gate(agent: &AgentView) -> String {
    match &agent.gate {
        Some(gate) => format!("on, to {}, with the key of {}", gate.base_url, gate.key),
        None if agent.can_have_gate => "off".to_owned(),
        None => "none: it is not known how its model is called through one".to_owned(),
    }
}

fn abilities(agent: &AgentView) -> Vec<Line> {
    let Some(can) = agent.can else {
        return Vec::new();
    };
    let all = [
        (can.tools, "our tools"),
        (can.resume, "resumes its own session"),
        (can.live, "receives messages while it works"),
        (can.approvals, "asks for approval"),
        (can.usage, "reports usage"),
    ];
    let list = |is_so: bool| {
        let chosen = all.iter().filter(|(can, _)| *can == is_so);
        chosen.map(|(_, what)| *what).collect::<Vec<_>>().join(", ")
    };
    vec![("can", list(true)), ("cannot", list(false))]
}

fn version(agent: &AgentView) -> String {
    let tried = agent.versions_tried.as_ref().map_or_else(
        || "not tested, from its documentation only".to_owned(),
        |tried| format!("tested: {tried}"),
    );
    match (&agent.version, &agent.version_note) {
        (Some(version), Some(note)) => format!("{version}, {note}"),
        (Some(version), None) => format!("{version} ({tried})"),
        (None, Some(note)) => format!("unknown: {note} ({tried})"),
        (None, None) => tried,
    }
}

fn preset_lines(preset: &Preset, agent: &AgentView) -> Vec<Line> {
    let about = &preset.about;
    let profile = |name: &str, profile: &Profile| {
        if let Some(why) = agent.unsupported_profiles.get(&Word::read(name)) {
            return format!("refused: {why}");
        }
        let how = profile
            .args
            .iter()
            .chain(&profile.mode)
            .cloned()
            .collect::<Vec<_>>()
            .join(" ");
        match (profile.about.as_str(), how.as_str()) {
            ("", "") => "no options added".to_owned(),
            ("", how) => how.to_owned(),
            (about, "") => about.to_owned(),
            (about, how) => format!("{about} ({how})"),
        }
    };
    let plain = |text: &str| text.replace('`', "");
    let mut lines = vec![
        ("our tools", plain(&about.tools)),
        ("resumes", plain(&about.resumes)),
        ("read", profile("read", &preset.permissions.read)),
        ("edit", profile("edit", &preset.permissions.edit)),
        ("full", profile("full", &preset.permissions.full)),
        (
            "directory",
            [about.directory_files.join(", "), plain(&about.directory)]
                .iter()
                .filter(|text| !text.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join(": "),
        ),
        ("variables", preset.env_pass.join(" ")),
    ];
    lines.extend(about.notes.iter().map(|note| ("note", plain(note))));
    lines.extend(about.all_limits().map(|limit| ("limit", plain(&limit))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{CanView, SignInView};

    fn value(agent: &AgentView, label: &str) -> Option<String> {
        let found = lines(agent, None).into_iter();
        let mut found = found.filter(|(name, _)| *name == label);
        found.next().map(|(_, value)| value)
    }

    fn agent() -> AgentView {
        AgentView {
            name: "mine".to_owned(),
            harness: "plain".to_owned(),
            source: "c.toml".to_owned(),
            ..AgentView::default()
        }
    }

    #[test]
    fn missing_program_is_explained() {
        let missing = agent();
        assert_eq!(value(&missing, "agent").as_deref(), Some("mine"));
        assert_eq!(
            value(&missing, "harness").as_deref(),
            Some("plain (declared in c.toml)")
        );
        assert_eq!(value(&missing, "program").as_deref(), Some("not found"));
        let broken = AgentView {
            problem: Some("it is a directory".to_owned()),
            ..agent()
        };
        assert_eq!(
            value(&broken, "program").as_deref(),
            Some("it is a directory")
        );
        let own = AgentView {
            found: true,
            ..agent()
        };
        assert_eq!(value(&own, "program").as_deref(), Some("adj itself"));
    }

    #[test]
    fn unknown_facts_have_no_line() {
        for label in [
            "signed in",
            "can",
            "cannot",
            "limit",
            "quota",
            "permissions",
        ] {
            assert_eq!(value(&agent(), label), None, "{label}");
        }
    }

    #[test]
    fn abilities_are_divided() {
        let some = AgentView {
            can: Some(CanView {
                tools: true,
                usage: true,
                ..CanView::default()
            }),
            ..agent()
        };
        assert_eq!(
            value(&some, "can").as_deref(),
            Some("our tools, reports usage")
        );
        assert!(value(&some, "cannot").is_some_and(|list| list.ends_with("asks for approval")));
    }

    #[test]
    fn sign_in_and_gate_are_never_certain_without_a_fact() {
        let found = |by: Option<&str>| {
            let sign_in = SignInView {
                found: by.is_some(),
                by: by.map(str::to_owned),
                how: "run login".to_owned(),
            };
            value(
                &AgentView {
                    sign_in: Some(sign_in),
                    ..agent()
                },
                "signed in",
            )
        };
        assert_eq!(
            found(Some("~/.key")).as_deref(),
            Some("probably: found ~/.key")
        );
        assert_eq!(found(None).as_deref(), Some("probably not: run login"));
        let off = AgentView {
            can_have_gate: true,
            ..agent()
        };
        assert_eq!(value(&off, "gate").as_deref(), Some("off"));
        assert!(value(&agent(), "gate").is_some_and(|gate| gate.starts_with("none: ")));
    }
}
