//! The calls that actions make, and what is said when they end.

use super::TopSession;
use super::actions::{Action, Command, merge_result};
use super::model::Tone;
use crate::cli::out::Failure;
use crate::config::dispatch_env;
use crate::hub_client::Client;
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, Cancel, ConfirmNotified, DecisionWord, DiscardRun, ErrorView,
    MentionView, MergeRun, NotifiedRun, Pause, RequestView, Resume, Retry, Say,
};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::Instant;

/// How long the end waits for the replies to calls.
const REPLY_MAX: Duration = Duration::from_secs(5);

/// How a call about an item ended.
pub(super) struct TopReply {
    about: String,
    run_id: Option<String>,
    /// What was answered, whose text stays if it was not recorded.
    answered: Option<(Box<RequestView>, AnswerOne)>,
    outcome: Result<String, ErrorView>,
}

impl TopSession<'_> {
    /// Sends the actions that wait, and waits for all replies. Errors are printed.
    pub(super) async fn finish_calls(&mut self) -> Result<(), Failure> {
        for command in self.top.take_due(None) {
            self.execute(command);
        }
        let end = Instant::now() + REPLY_MAX;
        while !self.replies.is_empty() {
            match tokio::time::timeout_at(end, self.replies.next()).await {
                Ok(Some(TopReply {
                    outcome: Err(error),
                    ..
                })) => self
                    .cx
                    .out
                    .print_message(&format!("adj top: {}", text::line(&error.message)))?,
                Ok(_) => {}
                Err(_) => {
                    let count = text::count(self.replies.len() as u64, "action", "actions");
                    return self.cx.out.print_message(&format!(
                        "adj top: the hub has not confirmed {count}; see adj ps"
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn execute(&mut self, command: Command) {
        match command {
            // Ends the program before this.
            Command::Quit(_) => {}
            Command::CloseLog => self.log = None,
            Command::OpenLog { run_id } => self.read_log(run_id, None),
            Command::Answer { answer, about } => self.answer(answer, about),
            Command::Act {
                action,
                run_id,
                name,
            } => {
                let acted = act(self.cx.hub.clone(), action, run_id.clone(), name);
                self.send(run_id.clone(), Some(run_id), acted);
            }
            Command::Seen {
                run_id,
                name,
                cursor,
            } => self.confirm_seen(run_id, name, cursor),
            Command::Post { text, about } => self.post(text, &about),
            Command::Merge {
                run_id,
                name,
                mode,
                branch,
            } => {
                let call = MergeRun {
                    run: run_id.clone(),
                    mode: Some(mode.into()),
                    branch,
                    ..MergeRun::default()
                };
                let merged = merge(self.cx.hub.clone(), call, name);
                self.send(run_id.clone(), Some(run_id), merged);
            }
        }
    }

    fn answer(&mut self, answer: Box<AnswerOne>, about: Box<RequestView>) {
        let (number, name) = (&about.number, &about.run_name);
        let done = match answer.decision {
            None => format!("answered {number} of {name}"),
            Some(DecisionWord::Approve) => format!("approved {number} of {name}"),
            Some(DecisionWord::Deny) => format!("denied {number} of {name}"),
        };
        let call = AnswerRequests {
            answers: vec![(*answer).clone()],
        };
        let (request, run_id) = (about.message_id.clone(), Some(about.run_id.clone()));
        let answered = Some((about, *answer));
        let hub = self.cx.hub.clone();
        self.send_answer(request, run_id, answered, async move {
            hub.call(&call).await.map(|_| done)
        });
    }

    fn confirm_seen(&mut self, run_id: String, name: String, cursor: i64) {
        let call = ConfirmNotified {
            runs: vec![NotifiedRun {
                run_id: run_id.clone(),
                cursor,
            }],
            until: None,
        };
        let hub = self.cx.hub.clone();
        self.send(run_id.clone(), Some(run_id), async move {
            hub.call(&call)
                .await
                .map(|_| format!("marked {name} as seen"))
        });
    }

    fn post(&mut self, text: String, about: &MentionView) {
        let cwd = std::env::current_dir()
            .ok()
            .and_then(|dir| dir.to_str().map(str::to_owned))
            .unwrap_or_default();
        let say = Say {
            chat_id: Some(about.chat_id),
            message: Some(text),
            reply_to: Some(about.message.message_id.clone()),
            cwd,
            env: dispatch_env(),
            ..Say::default()
        };
        let done = format!("posted in chat {}", about.chat_id);
        let hub = self.cx.hub.clone();
        self.send(format!("chat {}", about.chat_id), None, async move {
            hub.call(&say).await.map(|_| done)
        });
    }

    /// Makes a call about an item. It is repeated while the hub is unreachable, and takes effect
    /// once.
    fn send(
        &mut self,
        about: String,
        run_id: Option<String>,
        call: impl Future<Output = Result<String, ErrorView>> + 'static,
    ) {
        self.send_answer(about, run_id, None, call);
    }

    fn send_answer(
        &mut self,
        about: String,
        run_id: Option<String>,
        answered: Option<(Box<RequestView>, AnswerOne)>,
        call: impl Future<Output = Result<String, ErrorView>> + 'static,
    ) {
        self.top.set_busy(&about, true);
        self.replies.push(Box::pin(async move {
            TopReply {
                about,
                run_id,
                answered,
                outcome: call.await,
            }
        }));
    }

    pub(super) fn take_reply(&mut self, reply: TopReply) {
        let TopReply {
            about,
            run_id,
            answered,
            outcome,
        } = reply;
        self.top.set_busy(&about, false);
        match outcome {
            Ok(done) => self.top.notify(Tone::Good, &format!("✓ {done}")),
            Err(error) => {
                let hint = error
                    .hint
                    .map(|hint| format!(" ({hint})"))
                    .unwrap_or_default();
                self.top
                    .notify(Tone::Bad, &format!("✗ {}{hint}", error.message));
                if let Some((request, answer)) = answered {
                    self.top.keep_text(request, &answer);
                }
            }
        }
        match run_id {
            Some(run_id) => {
                self.changed.insert(run_id);
            }
            None => self.is_all_changed = true,
        }
    }
}

/// Acts on a run. Returns what was done.
async fn act(hub: Client, action: Action, run: String, name: String) -> Result<String, ErrorView> {
    let done = format!("{} {name}", action.words().1);
    match action {
        Action::Pause => hub.call(&Pause { run }).await?,
        Action::Resume => {
            let call = Resume {
                run,
                resolution: None,
                next_step: None,
                choice: None,
                budget: None,
                env: dispatch_env(),
            };
            hub.call(&call).await?
        }
        Action::Retry => {
            let call = Retry {
                run,
                prompt: None,
                env: dispatch_env(),
            };
            let new = hub.call(&call).await?;
            return Ok(format!("{done}: {}", new.identity.name));
        }
        Action::Cancel => hub.call(&Cancel { run, reason: None }).await?,
        Action::Discard => {
            hub.call(&DiscardRun { run, force: false }).await?;
            return Ok(done);
        }
    };
    Ok(done)
}

/// Merges the changes of a run. A merge that changes nothing because of conflicts is an error.
async fn merge(hub: Client, call: MergeRun, name: String) -> Result<String, ErrorView> {
    let merged = hub.call(&call).await?;
    merge_result(&name, &merged).map_err(|refusal| ErrorView {
        message: refusal.to_string(),
        ..ErrorView::default()
    })
}
