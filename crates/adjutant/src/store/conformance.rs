//! Conformance tests of the store. Each uses a fresh store and none looks at tables.

use super::*;
use crate::client::random_hex;
use crate::clock;
use adjutant_core::run::Retention;
use adjutant_core::{
    AgentName, AgentSpec, AttemptEnd, AttemptNo, Decision, Denied, EventSeq, Exit, Fence, HarnessKind, Isolation, Outcome, Permissions, Principal,
    PromptVia, RequestEvent, RequestId, RequestNo, RequestState, RunEvent, RunId, RunName, RunState, StopReason, Subject, WorkspaceState,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

const KEEP: Retention = Retention { stopped_ms: 60_000 };

struct Fixture {
    store: Store,
    home: Home,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    Fixture { store: Store::open(&home).expect("a store"), home, _dir: dir }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes
}

fn new_run(owner: &Principal, name: Option<&str>) -> NewRun {
    let agent = AgentSpec {
        name: AgentName::parse("echo").expect("a name"),
        harness: HarnessKind::Vendor,
        preset: "{}".to_owned(),
        permissions: Permissions::Read,
        trust_repo: true,
        isolation: Isolation::Clone,
        command: vec!["x".to_owned()],
        args: vec!["-v".to_owned()],
        prompt: PromptVia::Stdin,
        env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
        env_pass: vec!["MY_KEY".to_owned()],
        description: "d".to_owned(),
        timeout_ms: Some(5),
        patience_ms: 300_000,
        stall_ms: None,
        grace_ms: 8_000,
        fence: Fence::Workspace,
        fence_write: vec!["~/.cache".to_owned()],
    };
    NewRun {
        id: RunId::new(clock::now(), random()),
        name: name.map(|name| RunName::parse(name).expect("a name")),
        name_seed: random(),
        cwd: "/tmp".to_owned(),
        workspace: None,
        owner: owner.clone(),
        retry_of: None,
        under: None,
        rank: adjutant_core::tree::Rank::default(),
        estimate_ms: None,
        task: "\n first line\nsecond".to_owned(),
        by: owner.clone(),
        input: RunInput {
            prompt: "\n first line\nsecond".to_owned(),
            agent,
            env: credentials::DispatchEnv::new(BTreeMap::from([("B".to_owned(), "2".to_owned())]), None),
            criteria: None,
            accept: Vec::new(),
        },
    }
}

/// A run in a subdirectory of its own workspace.
fn isolated(name: &str) -> NewRun {
    let workspace = NewWorkspace {
        isolation: Isolation::Clone,
        repository: "/home/u/project".to_owned(),
        base: "b".repeat(40),
        branch: Some("main".to_owned()),
        changes: Some("c".repeat(40)),
        all: "/state/workspaces".into(),
        below: "sub".into(),
    };
    NewRun { workspace: Some(workspace), ..new_run(&Principal::Person, Some(name)) }
}

#[tokio::test]
async fn isolated_run_works_in_its_workspace() {
    let f = fixture();
    let new = isolated("apart");
    let run = f.store.write(move |tx| tx.dispatch(&new)).await.expect("dispatched");
    let workspace = |run: RunId| f.store.read(|connection| workspace_of(connection, run)).expect("read");
    let found = workspace(run.id).expect("a workspace");
    let id = run.id.to_string();
    assert_eq!(found.path, format!("/state/workspaces/apart-{}/project", &id[id.len() - 6..]));
    assert_eq!((run.cwd, found.state), (format!("{}/sub", found.path), WorkspaceState::Planned));
    assert_eq!((found.isolation, found.branch.as_deref(), found.base.len()), (Isolation::Clone, Some("main"), 40));
    let around = |dir: String| f.store.read(|connection| workspace_around(connection, &dir)).expect("read").map(|found| found.run);
    assert_eq!(around(found.path.clone()), Some(run.id));
    assert_eq!(around(format!("{}/a/b", found.path)), Some(run.id));
    assert_eq!((around(format!("{}-other", found.path)), around("/home/u/project".to_owned())), (None, None));
    let other = f.dispatch(&Principal::Person, None).await;
    assert_eq!(workspace(other.id), None);
    // Each state is kept, until another attempt starts.
    for state in WorkspaceState::ALL {
        f.store.write(move |tx| tx.set_workspace_state(run.id, state)).await.expect("written");
        assert_eq!(workspace(run.id).expect("a workspace").state, state);
        f.store.write(move |tx| tx.set_workspace_ready(run.id)).await.expect("written");
        assert_eq!(workspace(run.id).expect("a workspace").state, WorkspaceState::Ready);
    }
    // The workspace is removed with its run.
    let removed = f.store.write(move |tx| {
        let run = tx.run(run.id)?;
        let run = tx.advance(&run, RunEvent::StopAsked(StopReason::Cancelled), KEEP, "person", "")?;
        tx.remove(&run)
    });
    removed.await.expect("removed");
    assert_eq!(workspace(run.id), None);
}

fn question(blocking: bool, expires_in_ms: i64, default: Option<&str>) -> NewRequest {
    NewRequest {
        id: RequestId::new(clock::now(), random()),
        subject: Subject::Question,
        question: "which?".to_owned(),
        own_id: None,
        clarification: None,
        context: Some("both are there".to_owned()),
        options: vec!["a".to_owned(), "b".to_owned()],
        default: default.map(ToOwned::to_owned),
        blocking,
        by_block: false,
        patience_ms: 1,
        expires_at: clock::steady().plus_ms(expires_in_ms),
    }
}

impl Fixture {
    async fn dispatch(&self, owner: &Principal, name: Option<&str>) -> Run {
        let new = new_run(owner, name);
        self.store.write(move |tx| tx.dispatch(&new)).await.expect("dispatched")
    }

    async fn running(&self, owner: &Principal) -> Run {
        let run = self.dispatch(owner, None).await;
        self.store
            .write(move |tx| {
                let run = tx.claim(&run, b"hash", KEEP)?;
                tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
            })
            .await
            .expect("running")
    }

    async fn ask(&self, run: RunId, new: NewRequest) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let run = tx.run(run)?;
                tx.ask(&run, &new)
            })
            .await
    }

    async fn settle_and_retrieve(&self, id: RequestId, event: RequestEvent) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let request = request_by_id(tx.connection(), id)?.expect("a request");
                tx.settle_and_retrieve(&request, event)
            })
            .await
    }

    async fn settle(&self, id: RequestId, event: RequestEvent) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let request = request_by_id(tx.connection(), id)?.expect("a request");
                tx.settle(&request, event)
            })
            .await
    }

    async fn advance(&self, run: RunId, event: RunEvent) -> Result<Run, StoreError> {
        self.store
            .write(move |tx| {
                let run = tx.run(run)?;
                tx.advance(&run, event, KEEP, "test", "")
            })
            .await
    }

    fn run(&self, id: RunId) -> Run {
        self.store.read(|connection| run_by_id(connection, id)).expect("a store").expect("a run")
    }

    fn kinds(&self, id: RunId) -> Vec<&'static str> {
        let events = self.store.read(|connection| events_after(connection, &Principal::Person, Some(id), EventSeq(0), 1_000)).expect("events");
        assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        events.iter().map(|event| event.kind.word()).collect()
    }
}

fn answer(text: &str) -> RequestEvent {
    RequestEvent::Answer { by: Principal::Person, decision: Decision::Text(text.to_owned()) }
}

fn ended(code: i32) -> RunEvent {
    RunEvent::Ended(AttemptEnd {
        exit: Exit::Code(code),
        verdict: None,
        again_at: None,
        failure_reported: false,
        blocking_request_open: false,
        checkpoint_left: false,
        can_resume: false,
    })
}

fn denied(error: StoreError) -> Denied {
    match error {
        StoreError::Denied(denied) => denied,
        other => panic!("not a refusal: {other}"),
    }
}

#[tokio::test]
async fn question_asked_answered_and_read_is_recorded() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending, now.unread), (1, 1, 0));
    fixture.settle(asked.id, answer("a")).await.expect("answered");
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending, now.unread), (0, 0, 1));
    let read = fixture.settle(asked.id, RequestEvent::Retrieve).await.expect("read");
    assert_eq!(read.state.answer().map(|answer| answer.decision.to_text()), Some("a".to_owned()));
    let again = fixture.settle(asked.id, RequestEvent::Retrieve).await.expect("read again");
    assert_eq!(again.state, read.state, "the answer stays readable");
    let stored = fixture.store.read(|connection| request_by_no(connection, asked.no)).expect("a store").expect("a request");
    assert_eq!(stored.state, read.state);
    assert_eq!((stored.options, stored.context.as_deref()), (vec!["a".to_owned(), "b".to_owned()], Some("both are there")));
    fixture.advance(run.id, ended(0)).await.expect("ended");
    let expected = ["run.queued", "run.starting", "run.started", "request.asked", "request.answered", "request.retrieved", "run.finished"];
    assert_eq!(fixture.kinds(run.id), expected);
}

#[tokio::test]
async fn questions_asked_together_form_one_group() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let alone = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let news = [question(true, 60_000, None), question(false, 60_000, None), question(true, 60_000, None)];
    let asked = fixture.store.write(move |tx| tx.ask_together(&tx.run(run.id)?, &news)).await.expect("asked");
    let stored = fixture.store.read(|connection| requests_together(connection, &asked[1])).expect("a store");
    let first = alone.no.0 + 1;
    for (place, (asked, stored)) in (1..).zip(asked.iter().zip(&stored)) {
        assert_eq!(asked.group, Some(Group { first: RequestNo(first), place, size: 3 }));
        assert_eq!((stored.id, stored.group), (asked.id, asked.group));
    }
    assert_eq!((stored.len(), alone.group), (3, None));
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending), (4, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_answers_is_accepted() {
    let fixture = std::sync::Arc::new(fixture());
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..64 {
        let (fixture, id) = (std::sync::Arc::clone(&fixture), asked.id);
        tries.spawn(async move { fixture.settle(id, answer(&n.to_string())).await });
    }
    let results = tries.join_all().await;
    let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    let stored = fixture.store.read(|connection| request_by_id(connection, asked.id)).expect("a store").expect("a request");
    assert_eq!(stored.state, won[0].state);
}

#[tokio::test]
async fn same_key_has_one_effect_and_rejects_another_body() {
    let fixture = fixture();
    let who = Principal::Person;
    let dispatch = |body: &'static [u8]| {
        let (key, new, who) = (Key::new("k", "dispatch", body), new_run(&who, None), who.clone());
        fixture.store.write(move |tx| tx.once(&who, Some(&key), |tx| Ok(tx.dispatch(&new)?.name)))
    };
    let first = dispatch(b"one").await.expect("first");
    assert_eq!(dispatch(b"one").await.expect("again"), first);
    assert_eq!(denied(dispatch(b"two").await.expect_err("refused")), Denied::KeyReused);
    let runs = fixture.store.read(|connection| runs_newest(connection, None, true, 10)).expect("runs");
    assert_eq!(runs.runs.len(), 1);
    // Another principal's key is another key.
    let other = Principal::Client(adjutant_core::ClientName::parse("x").expect("a name"));
    let (key, new) = (Key::new("k", "dispatch", b"one"), new_run(&other, None));
    let theirs = fixture.store.write(move |tx| tx.once(&other, Some(&key), |tx| Ok(tx.dispatch(&new)?.name))).await.expect("theirs");
    assert_ne!(theirs, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_call_leaves_nothing_in_its_batch() {
    let fixture = std::sync::Arc::new(fixture());
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..200_u32 {
        let fixture = std::sync::Arc::clone(&fixture);
        calls.spawn(async move {
            let new = new_run(&Principal::Person, None);
            fixture
                .store
                .write(move |tx| {
                    let run = tx.dispatch(&new)?;
                    match n % 4 {
                        1 => Err(Denied::OwnQuestion.into()),
                        2 => panic!("a bug in one call"),
                        _ => Ok(run.name),
                    }
                })
                .await
        });
    }
    let kept: Vec<_> = calls.join_all().await.into_iter().filter_map(Result::ok).collect();
    assert_eq!(kept.len(), 100);
    let mut stored: Vec<_> =
        fixture.store.read(|connection| runs_newest(connection, None, true, 1_000)).expect("runs").runs.into_iter().map(|run| run.name).collect();
    stored.sort();
    let mut kept = kept;
    kept.sort();
    assert_eq!(stored, kept);
}

#[tokio::test]
async fn deadline_applies_the_default_or_expires() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let with = fixture.ask(run.id, question(true, -1, Some("b"))).await.expect("asked");
    let without = fixture.ask(run.id, question(true, -1, None)).await.expect("asked");
    let later = fixture.ask(run.id, question(false, 60_000, None)).await.expect("asked");
    assert_eq!(denied(fixture.settle(with.id, answer("late")).await.expect_err("too late")), Denied::Expired);
    assert_eq!(fixture.store.write(|tx| tx.settle_due()).await.expect("settled").len(), 2);
    let state = |id| fixture.store.read(|connection| request_by_id(connection, id)).expect("a store").expect("a request").state;
    assert_eq!(
        state(with.id).answer().map(|answer| (answer.decision.to_text(), answer.by.to_string())),
        Some(("b".to_owned(), "default".to_owned()))
    );
    assert!(matches!(state(without.id), RequestState::Expired { .. }));
    assert_eq!(state(later.id), RequestState::Pending);
    let next = fixture.store.read(next_until).expect("a store");
    assert_eq!(next, Some(later.expires_at));
}

fn approval() -> NewRequest {
    let subject = Subject::Approval { preview: Some("- a\n+ b".to_owned()), risk: None };
    NewRequest { subject, question: "drop it".to_owned(), options: Vec::new(), ..question(true, 60_000, None) }
}

fn decide(decision: Decision) -> RequestEvent {
    RequestEvent::Answer { by: Principal::Person, decision }
}

fn no(reason: &str) -> RequestEvent {
    decide(Decision::Denied { reason: reason.to_owned() })
}

/// An earlier version stored a default for approvals.
#[tokio::test]
async fn stored_default_of_an_approval_does_not_count() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let expires_at = clock::steady().plus_ms(-1);
    let asked = fixture.ask(run.id, NewRequest { expires_at, default: Some("approved".to_owned()), ..approval() }).await.expect("asked");
    assert_eq!(fixture.store.write(|tx| tx.settle_due()).await.expect("settled").len(), 1);
    let settled = fixture.store.read(|connection| request_by_id(connection, asked.id)).expect("a store").expect("a request");
    assert_eq!(
        (settled.default, settled.state.answer().map(|answer| answer.decision.to_text())),
        (None, Some("denied: nobody decided in time".to_owned()))
    );
}

#[tokio::test]
async fn approval_is_decided_once_and_revocable_until_used() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let revoked = fixture.ask(run.id, approval()).await.expect("asked");
    assert!(matches!(denied(fixture.settle(revoked.id, answer("yes")).await.expect_err("an approval needs a decision")), Denied::Unfitting { .. }));
    fixture.settle(revoked.id, decide(Decision::approved())).await.expect("approved");
    let read = fixture.settle(revoked.id, no("wait")).await.expect("a revocation");
    assert_eq!(read.state.answer().map(|answer| answer.decision.to_text()), Some("denied: wait".to_owned()));
    assert!(matches!(denied(fixture.settle(revoked.id, decide(Decision::approved())).await.expect_err("a denial is final")), Denied::AnsweredBy(_)));
    let run = fixture.run(run.id);
    assert_eq!((run.pending, run.blocking_pending, run.unread), (0, 0, 1), "a revocation is no second answer");

    let used = fixture.ask(run.id, approval()).await.expect("asked");
    fixture.settle(used.id, decide(Decision::approved())).await.expect("approved");
    fixture.settle(used.id, RequestEvent::Retrieve).await.expect("read");
    assert_eq!(denied(fixture.settle(used.id, no("wait")).await.expect_err("too late")), Denied::Used);

    let told = fixture.ask(run.id, approval()).await.expect("asked");
    let told = fixture.settle(told.id, decide(Decision::approved())).await.expect("approved");
    let untold = |fixture: &Fixture| fixture.store.read(|connection| undelivered_of(connection, run.id, 10)).expect("a store");
    assert_eq!(untold(&fixture).len(), 2, "what was read is not told again");
    fixture
        .store
        .write({
            let told = told.clone();
            move |tx| tx.tell(&told, AttemptNo(2))
        })
        .await
        .expect("told");
    assert_eq!(denied(fixture.settle(told.id, no("wait")).await.expect_err("it is in a prompt")), Denied::Used);
    assert_eq!(untold(&fixture).len(), 2, "the attempt that got them has not started yet");
}

#[tokio::test]
async fn finished_run_closes_its_questions_and_never_changes() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    fixture.advance(run.id, RunEvent::StopAsked(StopReason::Cancelled)).await.expect("stopping");
    fixture.advance(run.id, ended(0)).await.expect("ended");
    let run = fixture.run(run.id);
    assert_eq!(run.state, RunState::Finished(Outcome::Cancelled));
    assert_eq!((run.pending, run.blocking_pending), (0, 0));
    assert_eq!(denied(fixture.settle(asked.id, answer("x")).await.expect_err("withdrawn")), Denied::Withdrawn);
    assert!(matches!(denied(fixture.ask(run.id, question(true, 60_000, None)).await.expect_err("refused")), Denied::RunFinished(_)));
    for event in [RunEvent::Claimed, RunEvent::Resumed, RunEvent::SupervisorLost, ended(0)] {
        assert!(matches!(denied(fixture.advance(run.id, event).await.expect_err("refused")), Denied::RunFinished(_)));
    }
}

#[tokio::test]
async fn queued_runs_keep_dispatch_order() {
    let fixture = fixture();
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(fixture.dispatch(&Principal::Person, None).await.id);
    }
    for (index, id) in expected.iter().enumerate() {
        let last = fixture.run(expected[4]);
        assert_eq!(fixture.store.read(|connection| queue_place(connection, &last)).expect("a place"), 5 - index as u64);
        let next = fixture.store.read(next_queued).expect("a store").expect("a queued run");
        assert_eq!(next.id, *id);
        fixture.store.write(move |tx| tx.claim(&next, &[1], KEEP)).await.expect("claimed");
    }
    let counted = fixture.store.read(counts).expect("counts");
    assert_eq!((counted.live, counted.queued), (5, 0));
}

#[tokio::test]
async fn run_name_resolves_only_for_its_owner() {
    let fixture = fixture();
    let (mine, theirs) = (Principal::Person, Principal::Client(adjutant_core::ClientName::parse("/p").expect("a name")));
    let otter = fixture.dispatch(&mine, Some("brave-otter")).await;
    let olive = fixture.dispatch(&theirs, Some("brave-olive")).await;
    let find = |given: &str, owner: Option<&Principal>| fixture.store.read(|connection| run_by_ref(connection, given, owner).map(|run| run.id));
    for given in ["brave-otter", "brave-ot", &otter.id.to_string(), &otter.id.to_string()[..20]] {
        assert_eq!(find(given, Some(&mine)).expect(given), otter.id);
    }
    assert_eq!(find("@last", None).expect("newest"), olive.id);
    assert_eq!(find("@last", Some(&mine)).expect("mine"), otter.id);
    assert_eq!(find("brave", Some(&theirs)).expect("only one of theirs"), olive.id);
    assert!(matches!(denied(find("brave", None).expect_err("two")), Denied::Ambiguous { .. }));
    let unknown = denied(find("0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11", Some(&theirs)).expect_err("unknown"));
    let foreign = denied(find(&otter.id.to_string(), Some(&theirs)).expect_err("foreign"));
    assert_eq!(unknown.to_string().replace("0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11", "X"), foreign.to_string().replace(&otter.id.to_string(), "X"));
    for given in ["", "../../etc/passwd", "a\0b", "%", "_", "BRAVE-OTTER", &"a".repeat(4096)] {
        assert!(matches!(denied(find(given, None).expect_err("no run")), Denied::NotFound { .. }), "{given:?}");
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
    let run = fixture.store.write(move |tx| tx.dispatch(&new)).await.expect("dispatched");
    assert_eq!(run.task, "first line");
    let input = fixture.store.read(|connection| run_input(connection, run.id)).expect("its input");
    assert_eq!((input.prompt, input.agent, input.env), (expected.prompt, expected.agent, expected.env));
}

#[tokio::test]
async fn owner_is_notified_of_an_end_once_and_others_see_it_by_position() {
    let fixture = fixture();
    let owner = Principal::Client(adjutant_core::ClientName::parse("/work/a").expect("a name"));
    let run = fixture.running(&owner).await;
    let before = fixture.store.read(last_seq).expect("a position");
    fixture.advance(run.id, ended(1)).await.expect("ended");
    let end = fixture.run(run.id).end_seq.expect("its end");
    let ends = |who: &Principal, after| fixture.store.read(|connection| unknown_ends(connection, who, after, 10)).expect("ends").len();
    assert_eq!((ends(&owner, before), ends(&owner, end)), (1, 1), "the owner was not notified yet");
    assert_eq!((ends(&Principal::Person, before), ends(&Principal::Person, end)), (1, 0));
    let bad = || fixture.store.read(|connection| unnotified_bad_ends(connection, &owner, 10)).expect("ends").runs.len();
    assert_eq!(bad(), 1);
    let notify = |who: Principal, until| fixture.store.write(move |tx| tx.set_notified(&who, &[(run.id, until)]));
    assert_eq!(notify(Principal::Person, end).await.expect("recorded"), 0, "only the owner is notified");
    assert_eq!(notify(owner.clone(), before).await.expect("recorded"), 0, "not of what came later");
    assert_eq!(notify(owner.clone(), end).await.expect("recorded"), 1);
    assert_eq!((ends(&owner, before), ends(&owner, end), bad()), (1, 0, 0));
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
    assert_eq!((listed(&Principal::Person), listed(&client)), ((1, 0, 0), (0, 0, 0)));
    fixture.advance(run.id, ended(0)).await.expect("ended");
    assert_eq!((listed(&Principal::Person), listed(&client)), ((0, 0, 1), (0, 0, 0)));
    let beyond = |who: &Principal| fixture.store.read(|connection| unknown_ends_beyond(connection, who, EventSeq(0), EventSeq(0))).expect("read").0;
    assert_eq!((beyond(&Principal::Person), beyond(&client)), (1, 0));
}

#[tokio::test]
async fn commit_wakes_only_its_waiters() {
    let fixture = fixture();
    let (one, other) = (fixture.running(&Principal::Person).await, fixture.running(&Principal::Person).await);
    let wake_ups = fixture.store.wake_ups();
    let hears = wake_ups.subscribe(vec![Topic::Run(one.id)]);
    let silent = wake_ups.subscribe(vec![Topic::Run(other.id)]);
    fixture.ask(one.id, question(false, 60_000, None)).await.expect("asked");
    hears.wait().await;
    assert!(futures::FutureExt::now_or_never(silent.wait()).is_none());
}

#[tokio::test]
async fn wake_up_carries_the_settled_answer() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let waits = fixture.store.wake_ups().subscribe(vec![Topic::Answer(run.id, asked.id)]);
    // Neither a refusal nor another event passes an answer to the waiting call.
    let id = asked.id;
    let refused = fixture.store.write(move |tx| {
        let request = request_by_id(tx.connection(), id)?.expect("a request");
        tx.settle_and_retrieve(&request, answer("a"))?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(refused.await.is_err() && waits.settled().is_none());
    assert!(futures::FutureExt::now_or_never(waits.wait()).is_none());
    let settled = fixture.settle_and_retrieve(asked.id, answer("b")).await.expect("answered");
    waits.wait().await;
    let handed = waits.settled().expect("handed over");
    let stored = fixture.store.read(|connection| request_by_id(connection, asked.id)).expect("a store").expect("a request");
    assert_eq!(handed.state, settled.state);
    assert_eq!(format!("{handed:?}"), format!("{stored:?}"), "nothing that a second read would show is missing");
    // A later call reads the answer from the store.
    assert!(fixture.store.wake_ups().subscribe(vec![Topic::Answer(run.id, asked.id)]).settled().is_none());
}

#[tokio::test]
async fn answer_with_queued_messages_has_to_be_read() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let waits = fixture.store.wake_ups().subscribe(vec![Topic::Answer(run.id, asked.id)]);
    let id = RequestId::new(clock::now(), random());
    fixture.store.write(move |tx| tx.send_message(&run, &Principal::Person, id, "go left")).await.expect("sent");
    fixture.settle_and_retrieve(asked.id, answer("b")).await.expect("answered");
    waits.wait().await;
    assert!(waits.settled().is_none(), "the message would not be delivered");
}

/// Concurrent calls each get their own result exactly once, whichever thread commits them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_call_is_committed_once_by_any_thread() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let mut calls = tokio::task::JoinSet::new();
    for lane in 0..16_i64 {
        let (store, run) = (fixture.store.clone(), run.clone());
        calls.spawn(async move {
            let mut seen = Vec::new();
            for round in 0..20_i64 {
                let (run, id) = (run.clone(), RequestId::new(clock::now(), random()));
                let text = format!("{lane} {round}");
                let sent = store.write(move |tx| {
                    let sent = tx.send_message(&run, &Principal::Person, id, &text)?;
                    if round % 5 == 4 { Err(StoreError::Closed) } else { Ok(sent) }
                });
                match sent.await {
                    Ok(sent) => seen.push(sent.text),
                    Err(error) => assert!(round % 5 == 4, "{error}"),
                }
            }
            seen
        });
    }
    let mut acknowledged: Vec<String> = calls.join_all().await.concat();
    fixture.store.close();
    let reopened = Store::open(&fixture.home).expect("reopened");
    let mut stored: Vec<String> = reopened
        .read(|connection| {
            let mut texts = connection.prepare("SELECT text FROM messages")?;
            Ok(texts.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .expect("a store");
    acknowledged.sort();
    stored.sort();
    assert_eq!((acknowledged.len(), acknowledged), (16 * 16, stored));
}

#[tokio::test]
async fn messages_are_delivered_once() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let (of, id) = (run.clone(), RequestId::new(clock::now(), random()));
    let message = fixture.store.write(move |tx| tx.send_message(&of, &Principal::Person, id, "go left")).await.expect("sent");
    let queued = fixture.store.read(|connection| queued_messages(connection, run.id)).expect("queued");
    assert_eq!(queued.len(), 1);
    for _ in 0..2 {
        let (of, ids) = (run.clone(), vec![message.id.clone()]);
        fixture.store.write(move |tx| tx.deliver_messages(&of, &ids, "live")).await.expect("delivered");
    }
    assert!(fixture.store.read(|connection| queued_messages(connection, run.id)).expect("queued").is_empty());
    assert_eq!(fixture.kinds(run.id).iter().filter(|kind| **kind == "message.delivered").count(), 1);
}

#[tokio::test]
async fn acknowledged_writes_survive_reopening() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    fixture.store.close();
    let reopened = Store::open(&fixture.home).expect("reopened");
    let found = reopened.read(|connection| run_by_id(connection, run.id)).expect("a store").expect("a run");
    assert_eq!((found.state, found.attempt), (RunState::Running, AttemptNo(1)));
    let attempt = reopened.read(|connection| attempt_row(connection, run.id, AttemptNo(1))).expect("a store").expect("an attempt");
    assert_eq!(attempt.token_hash, b"hash");
    assert!(matches!(fixture.store.write(|tx| tx.forget_tasks()).await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn removing_a_run_removes_its_data() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture.ask(run.id, question(true, 60_000, None)).await.expect("asked");
    let live = run.clone();
    assert!(fixture.store.write(move |tx| tx.remove(&live)).await.is_err());
    let finished = fixture.advance(run.id, ended(0)).await.expect("ended");
    fixture.store.write(move |tx| tx.remove(&finished)).await.expect("removed");
    assert!(fixture.store.read(|connection| request_by_id(connection, asked.id)).expect("a store").is_none());
    assert!(fixture.kinds(run.id).is_empty());
}

#[tokio::test]
async fn kept_wait_ends_once() {
    let fixture = fixture();
    let id = random_hex::<8>();
    let now = clock::now();
    let task = Task {
        id: id.clone(),
        principal: "person".to_owned(),
        wait: "{}".to_owned(),
        status: "working".to_owned(),
        result: None,
        created_at: now,
        updated_at: now,
        ttl_ms: 60_000,
        due_at: clock::steady().plus_ms(60_000),
    };
    fixture.store.write(move |tx| tx.start_task(&task)).await.expect("kept");
    let end = |status: &'static str, result: Option<&'static str>| {
        let id = id.clone();
        fixture.store.write(move |tx| tx.end_task(&id, status, result))
    };
    assert!(end("completed", Some("{}")).await.expect("ended"));
    assert!(!end("cancelled", None).await.expect("too late"));
    let stored = fixture.store.read(|connection| task_by_id(connection, &id)).expect("a store").expect("a task");
    assert_eq!((stored.status.as_str(), stored.result.as_deref()), ("completed", Some("{}")));
}

/// Opens foreign files, and files of a newer version.
#[tokio::test]
async fn foreign_or_newer_file_is_refused_unchanged() {
    static ROUND: AtomicU8 = AtomicU8::new(0);
    for (sql, expect) in [
        ("CREATE TABLE theirs (a);", "is not a store"),
        ("PRAGMA application_id = 0x61646a74; CREATE TABLE runs (a); PRAGMA user_version = 99;", "newer version"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join(ROUND.fetch_add(1, Ordering::SeqCst).to_string())).expect("a home");
        home.ensure().expect("a home");
        rusqlite::Connection::open(home.database()).expect("a file").execute_batch(sql).expect("its content");
        let error = Store::open(&home).expect_err("refused");
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[tokio::test]
async fn closed_store_refuses_reads_and_waits() {
    let fixture = fixture();
    let reading = std::sync::Barrier::new(super::READERS_MAX + 1);
    let closed = std::sync::Barrier::new(super::READERS_MAX + 1);
    std::thread::scope(|scope| {
        for _ in 0..super::READERS_MAX {
            scope.spawn(|| {
                let read = fixture.store.read(|_| {
                    reading.wait();
                    closed.wait();
                    Ok(())
                });
                read.expect("a read in progress completes");
            });
        }
        reading.wait();
        let waiting = scope.spawn(|| fixture.store.read(|_| Ok(())));
        fixture.store.close();
        assert!(matches!(waiting.join().expect("it returns"), Err(StoreError::Closed)));
        closed.wait();
    });
    assert!(matches!(fixture.store.read(|_| Ok(())), Err(StoreError::Closed)));
    assert!(matches!(fixture.store.write(|_| Ok(())).await, Err(StoreError::Closed)));
}
