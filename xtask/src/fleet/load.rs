//! The load: runs that ask, and posts to a chat, each call through a random hub.

use super::calls::{Hubs, call};
use super::ledger::{Shared, lock};
use super::waits;
use crate::lab::{Lab, Result};
use crate::random::Random;
use adjutant_api::view::{
    AnswerOne, AnswerRequests, Dispatch, ErrorView, Resume, Say, StartChat, codes,
};
use adjutant_core::RunStateKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const LOOK_EVERY: Duration = Duration::from_millis(100);

pub async fn start_chat(hubs: &[Arc<Lab>]) -> Result<()> {
    call(
        hubs,
        &mut Random::new(0),
        &StartChat {
            title: "fleet".to_owned(),
            ..StartChat::default()
        },
        "chat",
    )
    .await?;
    Ok(())
}

/// Posts until it is stopped.
pub async fn posts(hubs: Hubs, ledger: Shared, mut random: Random, stopped: watch::Receiver<bool>) {
    for number in 0.. {
        if *stopped.borrow() {
            return;
        }
        let text = format!("post {number}");
        let say = Say {
            chat_id: Some(1),
            message: Some(text.clone()),
            ..Say::default()
        };
        let posted = call(&hubs, &mut random, &say, &text).await;
        lock(&ledger).record_post(text, posted);
        tokio::time::sleep(LOOK_EVERY / 4).await;
    }
}

/// Drives one run after another until it is stopped.
pub async fn runs(
    hubs: Hubs,
    ledger: Shared,
    journal: PathBuf,
    lane: usize,
    mut random: Random,
    stopped: watch::Receiver<bool>,
) {
    for number in 0.. {
        if *stopped.borrow() {
            return;
        }
        let key = format!("lane-{lane}-{number}");
        if let Err(problem) = one_run(&hubs, &ledger, &journal, &key, &mut random).await {
            lock(&ledger).problems.push(format!("{key}: {problem}"));
            return;
        }
    }
}

fn is_over(error: &ErrorView) -> bool {
    [codes::CONFLICT, codes::RUN_FINISHED].contains(&error.code.as_str())
}

fn described(error: ErrorView) -> String {
    format!("{}: {error}", error.code)
}

async fn one_run(
    hubs: &Hubs,
    ledger: &Shared,
    journal: &Path,
    key: &str,
    random: &mut Random,
) -> std::result::Result<(), String> {
    let script = format!(
        "journal {} begin\nask \"first of {key}?\"\nask \"second of {key}?\"\ndone {key}\n",
        journal.display()
    );
    let order = Dispatch {
        agent: "echo".to_owned(),
        prompt: script,
        cwd: hubs[0].dir.path().display().to_string(),
        ..Dispatch::default()
    };
    let run = call(hubs, random, &order, key)
        .await
        .map_err(described)?
        .identity
        .run_id;
    {
        let mut ledger = lock(ledger);
        ledger.runs.insert(key.to_owned(), (run.clone(), order));
        ledger.progress += 1;
    }
    // One fault after another can end many attempts of a run. It must finish when they are over.
    loop {
        let waited = waits::for_run(hubs, ledger, random, &run).await?;
        if waited.ended.iter().any(|ended| {
            ended.identity.run_id == run && ended.condition.state == RunStateKind::Finished
        }) {
            return Ok(());
        }
        for request in &waited.needs {
            answer(
                hubs,
                ledger,
                random,
                &request.message_id,
                format!("re: {}", request.content.question),
            )
            .await?;
        }
        for stopped in waited.stopped.iter().filter(|_| waited.needs.is_empty()) {
            // Its runner was cut off, or a process of it was killed.
            let resume = Resume {
                run: run.clone(),
                ..Resume::default()
            };
            match call(
                hubs,
                random,
                &resume,
                &format!("resume-{run}-{}", stopped.identity.attempt),
            )
            .await
            {
                Ok(_) => lock(ledger).progress += 1,
                Err(error) if is_over(&error) => {}
                Err(error) => return Err(described(error)),
            }
        }
        // A wait can end with an event that needs nothing.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Answers a request, for whose answer another caller already waits.
async fn answer(
    hubs: &Hubs,
    ledger: &Shared,
    random: &mut Random,
    request: &str,
    answer: String,
) -> std::result::Result<(), String> {
    let reader = tokio::spawn(waits::for_answer(
        Arc::clone(hubs),
        Random::new(random.below(u64::MAX)),
        request.to_owned(),
    ));
    let one = AnswerOne {
        message_id: Some(request.to_owned()),
        answer: answer.clone(),
        ..AnswerOne::default()
    };
    let is_accepted = match call(
        hubs,
        random,
        &AnswerRequests { answers: vec![one] },
        &format!("answer-{request}"),
    )
    .await
    {
        Ok(_) => {
            let mut ledger = lock(ledger);
            ledger.answers.insert(request.to_owned(), answer.clone());
            ledger.progress += 1;
            true
        }
        // The question was closed with its attempt.
        Err(error) if is_over(&error) => false,
        Err(error) => return Err(described(error)),
    };
    waits::ended(ledger, reader, request, is_accepted.then_some(answer)).await
}
