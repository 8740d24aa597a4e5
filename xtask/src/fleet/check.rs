//! Compares the acknowledged writes with the store.

use super::calls::call;
use super::ledger::{Shared, lock};
use super::site::Site;
use crate::lab::{Lab, Result};
use crate::random::Random;
use adjutant_api::view::{GetRun, ReadRequest, ShowChat};
use adjutant_core::{OutcomeKind, RunStateKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Entries of one page of a chat.
const PAGE: u32 = 200;

/// Checks everything, and ends the hubs and runners.
pub async fn check(site: &mut Site, hubs: &[Arc<Lab>], ledger: &Shared) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut random = Random::new(1);
    let (runs, answers, posts) = {
        let ledger = lock(ledger);
        (
            ledger.runs.clone(),
            ledger.answers.clone(),
            ledger.posts.clone(),
        )
    };
    if site.intruders() > 0 {
        problems.push(of_intruders(site, site.intruders()));
    }
    let ids: BTreeSet<&String> = runs.values().map(|(run, _)| run).collect();
    if ids.len() != runs.len() {
        problems.push("two keys refer to the same run".to_owned());
    }
    let mut attempts = BTreeMap::new();
    for (key, (run, order)) in &runs {
        let again = call(hubs, &mut random, order, key).await?;
        if again.identity.run_id != *run {
            problems.push(format!(
                "{key} repeated gave {} and not {run}",
                again.identity.run_id
            ));
        }
        let view = call(
            hubs,
            &mut random,
            &GetRun {
                run: run.clone(),
                ..GetRun::default()
            },
            "look",
        )
        .await?;
        attempts.insert(run.clone(), view.identity.attempt);
        let succeeded = view
            .condition
            .outcome
            .as_ref()
            .is_some_and(|outcome| *outcome == OutcomeKind::Succeeded);
        if view.condition.state != RunStateKind::Finished || !succeeded {
            problems.push(format!(
                "{key}: {run} is {} ({:?}, {:?})",
                view.condition.state, view.condition.outcome, view.condition.reason
            ));
        }
    }
    let stored = site.sql("SELECT count(*) FROM runs");
    if stored.trim() != runs.len().to_string() {
        problems.push(format!(
            "{} runs are stored, {} were acknowledged",
            stored.trim(),
            runs.len()
        ));
    }
    for (request, answer) in &answers {
        let read = call(
            hubs,
            &mut random,
            &ReadRequest {
                message_id: request.clone(),
                wait_ms: 0,
            },
            &format!("check-{request}"),
        )
        .await?;
        if read.reply.answer.as_ref() != Some(answer) {
            problems.push(format!(
                "{request} was answered {answer:?} and has {:?}",
                read.reply.answer
            ));
        }
    }
    problems.extend(check_posts(hubs, &posts).await?);
    problems.extend(check_journal(
        &std::fs::read_to_string(site.journal())?,
        &attempts,
    ));
    problems.extend(
        site.close()
            .await?
            .into_iter()
            .map(|process| format!("left running: {process}")),
    );
    Ok(problems)
}

/// Describes what hubs other than the leader have written.
pub fn of_intruders(site: &Site, count: u64) -> String {
    let what = site.sql("SELECT string_agg(what, ', ') FROM (SELECT what FROM campaign_intruders GROUP BY what ORDER BY min(at) LIMIT 8) AS first");
    format!("{count} statements of hubs that did not lead have written, such as {what}")
}

/// Each acknowledged post is there once, in order.
async fn check_posts(hubs: &[Arc<Lab>], posts: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = ShowChat {
            chat_id: 1,
            after: Some(after),
            limit: Some(PAGE),
            peek: true,
            ..ShowChat::default()
        };
        let page = call(hubs, &mut Random::new(2), &page, "look").await?;
        let Some(last) = page.messages.last() else {
            break;
        };
        after = last.seq;
        found.extend(page.messages.into_iter().map(|entry| entry.text));
    }
    let found: Vec<String> = found
        .into_iter()
        .filter(|text| text.starts_with("post "))
        .collect();
    Ok(if found == posts {
        Vec::new()
    } else {
        vec![format!(
            "{} posts were acknowledged, {} are there, or in another order",
            posts.len(),
            found.len()
        )]
    })
}

/// No attempt started twice, and none that the store does not know.
fn check_journal(journal: &str, attempts: &BTreeMap<String, u32>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut started = BTreeSet::new();
    for line in journal.lines() {
        let mut words = line.split(' ');
        let (Some(run), Some(attempt)) = (
            words.next(),
            words.next().and_then(|word| word.parse::<u32>().ok()),
        ) else {
            problems.push(format!("a line of the journal: {line:?}"));
            continue;
        };
        if !started.insert((run.to_owned(), attempt)) {
            problems.push(format!("attempt {attempt} of {run} started twice"));
        }
        if attempts.get(run).is_none_or(|last| attempt > *last) {
            problems.push(format!("attempt {attempt} of {run} is unknown"));
        }
    }
    problems
}
