//! Runs: dispatch, names, input, end, removal.

use crate::clock;
use crate::store::testing::fixture::{
    KEEP, answer, denied, ended, fixture, new_run, question, random,
};
use crate::store::workspaces::set_workspace_state;
use crate::store::*;
use adjutant_core::condition::Retrying;
use adjutant_core::port::PORTS_FIRST;
use adjutant_core::token::{TokenIdentity, TokenRole};
use adjutant_core::{
    Cause, Denied, EventSeq, Isolation, Outcome, PortRange, Principal, RequestId, RunEvent, RunId,
    RunState, StopReason, WorkspaceSpec, WorkspaceState,
};

#[tokio::test]
async fn run_name_resolves_only_for_its_owner() {
    let fixture = fixture();
    let (mine, theirs) = (
        Principal::Person,
        Principal::Client(adjutant_core::ClientName::parse("/p").expect("a name")),
    );
    let otter = fixture.dispatch(&mine, Some("brave-otter")).await;
    let olive = fixture.dispatch(&theirs, Some("brave-olive")).await;
    let find = |given: &str, owner: Option<&Principal>| {
        fixture
            .store
            .read(|connection| run_by_ref(connection, given, owner).map(|run| run.id))
    };
    for given in [
        "brave-otter",
        "brave-ot",
        &otter.id.to_string(),
        &otter.id.to_string()[..20],
    ] {
        assert_eq!(find(given, Some(&mine)).expect(given), otter.id);
    }
    assert_eq!(find("@last", None).expect("newest"), olive.id);
    assert_eq!(find("@last", Some(&mine)).expect("mine"), otter.id);
    assert_eq!(
        find("brave", Some(&theirs)).expect("only one of theirs"),
        olive.id
    );
    assert!(matches!(
        denied(find("brave", None).expect_err("two")),
        Denied::Ambiguous { .. }
    ));
    let unknown =
        denied(find("0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11", Some(&theirs)).expect_err("unknown"));
    let foreign = denied(find(&otter.id.to_string(), Some(&theirs)).expect_err("foreign"));
    assert_eq!(
        unknown
            .to_string()
            .replace("0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11", "X"),
        foreign.to_string().replace(&otter.id.to_string(), "X")
    );
    for given in [
        "",
        "../../etc/passwd",
        "a\0b",
        "%",
        "_",
        "BRAVE-OTTER",
        &"a".repeat(4096),
    ] {
        assert!(
            matches!(
                denied(find(given, None).expect_err("no run")),
                Denied::NotFound { .. }
            ),
            "{given:?}"
        );
    }
    assert!(matches!(
        denied(
            fixture
                .store
                .write({
                    let new = new_run(&mine, Some("brave-otter"));
                    move |tx| tx.dispatch(&new)
                })
                .await
                .expect_err("taken")
        ),
        Denied::Invalid { .. }
    ));
}

#[tokio::test]
async fn run_input_is_stored_unchanged() {
    let fixture = fixture();
    let new = new_run(&Principal::Person, None);
    let expected = new.input.clone();
    let run = fixture
        .store
        .write(move |tx| tx.dispatch(&new))
        .await
        .expect("dispatched");
    assert_eq!(run.task, "first line");
    let input = fixture
        .store
        .read(|connection| run_input(connection, run.id))
        .expect("its input");
    assert_eq!(
        (input.prompt, input.agent, input.env),
        (expected.prompt, expected.agent, expected.env)
    );
}

#[tokio::test]
async fn finished_run_is_neither_underway_nor_stopped() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let client = Principal::Client(adjutant_core::ClientName::parse("/work/a").expect("a name"));
    let listed = |who: &Principal| {
        let lists = |connection: &Connection| {
            Ok((
                underway_runs(connection, who, 9)?.len(),
                stopped_runs(connection, who, 9)?.runs.len(),
                unknown_ends(connection, who, EventSeq(0), 9)?.len(),
            ))
        };
        fixture.store.read(lists).expect("read")
    };
    assert_eq!(
        (listed(&Principal::Person), listed(&client)),
        ((1, 0, 0), (0, 0, 0))
    );
    fixture.advance(run.id, ended(0)).await.expect("ended");
    assert_eq!(
        (listed(&Principal::Person), listed(&client)),
        ((0, 0, 1), (0, 0, 0))
    );
    let beyond = |who: &Principal| {
        fixture
            .store
            .read(|connection| unknown_ends_beyond(connection, who, EventSeq(0), EventSeq(0)))
            .expect("read")
            .0
    };
    assert_eq!((beyond(&Principal::Person), beyond(&client)), (1, 0));
}

#[tokio::test]
async fn finished_run_closes_its_questions_and_never_changes() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    fixture
        .advance(run.id, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("stopping");
    fixture.advance(run.id, ended(0)).await.expect("ended");
    let run = fixture.run(run.id);
    assert_eq!(run.state, RunState::Finished(Outcome::Cancelled));
    assert_eq!((run.pending, run.blocking_pending), (0, 0));
    assert_eq!(
        denied(
            fixture
                .advance_request(asked.id, answer("x"))
                .await
                .expect_err("withdrawn")
        ),
        Denied::Withdrawn
    );
    assert!(matches!(
        denied(
            fixture
                .ask(run.id, question(true, 60_000, None))
                .await
                .expect_err("refused")
        ),
        Denied::RunFinished { .. }
    ));
    for event in [
        RunEvent::Claimed,
        RunEvent::Resumed,
        RunEvent::SupervisorLost,
        ended(0),
    ] {
        assert!(matches!(
            denied(fixture.advance(run.id, event).await.expect_err("refused")),
            Denied::RunFinished { .. }
        ));
    }
}

#[tokio::test]
async fn repeated_retry_condition_is_one_event() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await.id;
    let state = |tries: Option<u32>| {
        fixture.store.write(move |tx| {
            let found = tx.run(run)?;
            match tries {
                Some(tries) => tx.set_retrying(
                    &found,
                    &Retrying {
                        cause: Cause::Network,
                        for_ms: 10_000,
                        tries,
                        words: "reset".to_owned(),
                    },
                    "supervisor",
                ),
                None => tx.set_recovered(&found, "supervisor"),
            }
        })
    };
    state(Some(2)).await.expect("stated");
    let first = fixture.run(run);
    state(Some(9)).await.expect("stated");
    let again = fixture.run(run);
    let known = |run: &Run| run.retrying.clone().expect("it retries");
    assert_eq!(
        (known(&again).since, known(&again).tries, again.retrying_seq),
        (known(&first).since, 9, first.retrying_seq)
    );
    assert_eq!(again.noticed_seq(), first.retrying_seq);
    state(None).await.expect("stated");
    assert_eq!(fixture.run(run).noticed_seq(), None);
}

#[tokio::test]
async fn owner_is_notified_of_an_end_once() {
    let fixture = fixture();
    let owner = Principal::Client(adjutant_core::ClientName::parse("/work/a").expect("a name"));
    let run = fixture.running(&owner).await;
    let before = fixture.store.read(last_seq).expect("a position");
    fixture.advance(run.id, ended(1)).await.expect("ended");
    let end = fixture.run(run.id).end_seq.expect("its end");
    let ends = |who: &Principal, after| {
        fixture
            .store
            .read(|connection| unknown_ends(connection, who, after, 10))
            .expect("ends")
            .len()
    };
    assert_eq!(
        (ends(&owner, before), ends(&owner, end)),
        (1, 1),
        "the owner was not notified yet"
    );
    assert_eq!(
        (
            ends(&Principal::Person, before),
            ends(&Principal::Person, end)
        ),
        (1, 0)
    );
    let bad = || {
        fixture
            .store
            .read(|connection| unnotified_bad_ends(connection, &owner, 10))
            .expect("ends")
            .runs
            .len()
    };
    assert_eq!(bad(), 1);
    let notify = |who: Principal, until| {
        fixture
            .store
            .write(move |tx| tx.set_notified(&who, &[(run.id, until)]))
    };
    let can = |who: &Principal, runs: &[EventSeq], all| {
        let runs: Vec<_> = runs.iter().map(|until| (run.id, *until)).collect();
        fixture
            .store
            .read(|connection| can_set_notified(connection, who, &runs, all))
            .expect("read")
    };
    assert!(
        can(&owner, &[end], None)
            && can(&owner, &[], Some(end))
            && can(&owner, &[before, end], None)
    );
    assert!(
        !can(&owner, &[before], Some(before)) && !can(&owner, &[], None),
        "what came later is not confirmed"
    );
    assert!(
        !can(&Principal::Person, &[end], Some(end)),
        "only the owner is notified"
    );
    assert!(
        can(&Principal::Person, &[EventSeq(i64::MAX)], None)
            && can(&owner, &[], Some(EventSeq(i64::MAX))),
        "later ends may follow"
    );
    assert_eq!(
        notify(Principal::Person, end).await.expect("recorded"),
        0,
        "only the owner is notified"
    );
    assert_eq!(
        notify(owner.clone(), before).await.expect("recorded"),
        0,
        "not of what came later"
    );
    assert_eq!(notify(owner.clone(), end).await.expect("recorded"), 1);
    assert_eq!((ends(&owner, before), ends(&owner, end), bad()), (1, 0, 0));
    assert!(!can(&owner, &[end], Some(end)), "nothing is left to record");
}

#[tokio::test]
async fn messages_are_delivered_once() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let (of, id) = (run.clone(), RequestId::new(clock::now(), random()));
    let message = fixture
        .store
        .write(move |tx| tx.send_message(&of, &Principal::Person, id, "go left"))
        .await
        .expect("sent");
    let queued = fixture
        .store
        .read(|connection| queued_messages(connection, run.id))
        .expect("queued");
    assert_eq!(queued.len(), 1);
    for _ in 0..2 {
        let (of, ids) = (run.clone(), vec![message.id.clone()]);
        fixture
            .store
            .write(move |tx| tx.deliver_messages(&of, &ids, "live"))
            .await
            .expect("delivered");
    }
    assert!(
        fixture
            .store
            .read(|connection| queued_messages(connection, run.id))
            .expect("queued")
            .is_empty()
    );
    assert_eq!(
        fixture
            .kinds(run.id)
            .iter()
            .filter(|kind| **kind == "message.delivered")
            .count(),
        1
    );
}

#[tokio::test]
async fn removing_a_run_removes_its_data() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    let live = run.clone();
    assert!(
        fixture
            .store
            .write(move |tx| tx.remove(&live))
            .await
            .is_err()
    );
    let finished = fixture.advance(run.id, ended(0)).await.expect("ended");
    fixture
        .store
        .write(move |tx| tx.remove(&finished))
        .await
        .expect("removed");
    assert!(
        fixture
            .store
            .read(|connection| request_by_id(connection, asked.id))
            .expect("a store")
            .is_none()
    );
    assert!(fixture.kinds(run.id).is_empty());
}

#[tokio::test]
async fn removed_run_is_listed_for_its_runner_until_that_confirms() {
    let f = fixture();
    let hosts = ["one/ab", "one/cd", "one2/ab"];
    f.store
        .write(|tx| {
            for name in ["one", "one2"] {
                let identity = TokenIdentity::new(TokenRole::Runner, None)?;
                tx.add_token(&NewToken {
                    name: name.to_owned(),
                    hash: format!("{name}{}", "0".repeat(60)),
                    identity,
                })?;
            }
            Ok(())
        })
        .await
        .expect("tokens");
    let mut runs = Vec::new();
    for host in [
        Some("one/ab"),
        Some("one/cd"),
        Some("one2/ab"),
        Some("revoked/ab"),
        None,
    ] {
        let run = f.dispatch(&Principal::Person, None).await;
        let claim = move |tx: &mut Tx<'_>| {
            tx.claim(
                &run,
                &[0; 32],
                host.map(|host| HostLease {
                    host,
                    lease_ms: 60_000,
                }),
                KEEP,
            )
        };
        let run = f.store.write(claim).await.expect("claimed");
        f.advance(run.id, RunEvent::Started).await.expect("started");
        let run = f.advance(run.id, ended(0)).await.expect("ended");
        runs.push(run.id.to_string());
        let remove = move |tx: &mut Tx<'_>| {
            tx.note_left_on_runners(run.id)?;
            tx.remove(&run)
        };
        f.store.write(remove).await.expect("removed");
    }
    let left = |host: &str| {
        f.store
            .read(|connection| left_on_runner(connection, host, 10))
            .expect("a list")
    };
    assert_eq!(
        hosts.map(left),
        [
            vec![runs[0].clone()],
            vec![runs[1].clone()],
            vec![runs[2].clone()]
        ]
    );
    assert!(left("revoked/ab").is_empty(), "it cannot connect any more");
    let confirmed = runs.clone();
    f.store
        .write(move |tx| tx.forget_left_on_runner("one/ab", &confirmed))
        .await
        .expect("confirmed");
    assert_eq!(
        hosts.map(|host| left(host).len()),
        [0, 1, 1],
        "another runner's stay"
    );
    let token = f
        .store
        .read(|connection| token_by_name(connection, "one"))
        .expect("a store")
        .expect("a token");
    f.store
        .write(move |tx| tx.revoke_token(token.id))
        .await
        .expect("revoked");
    assert_eq!(hosts.map(|host| left(host).len()), [0, 0, 1]);
}

/// A run in a subdirectory of its own workspace.
pub(super) fn isolated(name: &str) -> NewRun {
    let workspace = NewWorkspace {
        isolation: Isolation::Clone,
        repository: "/home/u/project".to_owned(),
        base: "b".repeat(40),
        branch: Some("main".to_owned()),
        changes: Some("c".repeat(40)),
        all: "/state/workspaces".into(),
        spec: WorkspaceSpec {
            setup: vec!["make".to_owned()],
            ports: 20,
            ..WorkspaceSpec::default()
        },
        below: "sub".into(),
    };
    NewRun {
        workspace: Some(workspace),
        ..new_run(&Principal::Person, Some(name))
    }
}

#[tokio::test]
async fn ports_are_in_use_while_their_run_is_live() {
    let f = fixture();
    let mut live = Vec::new();
    for name in ["one", "two", "three"] {
        let new = isolated(name);
        let run = f
            .store
            .write(move |tx| tx.dispatch(&new))
            .await
            .expect("dispatched");
        live.push(
            f.store
                .write(move |tx| tx.claim(&run, &[0; 32], None, KEEP))
                .await
                .expect("claimed"),
        );
    }
    let allocate = async |run: &Run, count: u16| {
        let id = run.id;
        f.store
            .write(move |tx| tx.allocate_ports(id, count, PORTS_FIRST))
            .await
            .expect("written")
    };
    let range = |base, count| Some(PortRange { base, count });
    assert_eq!(allocate(&live[0], 20).await, range(PORTS_FIRST, 20));
    assert_eq!(allocate(&live[1], 30).await, range(PORTS_FIRST + 20, 30));
    assert_eq!(
        allocate(&live[0], 20).await,
        range(PORTS_FIRST, 20),
        "its own ports do not count"
    );
    assert_eq!(
        f.store
            .read(|connection| ports_of(connection, live[1].id))
            .expect("read"),
        range(PORTS_FIRST + 20, 30)
    );
    let first = live[0].clone();
    f.store
        .write(move |tx| tx.advance(&first, RunEvent::SpawnFailed, KEEP, "hub", ""))
        .await
        .expect("ended");
    assert_eq!(allocate(&live[2], 10).await, range(PORTS_FIRST, 10));
    assert_eq!(allocate(&live[2], u16::MAX).await, None);
    assert_eq!(
        f.store
            .read(|connection| ports_of(connection, live[2].id))
            .expect("read"),
        None
    );
}

#[tokio::test]
async fn isolated_run_works_in_its_workspace() {
    let f = fixture();
    let new = isolated("apart");
    let run = f
        .store
        .write(move |tx| tx.dispatch(&new))
        .await
        .expect("dispatched");
    let workspace = |run: RunId| {
        f.store
            .read(|connection| workspace_of(connection, run))
            .expect("read")
    };
    let found = workspace(run.id).expect("a workspace");
    let id = run.id.to_string();
    assert_eq!(
        found.path,
        format!("/state/workspaces/apart-{}/project", &id[id.len() - 6..])
    );
    assert_eq!(
        (run.cwd, found.state),
        (format!("{}/sub", found.path), WorkspaceState::Planned)
    );
    assert_eq!(
        (found.isolation, found.branch.as_deref(), found.base.len()),
        (Isolation::Clone, Some("main"), 40)
    );
    let around = |dir: String| {
        f.store
            .read(|connection| workspace_around(connection, &dir))
            .expect("read")
            .map(|found| found.run)
    };
    assert_eq!(around(found.path.clone()), Some(run.id));
    assert_eq!(around(format!("{}/a/b", found.path)), Some(run.id));
    assert_eq!(
        (
            around(format!("{}-other", found.path)),
            around("/home/u/project".to_owned())
        ),
        (None, None)
    );
    let other = f.dispatch(&Principal::Person, None).await;
    assert_eq!(workspace(other.id), None);
    // Each state is kept, until another attempt starts.
    for state in WorkspaceState::ALL {
        f.store
            .write(move |tx| set_workspace_state(tx, run.id, state))
            .await
            .expect("written");
        assert_eq!(workspace(run.id).expect("a workspace").state, state);
        let cwd = format!("{}/sub", found.path);
        f.store
            .write(move |tx| tx.set_workspace_ready(&cwd))
            .await
            .expect("written");
        assert_eq!(
            workspace(run.id).expect("a workspace").state,
            WorkspaceState::Ready
        );
    }
    assert_eq!(
        (found.spec.setup, found.spec.ports, found.preparation),
        (vec!["make".to_owned()], 20, None)
    );
    f.store
        .write(move |tx| tx.set_preparation(run.id, "{}"))
        .await
        .expect("written");
    assert_eq!(
        workspace(run.id)
            .expect("a workspace")
            .preparation
            .as_deref(),
        Some("{}")
    );
    // The workspace is removed with its run.
    let removed = f.store.write(move |tx| {
        let run = tx.run(run.id)?;
        let run = tx.advance(
            &run,
            RunEvent::StopAsked(StopReason::Cancelled),
            KEEP,
            "person",
            "",
        )?;
        tx.remove(&run)
    });
    removed.await.expect("removed");
    assert_eq!(workspace(run.id), None);
}

#[tokio::test]
async fn undo_that_does_not_end_is_known_as_interrupted() {
    let f = fixture();
    let run = f.dispatch(&Principal::Person, Some("brave-otter")).await;
    let undo = Undo {
        run: run.id,
        to: 1,
        before: 3,
        is_forced: true,
    };
    let interrupted = || {
        f.store
            .read(|connection| interrupted_undo(connection, run.id))
            .expect("read")
    };
    let events = || {
        f.store
            .read(|connection| {
                has_event(
                    connection,
                    run.id,
                    adjutant_core::EventKind::RunUndoInterrupted,
                )
            })
            .expect("read")
    };
    f.store
        .write(move |tx| tx.start_undo(&undo, &Principal::Person, "text"))
        .await
        .expect("started");
    assert_eq!(interrupted(), None, "it works");
    f.store
        .write(move |tx| tx.finish_undo(run.id))
        .await
        .expect("ended");
    f.store
        .write(|tx| tx.note_interrupted_undos(None))
        .await
        .expect("noted");
    assert_eq!((interrupted(), events()), (None, false));
    f.store
        .write(move |tx| tx.start_undo(&undo, &Principal::Person, "text"))
        .await
        .expect("started");
    f.store
        .write(|tx| tx.note_interrupted_undos(None))
        .await
        .expect("noted");
    assert_eq!((interrupted(), events()), (Some(undo), true));
    assert_eq!(
        undo.completing_command(&run.name),
        "adj undo brave-otter 1 --force"
    );
    f.store
        .write(move |tx| tx.finish_undo(run.id))
        .await
        .expect("ended");
    assert_eq!(interrupted(), None);
}

/// Dispatches runs and cancels them at once.
async fn finished(fixture: &crate::store::testing::fixture::Fixture, count: usize) -> Vec<RunId> {
    let runs = fixture.store.write(move |tx| {
        let mut ids = Vec::new();
        for _ in 0..count {
            let run = tx.dispatch(&new_run(&Principal::Person, None))?;
            tx.advance(
                &run,
                RunEvent::StopAsked(StopReason::Cancelled),
                KEEP,
                "person",
                "",
            )?;
            ids.push(run.id);
        }
        Ok(ids)
    });
    runs.await.expect("finished")
}

#[tokio::test]
async fn unfinished_runs_come_before_a_thousand_newer_ended_ones() {
    let fixture = fixture();
    let queued = fixture
        .dispatch(&Principal::Person, Some("queued"))
        .await
        .id;
    let stopped = fixture.dispatch(&Principal::Person, Some("stopped")).await;
    fixture
        .advance(stopped.id, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("stopped");
    let live = fixture.dispatch(&Principal::Person, Some("live")).await;
    fixture
        .store
        .write(move |tx| tx.claim(&live, b"hash", None, KEEP))
        .await
        .expect("claimed");
    finished(&fixture, 1_060).await;
    for owner in [None, Some(&Principal::Person)] {
        let page = fixture
            .store
            .read(|connection| runs_newest(connection, owner, true, 1_000))
            .expect("runs");
        let first: Vec<&str> = page
            .runs
            .iter()
            .take(3)
            .map(|run| run.name.as_str())
            .collect();
        assert_eq!(
            (first, page.runs.len(), page.more),
            (vec!["live", "stopped", "queued"], 1_000, 63)
        );
        let few = fixture
            .store
            .read(|connection| runs_newest(connection, owner, true, 2))
            .expect("runs");
        assert_eq!(
            (
                few.runs
                    .iter()
                    .map(|run| run.name.as_str())
                    .collect::<Vec<_>>(),
                few.more
            ),
            (vec!["live", "stopped"], 1_000)
        );
        let unfinished = fixture
            .store
            .read(|connection| runs_newest(connection, owner, false, 1_000))
            .expect("runs");
        assert_eq!((unfinished.runs.len(), unfinished.more), (3, 0));
    }
    assert!(
        fixture
            .store
            .read(|connection| run_by_id(connection, queued))
            .expect("read")
            .is_some()
    );
}

#[tokio::test]
async fn each_old_run_is_read_once_while_others_are_removed() {
    let fixture = fixture();
    let all = finished(&fixture, 250).await;
    let before = clock::steady().plus_ms(60_000);
    for removes in [false, true] {
        let (mut seen, mut position) = (Vec::new(), None);
        loop {
            let (runs, next) = fixture
                .store
                .read(|connection| old_finished(connection, before, position, 100))
                .expect("runs");
            if runs.is_empty() {
                break;
            }
            assert!(runs.len() <= 100 && next != position);
            position = next;
            seen.extend(runs.iter().map(|run| run.id));
            if removes {
                // Every second one stays.
                let gone: Vec<_> = runs.into_iter().step_by(2).collect();
                fixture
                    .store
                    .write(move |tx| gone.iter().try_for_each(|run| tx.remove(run)))
                    .await
                    .expect("removed");
            }
        }
        seen.sort_unstable();
        let mut expected = all.clone();
        expected.sort_unstable();
        assert_eq!(seen, expected, "removes: {removes}");
    }
}

#[tokio::test]
async fn keys_of_removed_runs_are_forgotten() {
    let fixture = fixture();
    let ids = finished(&fixture, 2).await;
    for id in &ids {
        let (who, key) = (Principal::Run(*id), Key::new("k", "ask", b""));
        fixture
            .store
            .write(move |tx| tx.once(&who, Some(&key), |_| Ok(1_u32)))
            .await
            .expect("stored");
    }
    let person = Key::new("k", "run", b"");
    fixture
        .store
        .write(move |tx| tx.once(&Principal::Person, Some(&person), |_| Ok(2_u32)))
        .await
        .expect("stored");
    let gone = fixture.run(ids[0]);
    fixture
        .store
        .write(move |tx| tx.remove(&gone))
        .await
        .expect("removed");
    fixture
        .store
        .write(|tx| tx.forget_keys_of_removed_runs())
        .await
        .expect("forgotten");
    let is_kept = |who: Principal| {
        fixture
            .store
            .read(|connection| is_key_stored(connection, &who, "k"))
            .expect("read")
    };
    assert_eq!(
        [
            is_kept(Principal::Run(ids[0])),
            is_kept(Principal::Run(ids[1])),
            is_kept(Principal::Person)
        ],
        [false, true, true]
    );
}
