//! Decides about actions for which an agent needs permission: by the run's profile, or by the run's
//! parent, which is shown the whole action.

use crate::harness::step::{ChangedCall, Decision, Permission, Question};
use crate::hub_client::{Client, random_hex};
use crate::view::{
    Ask, AskTogether, ErrorView, OperationView, ReadRequest, RequestApproval, RequestView,
    WithdrawRequest, Word,
};
use crate::{files, text};
use adjutant_core::policy::{Operation, StatedPath};
use adjutant_core::{DecisionKind, RequestStateKind, hex, limits, shorten};
use sha2::{Digest, Sha256};
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Longest text of a changed call in a question, in bytes.
const CHANGED_BYTES_MAX: usize = 4 * 1024;
/// How long one call waits for an answer, in milliseconds; the next call follows at once.
const WAIT_MS: u64 = 10 * 60 * 1000;

/// Decides what needs no approval: Adjutant's tools, edits in the run's directory with `edit`, and
/// everything with `full`.
#[must_use]
pub(super) fn at_once(permission: &Permission, permissions: &str, cwd: &Path) -> Option<Decision> {
    let edits = &permission.edits;
    let is_edit = || !edits.is_empty() && edits.iter().all(|file| lies_within(cwd, file));
    (permission.is_own_tool || permissions == "full" || permissions == "edit" && is_edit())
        .then_some(Decision::Allow)
}

/// Returns whether a file, which may not exist yet, is in a directory after links are resolved.
/// Files of git do not count, because hooks and configuration are programs that run later.
fn lies_within(dir: &Path, file: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else {
        return false;
    };
    let Some((real, there)) = files::existing_part(file) else {
        return false;
    };
    let of_git = |path: &Path| {
        path.components()
            .any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
    };
    let Ok(below) = real.strip_prefix(&dir) else {
        return false;
    };
    !of_git(below) && !of_git(file.strip_prefix(there).unwrap_or(file))
}

/// Returns the requested operation with its links resolved.
fn resolve_links(operation: Operation, cwd: &Path) -> OperationView {
    let path = |StatedPath { stated, .. }| StatedPath {
        real: files::real_path(Path::new(&stated)),
        stated,
    };
    let Operation {
        paths, directory, ..
    } = operation;
    let (paths, directory) = (paths.into_iter().map(path).collect(), directory.map(path));
    OperationView::from(Operation {
        paths,
        directory,
        run_directory: files::real_path(cwd),
        ..operation
    })
}

/// Returns a tool's input as it is shown: whole, or if it is too long its beginning, its end and
/// its hash.
fn preview(input: String) -> Option<String> {
    if input.len() <= limits::PREVIEW_BYTES_MAX {
        return Some(input).filter(|input| !input.is_empty());
    }
    let head = shorten::head(&input, limits::PREVIEW_BYTES_MAX / 2);
    let tail = shorten::tail(&input, limits::PREVIEW_BYTES_MAX / 4);
    let hash = hex(Sha256::digest(&input));
    let (left_out, all) = (input.len() - head.len() - tail.len(), input.len());
    Some(format!(
        "{head}\n[adj: {left_out} of {all} bytes are left out here; sha256 of all: {hash}]\n{tail}"
    ))
}

/// Requests an approval and waits for the decision. Everything but an approval is a denial. `None`:
/// it was withdrawn.
pub(super) async fn ask(
    client: Client,
    permission: Permission,
    cwd: &Path,
    withdrawn: CancellationToken,
) -> Option<Decision> {
    let asked = RequestApproval {
        action: format!("use {}", permission.tool),
        preview: preview(permission.input),
        context: Some("the agent asks before it continues".to_owned()),
        blocking: true,
        operation: Some(resolve_links(*permission.operation, cwd)),
        ..RequestApproval::default()
    };
    // Not cancelled by a withdrawal, because the request can be withdrawn only after it was made.
    let request = match client.call_with_key(&asked, &random_hex::<16>()).await {
        Ok(request) => request,
        Err(error) => {
            return Some(Decision::Deny(format!(
                "the approval could not be requested: {error}"
            )));
        }
    };
    let message_id = request.message_id.clone();
    let decision = tokio::select! {
        biased;
        () = withdrawn.cancelled() => None,
        decision = wait_for_decision(&client, request) => Some(decision),
    };
    if decision.is_none()
        // An answer in the meantime has no effect.
        && let Err(error) = client.call_with_key(&WithdrawRequest { message_id }, &random_hex::<16>()).await
    {
        tracing::info!(%error, "a request cannot be withdrawn");
    }
    decision
}

/// Asks an agent's questions and waits until each is answered. `None`: they were withdrawn.
/// `Some(None)`: one of them has no answer.
pub(super) async fn elicit(
    client: Client,
    questions: Vec<Question>,
    withdrawn: CancellationToken,
) -> Option<Option<Vec<String>>> {
    let ask = |Question {
                   text,
                   context,
                   options,
               }| Ask {
        question: text,
        context,
        options,
        blocking: true,
        ..Ask::default()
    };
    let mut asks: Vec<Ask> = questions.into_iter().map(ask).collect();
    let key = random_hex::<16>();
    let asked = match asks.len() {
        1 => client
            .call_with_key(&asks.remove(0), &key)
            .await
            .map(|request| vec![request]),
        _ => client
            .call_with_key(
                &AskTogether {
                    questions: asks,
                    clarification: None,
                },
                &key,
            )
            .await
            .map(|list| list.requests),
    };
    let requests = match asked {
        Ok(requests) => requests,
        Err(error) => {
            tracing::warn!(%error, "the agent's questions cannot be asked");
            return Some(None);
        }
    };
    let message_ids: Vec<String> = requests
        .iter()
        .map(|request| request.message_id.clone())
        .collect();
    let all = async {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(answer_to(&client, request).await?);
        }
        Some(answers)
    };
    let answers = tokio::select! {
        biased;
        () = withdrawn.cancelled() => None,
        answers = all => Some(answers),
    };
    if !matches!(answers, Some(Some(_))) {
        for message_id in message_ids {
            // Some of them may be answered already.
            if let Err(error) = client
                .call_with_key(&WithdrawRequest { message_id }, &random_hex::<16>())
                .await
            {
                tracing::info!(%error, "a question cannot be withdrawn");
            }
        }
    }
    answers
}

/// Waits for the answer to a question. `None`: there is none.
async fn answer_to(client: &Client, request: RequestView) -> Option<String> {
    match wait_until_settled(client, request).await {
        Ok(request) => request.reply.answer,
        Err(error) => {
            tracing::warn!(%error, "waiting for an answer failed");
            None
        }
    }
}

/// Reports to the parent that an allowed call has changed. Nothing waits for an answer.
pub(crate) async fn report_change(client: Client, changed: ChangedCall) {
    let ChangedCall { tool, allowed, now } = changed;
    let report = Ask {
        question: format!(
            "{} changed after it was approved: is that all right? If not, cancel the run",
            text::line(&tool)
        ),
        context: Some(format!(
            "approved:\n{}\n\nnow:\n{}",
            shorten::to_bytes(&allowed, CHANGED_BYTES_MAX),
            shorten::to_bytes(&now, CHANGED_BYTES_MAX)
        )),
        blocking: false,
        ..Ask::default()
    };
    if let Err(error) = client.call_with_key(&report, &random_hex::<16>()).await {
        tracing::warn!(%error, "the change of an approved call cannot be reported");
    }
}

/// Waits until a request is settled. Also reads an answer that a policy gave at once, which is
/// revocable until then.
async fn wait_until_settled(
    client: &Client,
    mut request: RequestView,
) -> Result<RequestView, ErrorView> {
    loop {
        request = client
            .call(&ReadRequest {
                message_id: request.message_id.clone(),
                wait_ms: WAIT_MS,
            })
            .await?;
        if request.status != RequestStateKind::Pending {
            return Ok(request);
        }
    }
}

/// Waits until a request is decided.
async fn wait_for_decision(client: &Client, request: RequestView) -> Decision {
    let request = match wait_until_settled(client, request).await {
        Ok(request) => request,
        Err(error) => return Decision::Deny(format!("there is no decision: {error}")),
    };
    let words = request
        .reply
        .reason
        .filter(|words| !words.trim().is_empty());
    match request.reply.decision.as_ref().map(Word::known) {
        Some(Some(DecisionKind::Approved)) => Decision::Allow,
        Some(_) => Decision::Deny(words.unwrap_or_else(|| "it was denied".to_owned())),
        None => Decision::Deny(format!(
            "there is no decision: the request is {}",
            request.status
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn only_real_edits_inside_the_directory_need_no_approval() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("work");
        std::fs::create_dir_all(dir.join("src")).expect("a directory");
        std::fs::create_dir_all(dir.join(".git/hooks")).expect("a directory");
        symlink(home.path(), dir.join("link")).expect("a link");
        symlink(home.path().join("not-there"), dir.join("dangling")).expect("a link");
        symlink(dir.join(".git"), dir.join("git-link")).expect("a link");
        let decides = |files: &[&str], permissions: &str| {
            let edits: Vec<PathBuf> = files.iter().map(|file| dir.join(file)).collect();
            let operation = Box::default();
            let permission = Permission {
                id: "1".to_owned(),
                tool: "edit".to_owned(),
                input: String::new(),
                is_own_tool: false,
                edits,
                operation,
            };
            at_once(&permission, permissions, &dir).is_some()
        };
        assert!(decides(&["a.txt"], "edit") && decides(&["src/new/deep/b.txt", "a.txt"], "edit"));
        for outside in [
            "link/.bashrc",
            "link/new/x",
            "dangling",
            ".git/hooks/pre-commit",
            ".git/config",
            "git-link/config",
            "src/.git/config",
            "/etc/passwd",
        ] {
            assert!(
                !decides(&[outside], "edit") && !decides(&["a.txt", outside], "edit"),
                "{outside}"
            );
            assert!(decides(&[outside], "full"));
        }
        assert!(!decides(&[], "edit") && !decides(&["a.txt"], "read"));
        let real = |file: &str| files::real_path(&dir.join(file));
        let top = dir.canonicalize().expect("a directory");
        assert_eq!(
            real("src/new/b"),
            Some(top.join("src/new/b").display().to_string())
        );
        assert_eq!(
            real("link/x"),
            Some(top.with_file_name("x").display().to_string()),
            "where the link leads"
        );
        assert_eq!((real("dangling"), real("new/../x")), (None, None));
    }

    #[test]
    fn oversized_preview_shows_both_ends() {
        assert_eq!(preview("x".to_owned()).as_deref(), Some("x"));
        assert_eq!(preview(String::new()), None);
        let long = format!("begin {} end", "é".repeat(300_000));
        let shown = preview(long).expect("something");
        assert!(
            shown.len() <= limits::PREVIEW_BYTES_MAX
                && shown.starts_with("begin ")
                && shown.ends_with(" end")
        );
        assert!(
            shown.contains("of 600010 bytes are left out here; sha256 of all: "),
            "{}",
            &shown[shown.len() / 2..shown.len() / 2 + 200]
        );
    }
}
