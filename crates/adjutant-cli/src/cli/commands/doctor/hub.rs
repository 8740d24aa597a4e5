//! Checks of what only the hub knows: the hub itself, its stores, webhooks, agents and clock.

use super::check::{Check, broken, good, note};
use super::launchers;
use crate::cli::age;
use crate::cli::context::{Context, now};
use crate::config::{Config, Home, dispatch_env};
use crate::hub_client::{VERSION, unresponsive_hub};
use crate::text;
use crate::view::{
    AgentList, AgentView, CheckLogStore, ErrorView, GetHub, HubView, ListAgents, ListPolicies,
    ListRuns, LogStoreCheck, WebhookView, codes,
};
use adjutant_core::units::duration;
use std::time::{Duration, Instant};

/// Stored times may be this far in the future before the clock counts as wrong, in seconds.
const CLOCK_AHEAD_S_MAX: i64 = 60;

/// Runs the checks. If the hub does not answer, there is only one.
pub(super) async fn check(cx: &Context) -> Vec<Check> {
    if let Some(error) = unresponsive_hub(&cx.home).await {
        return vec![broken("hub", error.message, error.hint.unwrap_or_default())];
    }
    let began = Instant::now();
    let view = match cx.hub.call(&GetHub {}).await {
        Ok(view) => view,
        Err(error) => {
            let fix = fix_of(&error, &cx.home);
            return vec![broken("hub", error.message, fix)];
        }
    };
    let mut checks = vec![state(&view, began.elapsed())];
    checks.extend(store(&view));
    // The hub may have been started with a different configuration than this shell has.
    let config = Config::load(&cx.home);
    if let Ok(config) = &config {
        checks.extend(log_store(cx, config).await);
        // Only the leader launches runners.
        let listens = view.url.is_some() || view.leader.is_some();
        checks.extend(launchers::check(config, listens));
    }
    let seen_here = config.err().map(|error| error.to_string());
    checks.extend(problems_of_hub(&view, seen_here.as_deref()));
    checks.extend(view.webhooks.iter().map(webhook));
    checks.extend(agents(cx, &view).await);
    checks.push(clock(cx, view.clock.as_deref()).await);
    checks
}

/// Checks the hub's version, and says what it is. `took`: how long its answer took.
fn state(view: &HubView, took: Duration) -> Check {
    if view.version != VERSION {
        return broken(
            "hub",
            format!("runs version {}, but this is {VERSION}", view.version),
            "adj stop; the next command starts the current version",
        );
    }
    let at = |prefix: &str, url: Option<&String>| {
        url.map_or_else(String::new, |url| format!("{prefix}{url}"))
    };
    let what = match &view.leader {
        Some(leader) => format!(
            "standby; the leader is the hub on {}{}",
            leader.name,
            at(" at ", leader.url.as_ref())
        ),
        None if view.live_runs_max == 0 => "standby; no leader is known".to_owned(),
        None => format!(
            "{} of at most {}, {} queued{}",
            text::count(view.live_runs, "live run", "live runs"),
            view.live_runs_max,
            view.queued_runs,
            at(", HTTP at ", view.url.as_ref())
        ),
    };
    let took = duration::of(took);
    good("hub", format!("OK, {took} (pid {}, {what})", view.pid))
}

/// Checks the database, and whether it was set back.
fn store(view: &HubView) -> Vec<Check> {
    let engine = if view.store == "PostgreSQL" {
        view.store.clone()
    } else {
        format!("SQLite {}", view.sqlite_version)
    };
    let mut checks = vec![match &view.store_problem {
        Some(problem) => broken(
            "store",
            problem.clone(),
            "check the PostgreSQL server; this hub waits for it",
        ),
        None => good("store", format!("OK ({engine})")),
    }];
    checks.extend(view.set_back.as_ref().map(|set_back| {
        note("store", set_back.summary(), "compare it with what callers and agents know; a synchronous standby prevents it (docs/postgres.md)")
    }));
    checks
}

/// Reports the hub's problems. `seen_here`: that of the configuration, which another check reports.
fn problems_of_hub(view: &HubView, seen_here: Option<&str>) -> Vec<Check> {
    view.problems
        .iter()
        .filter(|problem| seen_here != Some(problem.as_str()))
        .map(|problem| {
            broken(
                "hub",
                problem.clone(),
                "fix it, or run adj stop: the next hub uses this shell's configuration",
            )
        })
        .collect()
}

/// Checks the agents that the hub finds.
async fn agents(cx: &Context, view: &HubView) -> Vec<Check> {
    let call = ListAgents {
        env: dispatch_env(),
        ..ListAgents::default()
    };
    match cx.hub.call(&call).await {
        Ok(list) => found_agents(&list),
        // Reported above.
        Err(_) if !view.problems.is_empty() => vec![note(
            "agents",
            "unknown while the configuration has errors",
            "see above",
        )],
        Err(error) => {
            let fix = fix_of(&error, &cx.home);
            vec![broken("agents", error.message, fix)]
        }
    }
}

/// Names the agents that were found, and reports those that cannot start or are not signed in.
fn found_agents(list: &AgentList) -> Vec<Check> {
    let (found, missing): (Vec<&AgentView>, Vec<&AgentView>) =
        list.agents.iter().partition(|agent| agent.found);
    let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
    let mut checks = vec![good("agents", names.join(", "))];
    checks.extend(missing.iter().map(|agent| {
        let why = agent.problem.as_deref().unwrap_or("program not found");
        note(
            "agent",
            format!("{}: {why}", agent.name),
            format!("install it, or fix its command in {}", agent.source),
        )
    }));
    let signed_out = found.iter().filter_map(|agent| {
        let sign_in = agent.sign_in.as_ref().filter(|sign_in| !sign_in.found)?;
        Some((agent, sign_in))
    });
    checks.extend(signed_out.map(|(agent, sign_in)| {
        note(
            "agent",
            format!("{}: probably not signed in", agent.name),
            sign_in.how.clone(),
        )
    }));
    checks.extend(list.warnings.iter().map(|warning| {
        note(
            "config",
            warning.clone(),
            "adj config path prints the location of the file",
        )
    }));
    checks
}

/// Has the hub store, list, read and delete an object in the log store.
async fn log_store(cx: &Context, config: &Config) -> Option<Check> {
    let wanted = config.log_store.as_ref().map(ToString::to_string);
    let began = Instant::now();
    let LogStoreCheck { address, problem } = match cx.hub.call(&CheckLogStore {}).await {
        Ok(check) => check,
        // A hub of an earlier version cannot check it.
        Err(error) => {
            return wanted.map(|address| {
                note(
                    "log store",
                    format!("{address}: not checked: {}", error.message),
                    "adj stop, then try again",
                )
            });
        }
    };
    match (address, problem) {
        (None, _) => wanted.map(|address| {
            broken(
                "log store",
                format!("{address} is not used by this hub"),
                "adj stop; the next hub uses it",
            )
        }),
        (Some(address), Some(problem)) => {
            let fix = format!(
                "correct log_store, its credentials or their permissions; logs stay in {} until then",
                cx.home.logs_dir().display()
            );
            Some(broken("log store", format!("{address}: {problem}"), fix))
        }
        (Some(address), None) => Some(good(
            "log store",
            format!("OK, {} ({address})", duration::of(began.elapsed())),
        )),
    }
}

/// Returns the fix for a failed call. Hints that lead to this command are replaced.
fn fix_of(error: &ErrorView, home: &Home) -> String {
    let log = home.hub_log();
    match (error.code.as_str(), &error.hint) {
        (codes::UNREACHABLE, _) if !log.exists() => {
            "set ADJ_HOME to a directory that you can write to".to_owned()
        }
        (codes::UNREACHABLE | codes::INTERNAL, _) | (_, None) => {
            format!("see the hub's log: {}", log.display())
        }
        (_, Some(hint)) => hint.clone(),
    }
}

fn webhook(hook: &WebhookView) -> Check {
    let shown = format!("{}: {}", hook.place, hook.deliveries_text());
    let again = if hook.parked > 0 {
        "; then: adj webhooks retry"
    } else {
        ""
    };
    match &hook.problem {
        Some(problem) => note(
            "webhook",
            format!("{shown}; {problem}"),
            format!("check its receiver and [[webhooks]] in the configuration{again}"),
        ),
        None => good("webhook", shown),
    }
}

/// Checks that the wall clock is not behind stored times.
async fn clock(cx: &Context, set_lately: Option<&str>) -> Check {
    // The hub knows by how much, and that deadlines do not follow.
    if let Some(warning) = set_lately {
        return note(
            "clock",
            warning,
            "set the clock, for instance with NTP, and check adj inbox for what became due",
        );
    }
    // Unfinished runs come first, and the newest may be finished.
    let newest = match cx
        .hub
        .call(&ListRuns {
            all: true,
            limit: None,
            before: None,
        })
        .await
    {
        Ok(list) => list
            .runs
            .into_iter()
            .max_by(|a, b| a.times.created_at.cmp(&b.times.created_at)),
        Err(error) => {
            return broken(
                "clock",
                error.message,
                "this check needs a working adj ps -a",
            );
        }
    };
    let ahead = newest
        .and_then(|run| age::seconds_since(&run.times.created_at, now()))
        .map_or(0, |age| -age);
    if ahead > CLOCK_AHEAD_S_MAX {
        return broken(
            "clock",
            format!(
                "the newest run is {} in the future; the clock was set back",
                duration::age(ahead)
            ),
            "set the clock, for instance with NTP",
        );
    }
    good("clock", now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Checks whether a change of the policies waits for the person. `None`: none does, or the hub
/// cannot be asked, which another check reports.
pub(super) async fn policies(cx: &Context) -> Option<Check> {
    let change = cx.hub.call(&ListPolicies::default()).await.ok()?.change?;
    Some(note(
        "policies",
        change.summary(),
        "review it with adj policy",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::check::Finding;
    use super::*;
    use crate::view::{LeaderView, SignInView};

    fn current() -> HubView {
        HubView {
            version: VERSION.to_owned(),
            pid: 7,
            ..HubView::default()
        }
    }

    fn message(view: &HubView) -> String {
        let check = state(view, Duration::from_millis(3));
        assert_eq!(check.finding, Finding::Good);
        check.message
    }

    #[test]
    fn hub_says_whether_it_leads() {
        let leads = HubView {
            live_runs: 1,
            live_runs_max: 8,
            url: Some("http://localhost:1".to_owned()),
            ..current()
        };
        assert_eq!(
            message(&leads),
            "OK, 3ms (pid 7, 1 live run of at most 8, 0 queued, HTTP at http://localhost:1)"
        );
        assert_eq!(
            message(&current()),
            "OK, 3ms (pid 7, standby; no leader is known)"
        );
        let follows = HubView {
            leader: Some(LeaderView {
                name: "big".to_owned(),
                ..LeaderView::default()
            }),
            ..current()
        };
        assert_eq!(
            message(&follows),
            "OK, 3ms (pid 7, standby; the leader is the hub on big)"
        );
    }

    #[test]
    fn hub_of_another_version_is_broken() {
        let old = HubView {
            version: "0.0.1".to_owned(),
            leader: Some(LeaderView::default()),
            ..current()
        };
        let check = state(&old, Duration::ZERO);
        assert_eq!(check.finding, Finding::Broken);
        assert!(check.message.starts_with("runs version 0.0.1, but"));
    }

    #[test]
    fn problem_of_the_configuration_is_reported_once() {
        let view = HubView {
            problems: vec!["line 1: bad".to_owned(), "the disk is full".to_owned()],
            ..current()
        };
        let messages = |seen| -> Vec<String> {
            let checks = problems_of_hub(&view, seen).into_iter();
            checks.map(|check| check.message).collect()
        };
        assert_eq!(messages(Some("line 1: bad")), ["the disk is full"]);
        assert_eq!(messages(None).len(), 2);
    }

    #[test]
    fn agents_that_cannot_start_or_sign_in_are_reported() {
        let agent = |name: &str, found, sign_in: Option<bool>| AgentView {
            name: name.to_owned(),
            found,
            source: "c.toml".to_owned(),
            sign_in: sign_in.map(|found| SignInView {
                found,
                how: "run its login".to_owned(),
                by: None,
            }),
            ..AgentView::default()
        };
        let list = AgentList {
            agents: vec![
                agent("here", true, Some(true)),
                agent("out", true, Some(false)),
                agent("gone", false, Some(false)),
            ],
            warnings: vec!["unknown key".to_owned()],
        };
        let found: Vec<(Finding, String)> = found_agents(&list)
            .into_iter()
            .map(|check| (check.finding, check.message))
            .collect();
        assert_eq!(
            found,
            [
                (Finding::Good, "here, out".to_owned()),
                (Finding::Note, "gone: program not found".to_owned()),
                (Finding::Note, "out: probably not signed in".to_owned()),
                (Finding::Note, "unknown key".to_owned()),
            ]
        );
    }
}
