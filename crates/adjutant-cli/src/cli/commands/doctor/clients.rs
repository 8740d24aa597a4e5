//! Checks of the entries in the files of MCP clients.

use super::check::{Check, broken, good, note};
use crate::config::text_variable;
use crate::integrations::{
    CLIENTS, Change, McpClient, OwnProgram, Plan, PlanError, Scope, SkillChange, SkillPlan,
    file_of, find_trace, on_path, plan_install, plan_skill,
};
use std::path::Path;

/// Checks the entries of the clients that are found.
pub(super) fn check() -> Vec<Check> {
    let program = match OwnProgram::find() {
        Ok(program) => program,
        Err(error) => {
            return vec![note(
                "clients",
                format!("unknown: cannot find its own path: {error}"),
                "is /proc mounted?",
            )];
        }
    };
    let mut survey = ClientSurvey::default();
    for client in CLIENTS {
        if file_of(client, &Scope::User).is_some() && find_trace(client).is_some() {
            survey.add(client, plan_install(client, &Scope::User, &program));
        }
    }
    survey.into_checks()
}

/// The clients that were found, by the state of their entries.
#[derive(Default)]
struct ClientSurvey {
    connected: Vec<&'static str>,
    others: Vec<&'static str>,
    problems: Vec<Check>,
}

impl ClientSurvey {
    /// Adds a client. `plan`: what installing its entry would change.
    fn add(&mut self, client: &'static McpClient, plan: Result<Plan, PlanError>) {
        match plan {
            Ok(Plan {
                change: Change::Add(_),
                ..
            }) => self.others.push(client.name),
            Ok(Plan {
                change: Change::Update(_),
                file,
                command,
                ..
            }) => self
                .problems
                .push(outdated(client, &file.path, command.as_deref())),
            Ok(Plan {
                disabled: Some(fix),
                file,
                ..
            }) => self.problems.push(disabled(client, &file.path, fix)),
            Ok(_) => {
                self.connected.push(client.name);
                self.problems.extend(outdated_skill(client));
            }
            Err(error) => self.problems.push(unusable(client, &error)),
        }
    }

    /// Returns a summary, if there is something to summarize, and the problems.
    fn into_checks(self) -> Vec<Check> {
        let Self {
            connected,
            others,
            problems,
        } = self;
        let part = |label: &str, names: &[&str]| {
            (!names.is_empty()).then(|| format!("{label}: {}", names.join(", ")))
        };
        let parts: Vec<String> = [
            part("connected", &connected),
            part("not connected", &others),
        ]
        .into_iter()
        .flatten()
        .collect();
        let summary = if parts.is_empty() {
            problems.is_empty().then(|| good("clients", "none found"))
        } else if connected.is_empty() {
            Some(note("clients", parts.join("; "), "adj install"))
        } else {
            Some(good("clients", parts.join("; ")))
        };
        summary.into_iter().chain(problems).collect()
    }
}

fn disabled(client: &'static McpClient, file: &Path, fix: String) -> Check {
    let message = format!(
        "{}: its entry is disabled ({})",
        client.name,
        file.display()
    );
    Check {
        client: Some(client.id),
        ..note("client", message, fix)
    }
}

/// Reports a skill of another version beside an entry that is current.
fn outdated_skill(client: &'static McpClient) -> Option<Check> {
    let Ok(Some(SkillPlan {
        change: SkillChange::Update,
        file,
    })) = plan_skill(client, &Scope::User)
    else {
        return None;
    };
    let message = format!(
        "{}: its skill is from another version of adj ({})",
        client.name,
        file.path.display()
    );
    Some(Check {
        client: Some(client.id),
        ..note("client", message, format!("adj install {}", client.id))
    })
}

/// Reports an entry that starts another program, or lacks a field such as the time limit of calls.
fn outdated(client: &'static McpClient, file: &Path, command: Option<&str>) -> Check {
    let (name, file) = (client.name, file.display());
    let fix = format!("adj install {}", client.id);
    let missing = command.filter(|command| !is_there(command));
    let found = match missing {
        Some(command) => broken(
            "client",
            format!("{name}: its entry starts {command}, which does not exist ({file})"),
            fix,
        ),
        None => note(
            "client",
            format!(
                "{name}: its entry starts another adj, or lacks a field such as the time limit of calls ({file})"
            ),
            fix,
        ),
    };
    Check {
        client: Some(client.id),
        ..found
    }
}

fn is_there(command: &str) -> bool {
    if command.contains('/') {
        return Path::new(command).exists();
    }
    on_path(command, &text_variable("PATH").unwrap_or_default()).is_some()
}

fn unusable(client: &McpClient, error: &PlanError) -> Check {
    let message = format!("{}: {error}", client.name);
    match error {
        PlanError::Duplicate { .. } => broken(
            "client",
            message,
            "keep one of them: a model would see each tool twice",
        ),
        PlanError::Format { .. } => broken(
            "client",
            message,
            format!("correct the file, then: adj install {}", client.id),
        ),
        PlanError::Taken { .. } => note(
            "client",
            message,
            format!(
                "remove or rename that entry, then: adj install {}",
                client.id
            ),
        ),
        PlanError::NoFile { .. }
        | PlanError::NoProjectFile { .. }
        | PlanError::NoSkill { .. }
        | PlanError::File(_) => note(
            "client",
            message,
            format!("adj install --print {} prints the entry", client.id),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Finding;
    use super::*;

    fn found(survey: ClientSurvey) -> Vec<(Finding, String)> {
        let checks = survey.into_checks().into_iter();
        checks.map(|check| (check.finding, check.message)).collect()
    }

    #[test]
    fn one_connected_client_is_enough() {
        let survey = ClientSurvey {
            connected: vec!["A", "B"],
            others: vec!["C"],
            problems: vec![broken("client", "D: twice", "remove one")],
        };
        assert_eq!(
            found(survey),
            [
                (
                    Finding::Good,
                    "connected: A, B; not connected: C".to_owned()
                ),
                (Finding::Broken, "D: twice".to_owned()),
            ]
        );
        let survey = ClientSurvey {
            others: vec!["C"],
            ..ClientSurvey::default()
        };
        assert_eq!(
            found(survey),
            [(Finding::Note, "not connected: C".to_owned())]
        );
    }

    #[test]
    fn problems_of_all_clients_need_no_summary() {
        assert_eq!(
            found(ClientSurvey::default()),
            [(Finding::Good, "none found".to_owned())]
        );
        let survey = ClientSurvey {
            problems: vec![note("client", "D: disabled", "enable it")],
            ..ClientSurvey::default()
        };
        assert_eq!(found(survey), [(Finding::Note, "D: disabled".to_owned())]);
    }
}
