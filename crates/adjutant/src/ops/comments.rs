//! Comments on lines of a run's changes, sent to the run as one message.

use super::{Caller, OpError, Ops, lookup};
use crate::git;
use crate::view::{CommentOnRun, MessageView, SendToRun};
use adjutant_core::merge::{LineComment, comments_message};
use adjutant_core::{Action, Denied};

/// Most comments of one message.
const COMMENTS_MAX: usize = 100;

impl Ops {
    /// Sends comments on lines of a run's newest snapshot to the run, with each line quoted.
    ///
    /// # Errors
    /// Unknown, foreign or finished; no snapshot; a file or line does not exist; git failed.
    pub async fn comment(&self, caller: Caller, call: CommentOnRun) -> Result<MessageView, OpError> {
        Self::check(&caller.who, Action::Message)?;
        if call.comments.is_empty() || call.comments.len() > COMMENTS_MAX {
            return Err(Denied::invalid("comments", format!("name 1 to {COMMENTS_MAX}")).into());
        }
        let run = self.store.read(|connection| lookup::run(connection, &caller.who, Action::Message, &call.run))?;
        let scratch = self.scratch_of(&run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let newest = all.last().ok_or_else(|| Denied::conflict("run", format!("{} has no snapshot yet", run.name)))?;
        let mut comments = Vec::new();
        for comment in call.comments {
            if comment.text.trim().is_empty() {
                return Err(Denied::invalid("text", "is empty").into());
            }
            let unknown = |what: &str| Denied::invalid("comments", format!("{:?} {what} in snapshot {}", comment.path, newest.n));
            let Some(text) = scratch.file_of(&newest.commit, &comment.path).await? else { return Err(unknown("is not a file").into()) };
            let at = usize::try_from(comment.line).ok().and_then(|line| line.checked_sub(1));
            let Some(quoted) = at.and_then(|at| text.lines().nth(at)) else {
                return Err(unknown(&format!("has no line {}", comment.line)).into());
            };
            comments.push(LineComment { path: comment.path, line: comment.line, quoted: Some(quoted.to_owned()), text: comment.text });
        }
        drop(scratch);
        self.send(caller, SendToRun { run: run.id.to_string(), text: comments_message(&comments) }).await
    }
}
