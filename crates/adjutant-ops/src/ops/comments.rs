//! Comments on lines of a run's changes, sent to the run as one message.

use super::workspaces::runner_of;
use super::{Caller, OpError, Ops, lookup};
use crate::clock::{self, rfc3339};
use crate::git::{self, Scratch};
use crate::ops::runs::{RetryCall, RunControl};
use crate::ops::trees::Trees;
use crate::store::{Run, Store};
use crate::view::{CommentOnRun, CommentView, CommentedView, Delivery, MessageView, Retry};
use adjutant_core::merge::{LineComment, comments_message, follow_up_task};
use adjutant_core::{Action, Denied, RunState};
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of comments of one message.
const COMMENTS_MAX: usize = 100;

/// Comments on the changes of runs.
#[derive(Debug, Clone)]
pub struct CommentCall {
    store: Store,
    trees: Trees,
    control: RunControl,
    retry: RetryCall,
}

impl CommentCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
            control: RunControl::of(ops),
            retry: RetryCall::of(ops),
        }
    }

    /// Sends comments on lines of a run's newest snapshot to the run, with each line quoted. A
    /// stopped run is resumed with them. A finished run never changes: a new run with its agent and
    /// profile follows it in its directory.
    ///
    /// # Errors
    /// Unknown or foreign; no snapshot; a file or line does not exist; the workspace of a finished
    /// run is gone; git failed.
    pub async fn comment(
        &self,
        caller: Caller,
        call: CommentOnRun,
    ) -> Result<CommentedView, OpError> {
        lookup::check(&caller.who, Action::Message)?;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        check_count(call.comments.len())?;
        let run = self
            .store
            .read(|connection| lookup::run(connection, &caller.who, Action::Message, &call.run))?;
        let scratch = self.trees.scratch_of(&run).await?;
        let comments = quote_lines(&scratch, &run, call.comments).await?;
        let has_tree = scratch.has_tree() && Path::new(&run.cwd).is_dir();
        drop(scratch);
        if !matches!(run.state, RunState::Finished(_)) {
            return self
                .control
                .send_comments(caller, run.id, comments_message(&comments), call.env)
                .await;
        }
        self.refuse_without_tree(&run, has_tree)?;
        self.follow_with_comments(caller, run, &comments, call.env)
            .await
    }

    /// Refuses a finished run whose files are not here any more.
    fn refuse_without_tree(&self, run: &Run, has_tree: bool) -> Result<(), OpError> {
        let name = &run.name;
        let problem = if let Some(runner) = runner_of(&self.store, run)? {
            format!("{name} has finished, and its workspace is on the runner {runner}")
        } else if !has_tree {
            format!("{name} has finished and its workspace is removed")
        } else {
            return Ok(());
        };
        let problem = format!("{problem}; start it again: adj retry {name} PROMPT");
        Err(Denied::conflict("run", problem).into())
    }

    /// Starts a run that follows a finished one, with the comments as its task.
    async fn follow_with_comments(
        &self,
        caller: Caller,
        run: Run,
        comments: &[LineComment],
        env: BTreeMap<String, String>,
    ) -> Result<CommentedView, OpError> {
        let (from, sent_at) = (caller.who.to_string(), rfc3339(clock::now()));
        let text = follow_up_task(&run.name, &run.task, comments);
        let retry = Retry {
            run: run.id.to_string(),
            prompt: Some(text.clone()),
            env,
        };
        let follow_up = self
            .retry
            .retry_in(caller.of_step("retry"), retry, None, None)
            .await?;
        let message = MessageView {
            run_id: run.id.to_string(),
            run_name: run.name,
            from,
            text,
            sent_at,
            delivery: Delivery::Prompt.into(),
            ..MessageView::default()
        };
        caller
            .store_reply(
                &self.store,
                CommentedView {
                    message,
                    is_resumed: false,
                    follow_up: Some(follow_up.identity.name),
                },
            )
            .await
    }
}

fn check_count(comments: usize) -> Result<(), Denied> {
    if comments == 0 || comments > COMMENTS_MAX {
        return Err(Denied::invalid(
            "comments",
            format!("name 1 to {COMMENTS_MAX}"),
        ));
    }
    Ok(())
}

/// Quotes the lines of a run's newest snapshot to which comments belong.
async fn quote_lines(
    scratch: &Scratch,
    run: &Run,
    comments: Vec<CommentView>,
) -> Result<Vec<LineComment>, OpError> {
    let all = git::snapshots(scratch.repo(), run.id).await?;
    let newest = all
        .last()
        .ok_or_else(|| Denied::conflict("run", format!("{} has no snapshot yet", run.name)))?;
    let mut quoted = Vec::new();
    for comment in comments {
        if comment.text.trim().is_empty() {
            return Err(Denied::invalid("text", "is empty").into());
        }
        let file = scratch.file_of(&newest.commit, &comment.path).await?;
        quoted.push(quote_line_of(comment, file.as_deref(), newest.n)?);
    }
    Ok(quoted)
}

/// Quotes the line of a file to which a comment belongs. `file`: its text in the snapshot, if it is
/// a file there.
fn quote_line_of(
    comment: CommentView,
    file: Option<&str>,
    snapshot: u32,
) -> Result<LineComment, Denied> {
    let CommentView { path, line, text } = comment;
    let unknown = |what: &str| {
        Denied::invalid(
            "comments",
            format!("{path:?} {what} in snapshot {snapshot}"),
        )
    };
    let file = file.ok_or_else(|| unknown("is not a file"))?;
    let at = usize::try_from(line)
        .ok()
        .and_then(|line| line.checked_sub(1));
    let quoted = at
        .and_then(|at| file.lines().nth(at))
        .ok_or_else(|| unknown(&format!("has no line {line}")))?
        .to_owned();
    Ok(LineComment {
        path,
        line,
        quoted: Some(quoted),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(line: u32) -> CommentView {
        CommentView {
            path: "a b.rs".to_owned(),
            line,
            text: "why?".to_owned(),
        }
    }

    #[test]
    fn comment_quotes_its_line() {
        let quoted = quote_line_of(comment(2), Some("one\n two\n"), 4).expect("a line");
        assert_eq!(quoted.quoted.as_deref(), Some(" two"));
        assert_eq!(quoted.line, 2);
    }

    #[test]
    fn comment_on_a_missing_line_or_file_is_refused() {
        for line in [0, 3, u32::MAX] {
            let refused = quote_line_of(comment(line), Some("one\n two\n"), 4);
            let problem = refused.expect_err("refused").to_string();
            let expected = format!("\"a b.rs\" has no line {line} in snapshot 4");
            assert!(problem.contains(&expected), "{problem}");
        }
        let refused = quote_line_of(comment(1), None, 4);
        let problem = refused.expect_err("refused").to_string();
        assert!(
            problem.contains("\"a b.rs\" is not a file in snapshot 4"),
            "{problem}"
        );
    }

    #[test]
    fn number_of_comments_is_limited() {
        assert!(check_count(0).is_err());
        assert!(check_count(COMMENTS_MAX).is_ok());
        assert!(check_count(COMMENTS_MAX + 1).is_err());
    }
}
