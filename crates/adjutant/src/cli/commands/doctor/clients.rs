//! Checks of the entries in the files of MCP clients.

use super::{Check, broken, good, note};
use crate::clients::{
    CLIENTS, Change, McpClient, OwnProgram, Plan, PlanError, Scope, SkillChange, SkillPlan,
    file_of, find_trace, on_path, plan_install, plan_skill,
};
use crate::config::text_variable;
use std::path::Path;

/// Checks the entries of the clients that are found.
pub fn check() -> Vec<Check> {
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
    let mut checks = Vec::new();
    let (mut connected, mut others) = (Vec::new(), Vec::new());
    let found = CLIENTS
        .iter()
        .filter(|client| file_of(client, &Scope::User).is_some() && find_trace(client).is_some());
    for client in found {
        match plan_install(client, &Scope::User, &program) {
            Ok(Plan {
                change: Change::Add(_),
                ..
            }) => others.push(client.name),
            Ok(Plan {
                change: Change::Update(_),
                file,
                command,
                ..
            }) => {
                checks.push(outdated(client, &file.path, command.as_deref()));
            }
            Ok(Plan {
                disabled: Some(fix),
                file,
                ..
            }) => {
                let message = format!(
                    "{}: its entry is disabled ({})",
                    client.name,
                    file.path.display()
                );
                checks.push(Check {
                    client: Some(client.id),
                    ..note("client", message, fix)
                });
            }
            Ok(_) => {
                connected.push(client.name);
                if let Ok(Some(SkillPlan {
                    change: SkillChange::Update,
                    file,
                })) = plan_skill(client, &Scope::User)
                {
                    let message = format!(
                        "{}: its skill is from another version of adj ({})",
                        client.name,
                        file.path.display()
                    );
                    checks.push(Check {
                        client: Some(client.id),
                        ..note("client", message, format!("adj install {}", client.id))
                    });
                }
            }
            Err(error) => checks.push(unusable(client, &error)),
        }
    }
    let mut parts = Vec::new();
    if !connected.is_empty() {
        parts.push(format!("connected: {}", connected.join(", ")));
    }
    if !others.is_empty() {
        parts.push(format!("not connected: {}", others.join(", ")));
    }
    if !parts.is_empty() || checks.is_empty() {
        let shown = if parts.is_empty() {
            "none found".to_owned()
        } else {
            parts.join("; ")
        };
        let is_none = connected.is_empty() && !others.is_empty();
        checks.insert(
            0,
            if is_none {
                note("clients", shown, "adj install")
            } else {
                good("clients", shown)
            },
        );
    }
    checks
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
