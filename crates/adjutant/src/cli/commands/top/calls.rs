//! The calls that actions make, and what is said when they end.

use super::Session;
use super::actions::{Action, Command, merge_result};
use super::model::Tone;
use crate::cli::out::Failure;
use crate::config::dispatch_env;
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, Cancel, ConfirmNotified, DecisionWord, DiscardRun, ErrorView,
    MergeRun, NotifiedRun, Pause, RequestView, Resume, Retry, Say,
};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::Instant;

/// How long the end waits for the replies to calls.
const REPLY_MAX: Duration = Duration::from_secs(5);

/// How a call about an item ended.
pub(super) struct Reply {
    about: String,
    run_id: Option<String>,
    /// What was answered, whose text stays if it was not recorded.
    answered: Option<(Box<RequestView>, AnswerOne)>,
    outcome: Result<String, ErrorView>,
}

impl Session<'_> {
    /// Sends the actions that wait, and waits for all replies. Errors are printed.
    pub(super) async fn finish_calls(&mut self) -> Result<(), Failure> {
        for command in self.top.take_due(None) {
            self.execute(command);
        }
        let end = Instant::now() + REPLY_MAX;
        while !self.replies.is_empty() {
            match tokio::time::timeout_at(end, self.replies.next()).await {
                Ok(Some(Reply {
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
        let hub = self.cx.hub.clone();
        match command {
            // Ends the program before this.
            Command::Quit(_) => {}
            Command::CloseLog => self.log = None,
            Command::OpenLog { run_id } => self.read_log(run_id, None),
            Command::Answer { answer, about } => {
                let (number, name) = (about.number.clone(), about.run_name.clone());
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
                self.send_answer(request, run_id, answered, async move {
                    hub.call(&call).await.map(|_| done)
                });
            }
            Command::Act {
                action,
                run_id,
                name,
            } => {
                let run = run_id.clone();
                let acted = async move {
                    let done = format!("{} {name}", action.words().1);
                    let changed = match action {
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
                            hub.call(&Retry {
                                run,
                                prompt: None,
                                env: dispatch_env(),
                            })
                            .await?
                        }
                        Action::Cancel => hub.call(&Cancel { run, reason: None }).await?,
                        Action::Discard => {
                            return hub
                                .call(&DiscardRun { run, force: false })
                                .await
                                .map(|_| done);
                        }
                    };
                    let started = if action == Action::Retry {
                        format!(": {}", changed.name)
                    } else {
                        String::new()
                    };
                    Ok(done + &started)
                };
                self.send(run_id.clone(), Some(run_id), acted);
            }
            Command::Seen {
                run_id,
                name,
                cursor,
            } => {
                let call = ConfirmNotified {
                    runs: vec![NotifiedRun {
                        run_id: run_id.clone(),
                        cursor,
                    }],
                    until: None,
                };
                self.send(run_id.clone(), Some(run_id), async move {
                    hub.call(&call)
                        .await
                        .map(|_| format!("marked {name} as seen"))
                });
            }
            Command::Post { text, about } => {
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
                self.send(format!("chat {}", about.chat_id), None, async move {
                    hub.call(&say).await.map(|_| done)
                });
            }
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
                let merged = async move {
                    let merged = hub.call(&call).await?;
                    merge_result(&name, &merged).map_err(|message| ErrorView {
                        message,
                        ..ErrorView::default()
                    })
                };
                self.send(run_id.clone(), Some(run_id), merged);
            }
        }
    }

    /// Makes a call about an item. It is repeated while the hub is unreachable, and takes effect once.
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
            Reply {
                about,
                run_id,
                answered,
                outcome: call.await,
            }
        }));
    }

    pub(super) fn take_reply(&mut self, reply: Reply) {
        let Reply {
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
