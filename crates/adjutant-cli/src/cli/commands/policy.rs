//! `adj policy`: lists the policies in effect, checks which would answer a command, tries others on
//! recorded approvals, and trusts those of a repository.

use super::run::resolve_directory;
use crate::cli::args::PolicyCommand;
use crate::cli::context::{Context, read_text};
use crate::cli::details::person;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail, fail_hint};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::text;
use crate::view::{
    ChangedPolicy, CheckPolicies, ListPolicies, PassedPolicyView, PolicyChangeView, PolicyView,
    TriedApproval, TrustPolicies, TrustPolicyChange, TryPolicies, Word,
};
use adjutant_core::policy::PolicyDecision;
use std::path::Path;

/// Lists the policies, or tries those of a file.
pub(crate) async fn policy(what: Option<&PolicyCommand>, cx: &Context) -> CommandResult {
    match what {
        None => list(cx).await,
        Some(PolicyCommand::Check {
            agent,
            tool,
            permissions,
            dir,
            command,
        }) => {
            let directory = resolve_directory(dir.as_deref())?;
            let permissions = permissions.as_ref().map(|word| Word::Unknown(word.clone()));
            check(
                CheckPolicies {
                    command: command_line(command),
                    directory,
                    agent: agent.clone(),
                    tool: tool.clone(),
                    permissions,
                },
                cx,
            )
            .await
        }
        Some(PolicyCommand::Try { file, last }) => try_file(file, *last, cx).await,
        Some(PolicyCommand::Trust {
            change: Some(change),
            ..
        }) => trust_change(change, cx).await,
        Some(PolicyCommand::Trust { dir, change: None }) => trust(dir.as_deref(), cx).await,
    }
}

fn style(decision: Option<PolicyDecision>) -> Style {
    match decision {
        Some(PolicyDecision::Allow) => Style::Good,
        Some(PolicyDecision::Deny) => Style::Bad,
        Some(PolicyDecision::Ask) | None => Style::Attention,
    }
}

async fn list(cx: &Context) -> CommandResult {
    let directory = resolve_directory(None).ok();
    let list = cx.hub.call(&ListPolicies { directory }).await?;
    if cx.out.json {
        cx.out.print_json(&list)?;
        return Ok(Exit::Done);
    }
    let of_repository = list
        .repository
        .iter()
        .flat_map(|repository| &repository.policies);
    if list.policies.is_empty() && list.repository.is_none() && list.change.is_none() {
        cx.out.print_message("no policies are in effect; they are [[policies]] of the configuration file (adj config path)")?;
        return Ok(Exit::Done);
    }
    let is_all = list
        .repository
        .as_ref()
        .is_none_or(|repository| repository.why_not().is_none());
    let row = |policy: &PolicyView| -> Vec<Cell> {
        // Without trust, one that allows has no effect.
        let is_ignored =
            !is_all && policy.decision == PolicyDecision::Allow && policy.name.starts_with("repo.");
        let last = policy
            .last_answered_at
            .as_ref()
            .map(|at| cx.time(at))
            .unwrap_or_default();
        vec![
            painted(&policy.name, Style::Strong),
            if is_ignored {
                painted("(allow)", Style::Dim)
            } else {
                painted(policy.decision.as_str(), style(policy.decision.known()))
            },
            plain(&policy.answers.to_string()),
            plain(&last),
            plain(&text::line(&conditions(policy))),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.policies.iter().chain(of_repository).map(row).collect();
    let columns = [
        Column::always("POLICY"),
        Column::always("DECISION"),
        Column::always("ANSWERS"),
        Column::optional("LAST", 0),
        Column::always("WHAT"),
    ];
    if !rows.is_empty() {
        cx.out
            .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    }
    if let Some(problem) = &list.problem {
        cx.out.print_message(&format!(
            "the configuration cannot be used; the policies of its last valid state apply: {}",
            text::line(problem)
        ))?;
    }
    if let Some(repository) = &list.repository {
        let why = repository.why_not().unwrap_or_else(|| {
            format!(
                "the policies of {}/.adjutant.toml are in effect",
                repository.directory
            )
        });
        cx.out.print_message(&text::line(&why))?;
    }
    if let Some(change) = &list.change {
        cx.out.print_message(&text::line(&change.summary()))?;
        cx.out.print_message("until then, a request is allowed only if the policies above and the changed ones allow it")?;
        for line in change_lines(change) {
            cx.out.print_message(&line)?;
        }
        cx.out.suggest(&trust_command(&change.change))?;
    }
    Ok(Exit::Done)
}

fn trust_command(change: &str) -> String {
    format!("adj policy trust --change {}", text::line(change))
}

/// Lists what a change removed and added, one policy a line.
fn change_lines(change: &PolicyChangeView) -> Vec<String> {
    let line = |changed: &ChangedPolicy| {
        let ChangedPolicy {
            policy,
            is_added,
            permits,
        } = changed;
        let sign = if *is_added { '+' } else { '-' };
        let effect = if *permits { " (permits more)" } else { "" };
        text::line(&format!(
            "  {sign} {} {}: {}{effect}",
            policy.decision.as_str(),
            policy.name,
            conditions(policy)
        ))
    };
    change.policies.iter().map(line).collect()
}

fn conditions(policy: &PolicyView) -> String {
    if policy.conditions.is_empty() {
        return "every request".to_owned();
    }
    let parts: Vec<String> = policy
        .conditions
        .iter()
        .map(|(key, texts)| format!("{key}: {}", texts.join(" | ")))
        .collect();
    parts.join("; ")
}

/// Returns the command line of words. One word is a command line already.
fn command_line(words: &[String]) -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b))
    };
    let quoted = |word: &String| {
        if is_plain(word) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    if let [line] = words {
        line.clone()
    } else {
        words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

async fn check(call: CheckPolicies, cx: &Context) -> CommandResult {
    let checked = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&checked)?;
        return Ok(Exit::Done);
    }
    let decision = checked
        .decision
        .as_ref()
        .and_then(|decision| decision.known());
    let by = checked
        .policy
        .as_deref()
        .map(text::line)
        .unwrap_or_default();
    let answer = match decision {
        Some(PolicyDecision::Allow) => format!("policy {by} allows it"),
        Some(PolicyDecision::Deny) => format!("policy {by} denies it"),
        Some(PolicyDecision::Ask) => format!("asked: policy {by} says so"),
        None => "asked: no policy decides about it".to_owned(),
    };
    cx.out
        .print_line(&cx.out.paint.apply(style(decision), &answer))?;
    let row = |passed: &PassedPolicyView| -> Vec<Cell> {
        let shown = painted(passed.decision.as_str(), style(passed.decision.known()));
        vec![
            painted(&passed.policy, Style::Strong),
            shown,
            plain(&text::line(&passed.why)),
        ]
    };
    let rows: Vec<Vec<Cell>> = checked.passed.iter().map(row).collect();
    if !rows.is_empty() {
        let columns = [
            Column::always("OTHER POLICY"),
            Column::always("DECISION"),
            Column::always("WHY NOT"),
        ];
        cx.out
            .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    }
    let (agent, tool) = (text::line(&checked.agent), text::line(&checked.tool));
    cx.out.print_message(&format!(
        "for a request of {agent} with {} permissions and the tool {tool}",
        checked.permissions.as_str()
    ))?;
    if let Some(why) = &checked.repository {
        cx.out.print_message(&text::line(why))?;
    }
    if checked.has_waiting_change {
        cx.out.print_message(
            "a change of the policies waits for you, and only restricts until then: adj policy",
        )?;
    }
    Ok(Exit::Done)
}

async fn try_file(file: &Path, last: u32, cx: &Context) -> CommandResult {
    let opened = std::fs::File::open(file)
        .map_err(|error| fail(cli_codes::IO, format!("{}: {error}", file.display())))?;
    let text = read_text(opened, "the configuration", &file.display().to_string())?;
    let trial = cx
        .hub
        .call(&TryPolicies {
            text,
            file: Some(file.display().to_string()),
            limit: Some(last),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&trial)?;
        return Ok(Exit::Done);
    }
    let row = |tried: &TriedApproval| -> Vec<Cell> {
        let decision = tried
            .decision
            .as_ref()
            .map_or("ask", |decision| decision.as_str());
        let recorded = match (&tried.recorded, &tried.recorded_by) {
            (Some(recorded), Some(by)) => format!("{recorded} by {}", person(by)),
            _ => String::new(),
        };
        vec![
            painted(&tried.number, Style::Strong),
            plain(&tried.run_name),
            painted(
                decision,
                style(
                    tried
                        .decision
                        .as_ref()
                        .and_then(|decision| decision.known()),
                ),
            ),
            plain(tried.policy.as_deref().unwrap_or("")),
            plain(&text::cut(&text::line(&recorded), 30)),
            plain(&text::line(&tried.what)),
            plain(&why(tried)),
        ]
    };
    let rows: Vec<Vec<Cell>> = trial.approvals.iter().map(row).collect();
    let columns = [
        Column::always("NO"),
        Column::optional("RUN", 0),
        Column::always("DECISION"),
        Column::always("POLICY"),
        Column::optional("RECORDED", 1),
        Column::always("WHAT"),
        Column::always("WHY"),
    ];
    if !rows.is_empty() {
        cx.out
            .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    }
    let count = text::count(rows.len() as u64, "recorded approval", "recorded approvals");
    cx.out.print_message(&format!(
        "these policies would answer {} of {count}",
        trial.answered
    ))?;
    Ok(Exit::Done)
}

/// Says why a request would be asked: what the nearest policy lacks.
fn why(tried: &TriedApproval) -> String {
    match (&tried.policy, tried.passed.first()) {
        (None, Some(nearest)) => text::line(&format!("{}: {}", nearest.policy, nearest.why)),
        _ => String::new(),
    }
}

async fn trust_change(change: &str, cx: &Context) -> CommandResult {
    let trusted = cx
        .hub
        .call(&TrustPolicyChange {
            change: change.to_owned(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&trusted)?;
    } else {
        let count = text::count(trusted.policies.len() as u64, "change", "changes");
        let file = text::line(&trusted.file);
        cx.out.print_line(&format!(
            "{} trusted {count} of the policies of {file}",
            cx.out.paint.apply(Style::Good, "✓")
        ))?;
        for line in change_lines(&trusted) {
            cx.out.print_message(&line)?;
        }
    }
    Ok(Exit::Done)
}

async fn trust(dir: Option<&Path>, cx: &Context) -> CommandResult {
    if dir.is_none()
        && let Some(change) = cx.hub.call(&ListPolicies::default()).await?.change
    {
        let hint = format!(
            "review it with adj policy, then {}; for the repository's policies: adj policy trust .",
            trust_command(&change.change)
        );
        return Err(fail_hint(
            cli_codes::USAGE,
            "a change of the policies in your configuration waits: name what you trust",
            hint,
        ));
    }
    let directory = resolve_directory(Some(dir.unwrap_or(Path::new("."))))?;
    let path = Path::new(&directory).join(".adjutant.toml");
    let opened = std::fs::File::open(&path)
        .map_err(|error| fail(cli_codes::IO, format!("{}: {error}", path.display())))?;
    let text = read_text(opened, "the policies", &path.display().to_string())?;
    let trusted = cx.hub.call(&TrustPolicies { directory, text }).await?;
    if cx.out.json {
        cx.out.print_json(&trusted)?;
    } else {
        let count = text::count(trusted.policies, "policy", "policies");
        let place = text::line(&path.display().to_string());
        cx.out.print_line(&format!(
            "{} trusted {count} of {place}, {} of which allow",
            cx.out.paint.apply(Style::Good, "✓"),
            trusted.allowing
        ))?;
    }
    Ok(Exit::Done)
}
