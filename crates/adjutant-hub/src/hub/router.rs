//! The router: every call of the contract, and the calls of supervisors.

use super::auth::{Connection, authenticate};
use super::calls::{Calls, OF_PROCESS, bad, failed, from_supervisors, on, reply};
use super::connections::{Connections, Guarded};
use super::{Hub, Shared};
use crate::failpoint::failpoint;
use crate::link::{AskBudget, FactsStored, GetClosing, GetOrders, PostFacts, headers};
use crate::ops::{AttemptId, Cleaning, OpError};
use crate::process::peer::Peer;
use crate::sock;
use crate::store::{Counts, StoreError, counts};
use crate::view::{
    Adopt, AnswerRequests, Ask, AskAndWait, AskTogether, Cancel, CancelTask, ChangeBudget,
    ChangePool, CheckLogStore, CheckPolicies, Clean, CommentOnRun, ConfirmNotified, CreateToken,
    Delegate, DiffRun, DiscardRun, Dispatch, ErrorView, FollowUp, GetHub, GetRun, GetStats,
    GetTask, HandOver, HubView, ListAgents, ListAttention, ListGrants, ListPolicies, ListPools,
    ListRequests, ListRuns, ListTokens, ListWebhooks, LogStoreCheck, MergeRun, Pause, ReadEvents,
    ReadLogs, ReadRequest, ReadResult, ReadTogether, RequestApproval, Resume, Retry, RetryWebhooks,
    RevokeGrant, RevokeToken, SendToRun, SetStatus, StartTask, StopHub, StopWork, TrustPolicies,
    TrustPolicyChange, TryPolicies, UndoRun, UpdateTask, Wait, WebhookView, WithdrawRequest, codes,
};
use adjutant_core::{Action, Denied, Principal};
use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};

/// Largest body of a call, in bytes: enough for the longest prompt in JSON.
pub(super) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a call's body may take to arrive.
pub(super) const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// How long reading the state of a hub from a server may take.
const STORE_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest description of a configuration problem, in characters.
const PROBLEM_CHARS_MAX: usize = 1_000;

/// The listener of the hub's socket, and those that replace it after a removal.
struct HubListener {
    connections: Arc<Connections>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
}

impl Listener for HubListener {
    type Io = Guarded;
    type Addr = ();

    async fn accept(&mut self) -> (Guarded, ()) {
        loop {
            tokio::select! {
                biased;
                Some(listener) = self.renewed.recv() => self.listener = listener,
                stream = sock::accept(&mut self.listener) => match self.connections.admit(stream) {
                    Some(admitted) => return (admitted, ()),
                    None => tracing::debug!("a connection beyond the limit was closed"),
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Connected<IncomingStream<'_, HubListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, HubListener>) -> Self {
        Self::new(Peer::of(stream.io()), stream.io().line())
    }
}

/// Serves the socket until `closing` is notified. Calls in progress are then completed.
pub(super) async fn serve(
    hub: Arc<Hub>,
    calls: Arc<Calls>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
    closing: Arc<Notify>,
) -> io::Result<()> {
    let connections = Arc::clone(&hub.connections);
    serve_with(
        Router::new().fallback(call).with_state((hub, calls)),
        connections,
        listener,
        renewed,
        closing,
    )
    .await
}

/// Serves the socket with a router until `closing` is notified.
pub(super) async fn serve_with(
    router: Router,
    connections: Arc<Connections>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
    closing: Arc<Notify>,
) -> io::Result<()> {
    let listener = HubListener {
        connections,
        listener,
        renewed,
    };
    let service = router.into_make_service_with_connect_info::<Connection>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move { closing.notified().await })
        .await
}

/// Returns every call that the hub serves.
pub(super) fn calls() -> Calls {
    let mut router = Calls::default();
    router = on(router, |hub, caller, call: Dispatch| async move {
        hub.ops.dispatch(caller, call).await
    });
    router = on(router, |hub, caller, call: ListRuns| async move {
        // A long list would hold up other calls.
        let list = move || hub.ops.list_runs(&caller.who, &call);
        tokio::task::spawn_blocking(list)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    });
    router = on(router, |hub, caller, call: GetRun| async move {
        hub.ops.get_run(&caller, &call).await
    });
    router = on(router, |hub, caller, call: ReadResult| async move {
        hub.ops.read_result(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: DiffRun| async move {
        hub.ops.diff(&caller, &call).await
    });
    router = on(router, |hub, caller, call: UndoRun| async move {
        hub.ops.undo(caller, call).await
    });
    router = on(router, |hub, caller, call: MergeRun| async move {
        hub.ops.merge(caller, call).await
    });
    router = on(router, |hub, caller, call: CommentOnRun| async move {
        hub.ops.comment(caller, call).await
    });
    router = on(router, |hub, caller, call: DiscardRun| async move {
        hub.ops.discard(caller, call).await
    });
    router = on(router, |hub, caller, call: Cancel| async move {
        hub.ops.cancel(caller, call).await
    });
    router = on(router, |hub, caller, call: Retry| async move {
        hub.ops.retry(caller, call).await
    });
    router = on(router, |hub, caller, call: FollowUp| async move {
        hub.ops.follow_up(caller, call).await
    });
    router = on(router, |hub, caller, call: Pause| async move {
        hub.ops.pause(caller, call).await
    });
    router = on(router, |hub, caller, call: Resume| async move {
        hub.ops.resume(caller, call).await
    });
    router = on(router, |hub, caller, call: ChangeBudget| async move {
        hub.ops.change_budget(caller, call).await
    });
    router = on(router, |hub, caller, call: SendToRun| async move {
        hub.ops.send(caller, call).await
    });
    router = on(router, |hub, caller, call: SetStatus| async move {
        hub.ops.set_status(caller, call).await
    });
    router = on(router, |hub, caller, call: StopWork| async move {
        hub.ops.stop_work(caller, call).await
    });
    router = on(router, |hub, caller, call: ReadLogs| async move {
        hub.ops.logs(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: Ask| async move {
        hub.ops.ask(caller, call).await
    });
    router = on(router, |hub, caller, call: AskAndWait| async move {
        hub.ops.ask_and_wait(caller, call).await
    });
    router = on(router, |hub, caller, call: AskTogether| async move {
        hub.ops.ask_together(caller, call).await
    });
    router = on(router, |hub, caller, call: RequestApproval| async move {
        hub.ops.request_approval(caller, call).await
    });
    router = on(router, |hub, caller, call: Delegate| async move {
        hub.ops.delegate(caller, call).await
    });
    router = on(router, |hub, caller, call: ReadRequest| async move {
        hub.ops.read_request(caller, call).await
    });
    router = on(router, |hub, caller, call: WithdrawRequest| async move {
        hub.ops.withdraw_request(caller, call).await
    });
    router = on(router, |hub, caller, call: ReadTogether| async move {
        hub.ops.read_together(caller, call).await
    });
    router = on(router, |hub, caller, call: ListRequests| async move {
        hub.ops.list_requests(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: AnswerRequests| async move {
        hub.ops.answer(caller, call).await
    });
    router = on(router, |hub, caller, call: Wait| async move {
        hub.ops.wait(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: ListAttention| async move {
        hub.ops.list_attention(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: ConfirmNotified| async move {
        hub.ops.confirm_notified(caller, call).await
    });
    router = on(router, |hub, caller, call: ReadEvents| async move {
        hub.ops.events(&caller, &call).await
    });
    router = on(router, |hub, caller, call: ListAgents| async move {
        super::versions::list_agents(&hub, &caller.who, &call).await
    });
    router = on(router, |hub, caller, call: Adopt| async move {
        hub.ops.adopt(caller, call).await
    });
    router = on(router, |hub, caller, call: Clean| async move {
        let older_than_ms = i64::try_from(call.older_than_s)
            .unwrap_or(i64::MAX / 1000)
            .saturating_mul(1000);
        hub.ops
            .clean(
                caller,
                older_than_ms,
                &call.runs,
                Cleaning {
                    dry_run: call.dry_run,
                    force: call.force,
                },
            )
            .await
    });
    router = on(router, |hub, caller, call: StartTask| async move {
        hub.ops.start_task(caller, call).await
    });
    router = on(router, |hub, caller, call: GetTask| async move {
        hub.ops.get_task(&caller, &call).await
    });
    router = on(router, |hub, caller, call: UpdateTask| async move {
        hub.ops.update_task(caller, call).await
    });
    router = on(router, |hub, caller, call: CancelTask| async move {
        hub.ops.cancel_task(caller, call).await
    });
    router = super::chats::routes(router);
    router = super::peers::routes(router);
    router = on(router, |hub, caller, _: ListPools| async move {
        hub.ops.list_pools(&caller.who)
    });
    router = on(router, |hub, caller, call: GetStats| async move {
        hub.ops.stats(&caller.who, call).await
    });
    router = on(router, |hub, caller, call: ChangePool| async move {
        hub.ops.change_pool(caller, call).await
    });
    router = on(router, |hub, caller, call: ListPolicies| async move {
        hub.ops.list_policies(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: CheckPolicies| async move {
        hub.ops.check_policies(&caller.who, call)
    });
    router = on(router, |hub, caller, call: TryPolicies| async move {
        hub.ops.try_policies(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: TrustPolicyChange| async move {
        hub.ops.trust_policy_change(caller, call).await
    });
    router = on(router, |hub, caller, call: TrustPolicies| async move {
        hub.ops.trust_policies(caller, call).await
    });
    router = on(router, |hub, caller, call: ListGrants| async move {
        hub.ops.list_grants(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: RevokeGrant| async move {
        hub.ops.revoke_grant(caller, call).await
    });
    router = on(router, |hub, caller, _: ListWebhooks| async move {
        hub.ops.list_webhooks(&caller.who)
    });
    router = on(router, |hub, caller, call: RetryWebhooks| async move {
        hub.ops.retry_webhooks(caller, call).await
    });
    router = on(router, |hub, caller, call: CreateToken| async move {
        hub.ops.create_token(caller, call).await
    });
    router = on(router, |hub, caller, call: ListTokens| async move {
        hub.ops.list_tokens(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: RevokeToken| async move {
        hub.ops.revoke_token(caller, call).await
    });
    router = on(router, |hub, caller, _: GetHub| async move {
        let is_person = caller.who == Principal::Person;
        hub_view(&hub, is_person).await
    });
    router = on(router, |hub, caller, _: CheckLogStore| async move {
        manage(&caller.who)?;
        let checked = hub.ops.try_log_store().await;
        Ok(
            checked.map_or_else(LogStoreCheck::default, |(address, tried)| LogStoreCheck {
                address: Some(address),
                problem: tried.err(),
            }),
        )
    });
    router = on(router, |hub, caller, _: StopHub| async move {
        manage(&caller.who)?;
        let view = hub_view(&hub, false).await?;
        hub.listening.forget(hub.ops.home());
        hub.stop.notify_one();
        Ok(view)
    });
    router = on(router, |hub, caller, call: HandOver| async move {
        // Any parent may bring a newer version, which starts its own hub once this one has ended.
        if matches!(caller.who, Principal::Run(_)) {
            manage(&caller.who)?;
        }
        let view = hub_view(&hub, false).await?;
        if crate::client::is_older(&hub.version, &call.version) {
            tracing::info!(
                version = call.version,
                exe = call.exe,
                "a newer version takes over"
            );
            hub.handed_over
                .store(true, std::sync::atomic::Ordering::Relaxed);
            hub.stop.notify_one();
        }
        Ok(view)
    });
    router = from_supervisors(router, "/link/facts", facts);
    router = from_supervisors(router, "/link/orders", orders);
    router = from_supervisors(router, "/link/closing", closing);
    from_supervisors(router, "/link/budget", budget)
}

async fn call(
    State((hub, calls)): State<(Shared, Arc<Calls>)>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let _answering = connection.line().call();
    if !connection.line().has_place() {
        return too_many(&hub.connections);
    }
    let (parts, body) = request.into_parts();
    let response = match calls.get(parts.uri.path()) {
        Some(serve) if parts.method == Method::POST => match read_body(body).await {
            Err(()) => failed(&bad(&format!(
                "the body cannot be read; it may have {BODY_BYTES_MAX} bytes"
            ))),
            Ok(body) => match authenticate(&hub, &connection, &parts.headers) {
                Err(refusal) => *refusal,
                Ok(auth) => {
                    let is_person = auth.who == Principal::Person;
                    let response = serve(Arc::clone(&hub), auth, &parts.headers, &body).await;
                    if is_person {
                        with_missing_reports(&hub, with_problem(&hub, response))
                    } else {
                        response
                    }
                }
            },
        },
        _ => no_such_call(&hub, parts.uri.path()),
    };
    // The state of this process, and its end, do not depend on leadership.
    let is_of_process = parts
        .uri
        .path()
        .strip_prefix("/api/v1/")
        .is_some_and(|name| OF_PROCESS.contains(&name));
    if !is_of_process && !hub.leads().await {
        return add_version(&hub.version, failed(&does_not_lead()));
    }
    add_version(&hub.version, response)
}

/// The refusal of a hub that cannot confirm that it is the leader. The call is repeated with its key.
pub(super) fn does_not_lead() -> ErrorView {
    ErrorView {
        code: codes::CLOSING.to_owned(),
        message: "this hub cannot confirm that it is the leader".to_owned(),
        hint: None,
    }
}

/// Reads a call's body within the time limit.
pub(super) async fn read_body(body: axum::body::Body) -> Result<Bytes, ()> {
    match tokio::time::timeout(BODY_TIME_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// Refuses a connection beyond the limit, and closes it.
pub(super) fn too_many(connections: &Connections) -> Response {
    let message = format!(
        "the hub has {} busy connections, the maximum",
        connections.open_max()
    );
    let hint =
        "end some waiting commands (adj wait, adj logs -f, adj mcp), then try again".to_owned();
    let mut response = failed(&ErrorView {
        code: codes::LIMIT.to_owned(),
        message,
        hint: Some(hint),
    });
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Adds the configuration's problem to a response for the person, who alone can correct it.
pub(super) fn with_problem(hub: &Hub, mut response: Response) -> Response {
    let problem = hub
        .ops
        .config_problem()
        .map(|problem| problem.chars().take(PROBLEM_CHARS_MAX).collect::<String>());
    if let Some(value) = problem
        .and_then(|problem| HeaderValue::from_str(&crate::client::encode_name(&problem)).ok())
    {
        response
            .headers_mut()
            .insert(headers::CONFIG_PROBLEM, value);
    }
    response
}

/// Adds the names of the runs whose supervisors have not reported yet to a response for the person: their state may be old.
fn with_missing_reports(hub: &Hub, mut response: Response) -> Response {
    let names: String = hub
        .ops
        .names_without_report()
        .join(", ")
        .chars()
        .take(PROBLEM_CHARS_MAX)
        .collect();
    if !names.is_empty()
        && let Ok(value) = HeaderValue::from_str(&crate::client::encode_name(&names))
    {
        response.headers_mut().insert(headers::NO_REPORT, value);
    }
    response
}

/// Adds the hub's version to a response, so that a newer client can take over.
pub(super) fn add_version(version: &str, mut response: Response) -> Response {
    if let Ok(version) = HeaderValue::from_str(version) {
        response.headers_mut().insert(headers::VERSION, version);
    }
    response
}

fn no_such_call(hub: &Hub, path: &str) -> Response {
    let path: String = path.chars().take(100).collect();
    let view = ErrorView {
        code: codes::NOT_FOUND.to_owned(),
        message: format!("this hub (version {}) does not serve {path}", hub.version),
        hint: Some("adj stop ends it; the next command starts the current version".to_owned()),
    };
    failed(&view)
}

pub(super) fn manage(who: &Principal) -> Result<(), OpError> {
    match who {
        Principal::Person => Ok(()),
        Principal::Client(_) => Err(Denied::NotAllowed {
            who: "a client",
            action: Action::ManageHub.phrase(),
        }
        .into()),
        Principal::Run(_) => Err(Denied::NotAllowed {
            who: "a run",
            action: Action::ManageHub.phrase(),
        }
        .into()),
    }
}

/// What the state of a hub has from its store.
#[derive(Default)]
struct Stored {
    counts: Counts,
    webhooks: Vec<WebhookView>,
    /// The server of the store does not answer, so that the rest is unknown.
    is_away: bool,
}

/// Reads the store, for a limited time if it is on a server: callers check with this call whether the hub itself responds.
async fn stored(hub: &Shared, with_webhooks: bool) -> Result<Stored, OpError> {
    let (of, store) = (Arc::clone(hub), hub.ops.store().clone());
    let is_on_server = store.is_on_server();
    let read = move || -> Result<Stored, OpError> {
        let webhooks = if with_webhooks {
            of.ops.webhooks()?
        } else {
            Vec::new()
        };
        Ok(Stored {
            counts: store.read(counts)?,
            webhooks,
            is_away: false,
        })
    };
    if !is_on_server {
        return read();
    }
    match tokio::time::timeout(STORE_READ_TIMEOUT, tokio::task::spawn_blocking(read)).await {
        Ok(read) => read.map_err(|_| StoreError::Closed)?,
        Err(_) => Ok(Stored {
            is_away: true,
            ..Stored::default()
        }),
    }
}

async fn hub_view(hub: &Shared, with_webhooks: bool) -> Result<HubView, OpError> {
    let Stored {
        counts,
        webhooks,
        is_away,
    } = stored(hub, with_webhooks).await?;
    let config = hub.ops.config();
    let (live_runs_max, mut problems) = match &config {
        Ok(config) => (hub.ops.live_runs_max(config), Vec::new()),
        Err(error) => (
            hub.ops
                .live_runs_max(&crate::config::Config::builtin(hub.ops.home())),
            vec![error.to_string()],
        ),
    };
    problems.extend(hub.ops.log_store_problem());
    problems.extend(is_away.then(|| "PostgreSQL does not answer; calls wait for it".to_owned()));
    let url = match hub.listening.state() {
        Some(Ok(opened)) => Some(opened.url),
        // The configuration may have been corrected since, and want no HTTP.
        Some(Err(problem))
            if config.is_err() || config.is_ok_and(|config| config.listen.is_some()) =>
        {
            problems.push(problem);
            None
        }
        Some(Err(_)) | None => None,
    };
    let remote_url = hub
        .listening
        .announced_url()
        .filter(|remote| url.as_ref().is_some_and(|url| url != remote));
    let fingerprint = hub.listening.tls().map(|tls| tls.fingerprint());
    Ok(HubView {
        version: hub.version.clone(),
        pid: std::process::id(),
        home: hub.ops.home().dir.display().to_string(),
        started_at: crate::clock::rfc3339(hub.started_at),
        live_runs: counts.live,
        queued_runs: hub.ops.store().queued_runs(),
        live_runs_max,
        pending_requests: counts.pending_requests,
        sqlite_version: crate::store::sqlite_version().to_owned(),
        store: hub.ops.store().engine_name().to_owned(),
        problems,
        clock: crate::clock::warning(),
        url,
        remote_url,
        fingerprint,
        webhooks,
        leader: None,
        set_back: hub.ops.set_back().map(Box::new),
        store_problem: None,
    })
}

async fn facts(hub: Shared, attempt: AttemptId, posted: PostFacts) -> Response {
    failpoint!("hub.before_facts");
    let applied = hub.ops.apply_facts(attempt, posted.facts).await;
    hub.ops.note_facts(attempt);
    reply(applied.map(|cursor| FactsStored { cursor }))
}

async fn orders(hub: Shared, attempt: AttemptId, wanted: GetOrders) -> Response {
    let GetOrders {
        known,
        wait_ms,
        standing,
    } = wanted;
    let mut orders = std::pin::pin!(hub.ops.orders(attempt, known, wait_ms));
    tokio::select! {
        biased;
        orders = &mut orders => return reply(orders),
        () = hub.ops.receive_report(attempt, standing.as_ref()) => {}
    }
    reply(orders.await)
}

async fn budget(hub: Shared, attempt: AttemptId, ask: AskBudget) -> Response {
    reply(hub.ops.ask_budget(attempt, ask).await)
}

async fn closing(hub: Shared, attempt: AttemptId, asked: GetClosing) -> Response {
    let GetClosing { by_itself } = asked;
    reply(hub.ops.closing(attempt, by_itself))
}

#[cfg(test)]
mod tests {
    use super::calls;
    use crate::hub::listening::with_dashboard;
    use crate::view::CALLS;

    #[test]
    fn every_call_of_the_contract_is_served() {
        let served = with_dashboard(calls());
        let missing: Vec<&str> = CALLS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| served.get(&format!("/api/v1/{name}")).is_none())
            .collect();
        assert!(CALLS.len() > 60 && missing.is_empty(), "{missing:?}");
    }
}
