//! `adj policy`: lists the policies in effect, tries others on recorded approvals, and trusts those of a repository.

use super::run::resolve_directory;
use crate::cli::args::PolicyCommand;
use crate::cli::context::{Context, read_text};
use crate::cli::details::person;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::text;
use crate::view::{ListPolicies, PolicyView, TriedApproval, TrustPolicies, TryPolicies};
use adjutant_core::policy::PolicyDecision;
use std::path::Path;

/// Lists the policies, or tries those of a file.
pub async fn policy(what: Option<&PolicyCommand>, cx: &Context) -> CommandResult {
    match what {
        None => list(cx).await,
        Some(PolicyCommand::Try { file, last }) => try_file(file, *last, cx).await,
        Some(PolicyCommand::Trust { dir }) => trust(dir, cx).await,
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
    let of_repository = list.repository.iter().flat_map(|repository| &repository.policies);
    if list.policies.is_empty() && list.repository.is_none() {
        cx.out.print_message("no policies are in effect; they are [[policies]] of the configuration file (adj config path)")?;
        return Ok(Exit::Done);
    }
    let is_all = list.repository.as_ref().is_none_or(|repository| repository.why_not().is_none());
    let row = |policy: &PolicyView| -> Vec<Cell> {
        // Without trust, one that allows has no effect.
        let is_ignored = !is_all && policy.decision == PolicyDecision::Allow && policy.name.starts_with("repo.");
        let last = policy.last_answered_at.as_ref().map(|at| cx.time(at)).unwrap_or_default();
        vec![
            painted(&policy.name, Style::Strong),
            if is_ignored { painted("(allow)", Style::Dim) } else { painted(policy.decision.as_str(), style(policy.decision.known())) },
            plain(&policy.answers.to_string()),
            plain(&last),
            plain(&text::line(&conditions(policy))),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.policies.iter().chain(of_repository).map(row).collect();
    let columns =
        [Column::always("POLICY"), Column::always("DECISION"), Column::always("ANSWERS"), Column::optional("LAST", 0), Column::always("WHAT")];
    if !rows.is_empty() {
        cx.out.print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    }
    if let Some(problem) = &list.problem {
        cx.out.print_message(&format!("the configuration cannot be used; the policies of its last valid state apply: {}", text::line(problem)))?;
    }
    if let Some(repository) = &list.repository {
        let why = repository.why_not().unwrap_or_else(|| format!("the policies of {}/.adjutant.toml are in effect", repository.directory));
        cx.out.print_message(&text::line(&why))?;
    }
    Ok(Exit::Done)
}

fn conditions(policy: &PolicyView) -> String {
    if policy.conditions.is_empty() {
        return "every request".to_owned();
    }
    let parts: Vec<String> = policy.conditions.iter().map(|(key, texts)| format!("{key}: {}", texts.join(" | "))).collect();
    parts.join("; ")
}

async fn try_file(file: &Path, last: u32, cx: &Context) -> CommandResult {
    let opened = std::fs::File::open(file).map_err(|error| fail(cli_codes::IO, format!("{}: {error}", file.display())))?;
    let text = read_text(opened, "the configuration", &file.display().to_string())?;
    let trial = cx.hub.call(&TryPolicies { text, file: Some(file.display().to_string()), limit: Some(last) }).await?;
    if cx.out.json {
        cx.out.print_json(&trial)?;
        return Ok(Exit::Done);
    }
    let row = |tried: &TriedApproval| -> Vec<Cell> {
        let decision = tried.decision.as_ref().map_or("ask", |decision| decision.as_str());
        let recorded = match (&tried.recorded, &tried.recorded_by) {
            (Some(recorded), Some(by)) => format!("{recorded} by {}", person(by)),
            _ => String::new(),
        };
        vec![
            painted(&tried.number, Style::Strong),
            plain(&tried.run_name),
            painted(decision, style(tried.decision.as_ref().and_then(|decision| decision.known()))),
            plain(tried.policy.as_deref().unwrap_or("")),
            plain(&text::cut(&text::line(&recorded), 30)),
            plain(&text::line(&tried.what)),
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
    ];
    if !rows.is_empty() {
        cx.out.print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    }
    let count = text::count(rows.len() as u64, "recorded approval", "recorded approvals");
    cx.out.print_message(&format!("these policies would answer {} of {count}", trial.answered))?;
    Ok(Exit::Done)
}

async fn trust(dir: &Path, cx: &Context) -> CommandResult {
    let directory = resolve_directory(Some(dir))?;
    let path = Path::new(&directory).join(".adjutant.toml");
    let opened = std::fs::File::open(&path).map_err(|error| fail(cli_codes::IO, format!("{}: {error}", path.display())))?;
    let text = read_text(opened, "the policies", &path.display().to_string())?;
    let trusted = cx.hub.call(&TrustPolicies { directory, text }).await?;
    if cx.out.json {
        cx.out.print_json(&trusted)?;
    } else {
        let count = text::count(trusted.policies, "policy", "policies");
        let place = text::line(&path.display().to_string());
        cx.out.print_line(&format!("{} trusted {count} of {place}, {} of which allow", cx.out.paint.apply(Style::Good, "✓"), trusted.allowing))?;
    }
    Ok(Exit::Done)
}
