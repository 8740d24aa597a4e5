//! Comments on lines of a run's changes, sent to the run as one message.

use super::{Caller, OpError, Ops, lookup};
use crate::clock::{self, rfc3339};
use crate::git;
use crate::view::{CommentOnRun, CommentedView, Delivery, MessageView, Retry};
use adjutant_core::merge::{LineComment, comments_message, follow_up_task};
use adjutant_core::{Action, Denied, RunState};
use std::path::Path;

/// Maximum number of comments of one message.
const COMMENTS_MAX: usize = 100;

impl Ops {
    /// Sends comments on lines of a run's newest snapshot to the run, with each line quoted. A stopped run is resumed with them. A
    /// finished run never changes: a new run with its agent and profile follows it in its directory.
    ///
    /// # Errors
    /// Unknown or foreign; no snapshot; a file or line does not exist; the workspace of a finished run is gone; git failed.
    pub async fn comment(
        &self,
        caller: Caller,
        call: CommentOnRun,
    ) -> Result<CommentedView, OpError> {
        Self::check(&caller.who, Action::Message)?;
        if let Some(earlier) = self.stored_reply(&caller)? {
            return Ok(earlier);
        }
        if call.comments.is_empty() || call.comments.len() > COMMENTS_MAX {
            return Err(Denied::invalid("comments", format!("name 1 to {COMMENTS_MAX}")).into());
        }
        let run = self
            .store
            .read(|connection| lookup::run(connection, &caller.who, Action::Message, &call.run))?;
        let scratch = self.scratch_of(&run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let newest = all
            .last()
            .ok_or_else(|| Denied::conflict("run", format!("{} has no snapshot yet", run.name)))?;
        let mut comments = Vec::new();
        for comment in call.comments {
            if comment.text.trim().is_empty() {
                return Err(Denied::invalid("text", "is empty").into());
            }
            let unknown = |what: &str| {
                Denied::invalid(
                    "comments",
                    format!("{:?} {what} in snapshot {}", comment.path, newest.n),
                )
            };
            let Some(text) = scratch.file_of(&newest.commit, &comment.path).await? else {
                return Err(unknown("is not a file").into());
            };
            let at = usize::try_from(comment.line)
                .ok()
                .and_then(|line| line.checked_sub(1));
            let Some(quoted) = at.and_then(|at| text.lines().nth(at)) else {
                return Err(unknown(&format!("has no line {}", comment.line)).into());
            };
            comments.push(LineComment {
                path: comment.path,
                line: comment.line,
                quoted: Some(quoted.to_owned()),
                text: comment.text,
            });
        }
        let has_tree = scratch.has_tree() && Path::new(&run.cwd).is_dir();
        drop(scratch);
        if !matches!(run.state, RunState::Finished(_)) {
            return self
                .send_comments(caller, run.id, comments_message(&comments), call.env)
                .await;
        }
        if let Some(runner) = self.runner_of(&run)? {
            let problem = format!(
                "{} has finished, and its workspace is on the runner {runner}; start it again: adj retry {} PROMPT",
                run.name, run.name
            );
            return Err(Denied::conflict("run", problem).into());
        }
        if !has_tree {
            let problem = format!(
                "{} has finished and its workspace is removed; start it again: adj retry {} PROMPT",
                run.name, run.name
            );
            return Err(Denied::conflict("run", problem).into());
        }
        let (from, sent_at) = (caller.who.to_string(), rfc3339(clock::now()));
        let text = follow_up_task(&run.name, &run.task, &comments);
        let retry = Retry {
            run: run.id.to_string(),
            prompt: Some(text.clone()),
            env: call.env,
        };
        let follow_up = self
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
        self.store_reply(
            caller,
            CommentedView {
                message,
                is_resumed: false,
                follow_up: Some(follow_up.name),
            },
        )
        .await
    }
}
