//! The calls of the contract, and the calls of supervisors.

use super::Shared;
use super::calls::{Calls, from_supervisors, on, reply};
use super::router::manage;
use super::state::hub_view;
use crate::failpoint::failpoint;
use crate::ops::{
    AnswerCall, AttemptId, BudgetCall, Cleaner, Cleaning, CommentCall, Discards, DispatchCall,
    HubPools, MergeCall, OpError, ReportCalls, Results, ResumeCall, RetryCall, Reviews, RunControl,
    RunReader, Tasks, Tokens, Undos, Waits, Webhooks, apply_facts, ask, ask_and_wait, ask_together,
    await_orders, check_policies, closing_of, confirm_notified, delegate, list_attention,
    list_grants, list_policies, list_requests, read_logs, read_request, read_together,
    request_approval, revoke_grant, stats, trust_policies, trust_policy_change, try_policies,
    withdraw_request,
};
use crate::protocol::{AskBudget, FactsStored, GetClosing, GetOrders, PostFacts};
use crate::view::{
    Adopt, AnswerRequests, Ask, AskAndWait, AskTogether, Cancel, CancelTask, ChangeBudget,
    ChangePool, CheckLogStore, CheckPolicies, Clean, CommentOnRun, ConfirmNotified, CreateToken,
    Delegate, DiffRun, DiscardRun, Dispatch, FollowUp, GetHub, GetRun, GetStats, GetTask, HandOver,
    ListAgents, ListAttention, ListGrants, ListPolicies, ListPools, ListRequests, ListRuns,
    ListTokens, ListWebhooks, LogStoreCheck, MergeRun, Pause, ReadEvents, ReadLogs, ReadRequest,
    ReadResult, ReadTogether, RequestApproval, Resume, Retry, RetryWebhooks, RevokeGrant,
    RevokeToken, SendToRun, SetStatus, StartTask, StopHub, StopWork, TrustPolicies,
    TrustPolicyChange, TryPolicies, UndoRun, UpdateTask, Wait, WithdrawRequest,
};
use adjutant_core::Principal;
use axum::response::Response;
use std::sync::atomic::Ordering;

/// Returns every call that the hub serves.
pub(super) fn calls() -> Calls {
    let groups = [
        run_calls,
        control_calls,
        review_calls,
        request_calls,
        task_calls,
        super::chats::routes,
        super::peers::routes,
        rule_calls,
        access_calls,
        hub_calls,
        supervisor_calls,
    ];
    groups
        .into_iter()
        .fold(Calls::default(), |calls, add| add(calls))
}

/// Adds the calls that start runs and read them.
fn run_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: Dispatch| async move {
        DispatchCall::of(&hub.ops).dispatch(caller, call).await
    });
    router = on(router, |hub, caller, call: ListRuns| async move {
        // A long list would hold up other calls.
        let list = move || RunReader::of(&hub.ops).list_runs(&caller.who, &call);
        tokio::task::spawn_blocking(list)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    });
    router = on(router, |hub, caller, call: GetRun| async move {
        RunReader::of(&hub.ops).get_run(&caller, &call).await
    });
    router = on(router, |hub, caller, call: ReadResult| async move {
        Results::of(&hub.ops).read(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: ReadLogs| async move {
        read_logs(&hub.ops, &caller.who, &call).await
    });
    router = on(router, |hub, caller, call: Wait| async move {
        Waits::of(&hub.ops).wait(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: ReadEvents| async move {
        Waits::of(&hub.ops).events(&caller, &call).await
    });
    router = on(router, |hub, caller, call: ListAgents| async move {
        super::versions::list_agents(&hub, &caller.who, &call).await
    });
    router = on(router, |hub, caller, call: Adopt| async move {
        RunControl::of(&hub.ops).adopt(caller, call).await
    });
    router = on(router, |hub, caller, call: Clean| async move {
        let older_than_ms = i64::try_from(call.older_than_s)
            .unwrap_or(i64::MAX / 1000)
            .saturating_mul(1000);
        Cleaner::of(&hub.ops)
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
    on(router, |hub, caller, call: GetStats| async move {
        stats(hub.ops.store(), hub.ops.home(), &caller.who, call).await
    })
}

/// Adds the calls that change runs under way.
fn control_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: Cancel| async move {
        RunControl::of(&hub.ops).cancel(caller, call).await
    });
    router = on(router, |hub, caller, call: Retry| async move {
        RetryCall::of(&hub.ops).retry(caller, call).await
    });
    router = on(router, |hub, caller, call: FollowUp| async move {
        RetryCall::of(&hub.ops).follow_up(caller, call).await
    });
    router = on(router, |hub, caller, call: Pause| async move {
        RunControl::of(&hub.ops).pause(caller, call).await
    });
    router = on(router, |hub, caller, call: Resume| async move {
        ResumeCall::of(&hub.ops).resume(caller, call).await
    });
    router = on(router, |hub, caller, call: ChangeBudget| async move {
        BudgetCall::of(&hub.ops).change_budget(caller, call).await
    });
    router = on(router, |hub, caller, call: SendToRun| async move {
        RunControl::of(&hub.ops).send(caller, call).await
    });
    router = on(router, |hub, caller, call: SetStatus| async move {
        ReportCalls::of(&hub.ops).set_status(caller, call).await
    });
    on(router, |hub, caller, call: StopWork| async move {
        ReportCalls::of(&hub.ops).stop_work(caller, call).await
    })
}

/// Adds the calls about the changes of runs.
fn review_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: DiffRun| async move {
        Reviews::of(&hub.ops).diff(&caller, &call).await
    });
    router = on(router, |hub, caller, call: UndoRun| async move {
        Undos::of(&hub.ops).undo(caller, call).await
    });
    router = on(router, |hub, caller, call: MergeRun| async move {
        MergeCall::of(&hub.ops).merge(caller, call).await
    });
    router = on(router, |hub, caller, call: CommentOnRun| async move {
        CommentCall::of(&hub.ops).comment(caller, call).await
    });
    on(router, |hub, caller, call: DiscardRun| async move {
        Discards::of(&hub.ops).discard(caller, call).await
    })
}

/// Adds the calls about requests and what needs attention.
fn request_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: Ask| async move {
        ask(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: AskAndWait| async move {
        ask_and_wait(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: AskTogether| async move {
        ask_together(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: RequestApproval| async move {
        request_approval(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: Delegate| async move {
        delegate(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: ReadRequest| async move {
        read_request(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: WithdrawRequest| async move {
        withdraw_request(hub.ops.store(), caller, call).await
    });
    router = on(router, |hub, caller, call: ReadTogether| async move {
        read_together(hub.ops.store(), caller, call).await
    });
    router = on(router, |hub, caller, call: ListRequests| async move {
        list_requests(hub.ops.store(), &hub.ops.settings, &caller.who, &call)
    });
    router = on(router, |hub, caller, call: AnswerRequests| async move {
        AnswerCall::of(&hub.ops).answer(caller, call).await
    });
    router = on(router, |hub, caller, call: ListAttention| async move {
        list_attention(
            hub.ops.store(),
            hub.ops.home(),
            &hub.ops.settings,
            &caller.who,
            &call,
        )
    });
    on(router, |hub, caller, call: ConfirmNotified| async move {
        confirm_notified(hub.ops.store(), caller, call).await
    })
}

/// Adds the calls about tasks.
fn task_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: StartTask| async move {
        Tasks::of(&hub.ops).start(caller, call).await
    });
    router = on(router, |hub, caller, call: GetTask| async move {
        Tasks::of(&hub.ops).get(&caller, &call).await
    });
    router = on(router, |hub, caller, call: UpdateTask| async move {
        Tasks::of(&hub.ops).update(caller, call).await
    });
    on(router, |hub, caller, call: CancelTask| async move {
        Tasks::of(&hub.ops).cancel(caller, call).await
    })
}

/// Adds the calls about pools, policies and grants.
fn rule_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, _: ListPools| async move {
        HubPools::of(&hub.ops).list(&caller.who)
    });
    router = on(router, |hub, caller, call: ChangePool| async move {
        HubPools::of(&hub.ops).change(caller, call).await
    });
    router = on(router, |hub, caller, call: ListPolicies| async move {
        list_policies(hub.ops.store(), &hub.ops.settings, &caller.who, &call)
    });
    router = on(router, |hub, caller, call: CheckPolicies| async move {
        check_policies(hub.ops.store(), &hub.ops.settings, &caller.who, call)
    });
    router = on(router, |hub, caller, call: TryPolicies| async move {
        try_policies(hub.ops.store(), &caller.who, &call)
    });
    router = on(router, |hub, caller, call: TrustPolicyChange| async move {
        trust_policy_change(hub.ops.store(), &hub.ops.settings, caller, call).await
    });
    router = on(router, |hub, caller, call: TrustPolicies| async move {
        trust_policies(hub.ops.store(), caller, call).await
    });
    router = on(router, |hub, caller, call: ListGrants| async move {
        list_grants(hub.ops.store(), &caller.who, &call)
    });
    on(router, |hub, caller, call: RevokeGrant| async move {
        revoke_grant(hub.ops.store(), caller, call).await
    })
}

/// Adds the calls about webhooks and tokens.
fn access_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, _: ListWebhooks| async move {
        Webhooks::of(&hub.ops).list(&caller.who)
    });
    router = on(router, |hub, caller, call: RetryWebhooks| async move {
        Webhooks::of(&hub.ops).retry(caller, call).await
    });
    router = on(router, |hub, caller, call: CreateToken| async move {
        Tokens::of(&hub.ops).create(caller, call).await
    });
    router = on(router, |hub, caller, call: ListTokens| async move {
        Tokens::of(&hub.ops).list(&caller.who, &call)
    });
    on(router, |hub, caller, call: RevokeToken| async move {
        Tokens::of(&hub.ops).revoke(caller, call).await
    })
}

/// Adds the calls about the process of the hub.
fn hub_calls(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, _: GetHub| async move {
        let is_person = caller.who == Principal::Person;
        hub_view(&hub, is_person).await
    });
    router = on(router, |hub, caller, _: CheckLogStore| async move {
        manage(&caller.who)?;
        let checked = hub.ops.log_store.try_out().await;
        Ok(
            checked.map_or_else(LogStoreCheck::default, |(address, tried)| LogStoreCheck {
                address: Some(address),
                problem: tried.err().map(|error| error.to_string()),
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
    on(router, |hub, caller, call: HandOver| async move {
        // Any parent may bring a newer version, which starts its own hub once this one has ended.
        if matches!(caller.who, Principal::Run(_)) {
            manage(&caller.who)?;
        }
        let view = hub_view(&hub, false).await?;
        if crate::hub_client::is_older(&hub.version, &call.version) {
            tracing::info!(
                version = call.version,
                exe = call.exe,
                "a newer version takes over"
            );
            hub.handed_over.store(true, Ordering::Relaxed);
            hub.stop.notify_one();
        }
        Ok(view)
    })
}

/// Adds the calls of supervisors.
fn supervisor_calls(mut router: Calls) -> Calls {
    router = from_supervisors(router, "/link/facts", facts);
    router = from_supervisors(router, "/link/orders", orders);
    router = from_supervisors(router, "/link/closing", closing);
    from_supervisors(router, "/link/budget", budget)
}

async fn facts(hub: Shared, attempt: AttemptId, posted: PostFacts) -> Response {
    failpoint!("hub.before_facts");
    let applied = apply_facts(hub.ops.store(), &hub.ops.settings, attempt, posted.facts).await;
    hub.ops.first_reports.note_facts(attempt);
    reply(applied.map(|cursor| FactsStored { cursor }))
}

async fn orders(hub: Shared, attempt: AttemptId, wanted: GetOrders) -> Response {
    let GetOrders {
        known,
        wait_ms,
        standing,
    } = wanted;
    let mut orders = std::pin::pin!(await_orders(hub.ops.store(), attempt, known, wait_ms));
    tokio::select! {
        biased;
        orders = &mut orders => return reply(orders),
        () = hub.ops.first_reports.receive(attempt, standing.as_ref()) => {}
    }
    reply(orders.await)
}

async fn budget(hub: Shared, attempt: AttemptId, ask: AskBudget) -> Response {
    reply(hub.ops.gates.ask_budget(attempt, ask).await)
}

async fn closing(hub: Shared, attempt: AttemptId, asked: GetClosing) -> Response {
    let GetClosing { by_itself } = asked;
    reply(closing_of(hub.ops.store(), attempt, by_itself))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::listening::with_dashboard;
    use crate::view::CALLS;

    #[test]
    fn every_call_of_the_contract_is_served() {
        let served = with_dashboard(calls());
        let missing: Vec<&str> = CALLS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| served.find(&format!("/api/v1/{name}")).is_none())
            .collect();
        assert!(CALLS.len() > 60 && missing.is_empty(), "{missing:?}");
    }
}
