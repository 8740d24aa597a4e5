//! A fresh store, and what is stored in it.

use crate::clock;
use crate::store::*;
use adjutant_core::agent::{AgentGate, AgentOverrides};
use adjutant_core::run::Retention;
use adjutant_core::{
    AgentName, AgentSpec, AttemptEnd, Decision, Denied, EventSeq, Exit, Fence, HarnessKind,
    Isolation, Permissions, Principal, PromptVia, RequestEvent, RequestId, RunEvent, RunId,
    RunName, Subject,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The token of the supervisors of runs on runners.
pub const TOKEN: &str = "token";
pub const KEEP: Retention = Retention { stopped_ms: 60_000 };

pub struct Fixture {
    pub store: Store,
    pub home: Home,
    pub place: StoreLocation,
    _dir: tempfile::TempDir,
}

pub fn fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let place = super::place_of_this_run().unwrap_or_else(|| StoreLocation::Home(home.clone()));
    Fixture {
        store: Store::open_at(&home, place.clone()).expect("a store"),
        home,
        place,
        _dir: dir,
    }
}

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("random bytes");
    bytes
}

pub fn new_run(owner: &Principal, name: Option<&str>) -> NewRun {
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
        gate: Some(AgentGate {
            key_variable: Some("MY_GATE_KEY".to_owned()),
        }),
        description: "d".to_owned(),
        timeout_ms: Some(5),
        patience_ms: 300_000,
        stall_ms: None,
        memory_bytes_max: Some(7),
        grace_ms: 8_000,
        report_grace_ms: Some(60_000),
        ends_after_report: true,
        auto_resume: false,
        fence: Fence::Workspace,
        fence_write: vec!["~/.cache".to_owned()],
        has_identity: false,
        overrides: AgentOverrides {
            model: Some("m".to_owned()),
            args: vec!["--x".to_owned()],
            env: vec!["B".to_owned()],
        },
    };
    NewRun {
        id: RunId::new(clock::now(), random()),
        name: name.map(|name| RunName::parse(name).expect("a name")),
        name_seed: random(),
        cwd: "/tmp".to_owned(),
        workspace: None,
        fence_workspace: Some("/tmp".to_owned()),
        owner: owner.clone(),
        retry_of: None,
        under: None,
        rank: adjutant_core::tree::Rank::default(),
        pool: adjutant_core::PoolName::default(),
        after: Vec::new(),
        after_failed: adjutant_core::pool::AfterFailed::default(),
        agent_why: None,
        estimate_ms: None,
        budget: adjutant_core::Budget::default(),
        unmetered: Vec::new(),
        task: "\n first line\nsecond".to_owned(),
        by: owner.clone(),
        input: RunInput {
            prompt: "\n first line\nsecond".to_owned(),
            agent,
            env: credentials::DispatchEnv::new(
                BTreeMap::from([("B".to_owned(), "2".to_owned())]),
                None,
            ),
            criteria: None,
            accept: Vec::new(),
            variables: None,
        },
    }
}

pub fn question(blocking: bool, expires_in_ms: i64, default: Option<&str>) -> NewRequest {
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
    pub async fn dispatch(&self, owner: &Principal, name: Option<&str>) -> Run {
        let new = new_run(owner, name);
        self.store
            .write(move |tx| tx.dispatch(&new))
            .await
            .expect("dispatched")
    }

    pub async fn running(&self, owner: &Principal) -> Run {
        let run = self.dispatch(owner, None).await;
        self.store
            .write(move |tx| {
                let run = tx.claim(&run, b"hash", None, KEEP)?;
                tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
            })
            .await
            .expect("running")
    }

    /// Starts a run on a runner. The lease of its attempt is over.
    pub async fn hosted(&self, new: NewRun, host: &str) -> Run {
        let host = host.to_owned();
        let token_hash = Sha256::digest(TOKEN);
        let started = self.store.write(move |tx| {
            let run = tx.dispatch(&new)?;
            let run = tx.claim(
                &run,
                &token_hash,
                Some(HostLease {
                    host: &host,
                    lease_ms: 0,
                }),
                KEEP,
            )?;
            tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
        });
        started.await.expect("running")
    }

    pub async fn ask(&self, run: RunId, new: NewRequest) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let run = tx.run(run)?;
                tx.ask(&run, &new)
            })
            .await
    }

    pub async fn answer_waiting_call(
        &self,
        id: RequestId,
        event: RequestEvent,
    ) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let request = request_by_id(tx.connection(), id)?.expect("a request");
                tx.answer_waiting_call(&request, event)
            })
            .await
    }

    pub async fn advance_request(
        &self,
        id: RequestId,
        event: RequestEvent,
    ) -> Result<Request, StoreError> {
        self.store
            .write(move |tx| {
                let request = request_by_id(tx.connection(), id)?.expect("a request");
                tx.advance_request(&request, event)
            })
            .await
    }

    pub async fn advance(&self, run: RunId, event: RunEvent) -> Result<Run, StoreError> {
        self.store
            .write(move |tx| {
                let run = tx.run(run)?;
                tx.advance(&run, event, KEEP, "test", "")
            })
            .await
    }

    pub fn run(&self, id: RunId) -> Run {
        self.store
            .read(|connection| run_by_id(connection, id))
            .expect("a store")
            .expect("a run")
    }

    pub fn kinds(&self, id: RunId) -> Vec<&'static str> {
        let events = self
            .store
            .read(|connection| {
                events_after(connection, &Principal::Person, Some(id), EventSeq(0), 1_000)
            })
            .expect("events");
        assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        events.iter().map(|event| event.kind.word()).collect()
    }
}

pub fn answer(text: &str) -> RequestEvent {
    RequestEvent::Answer {
        by: Principal::Person,
        decision: Decision::Text(text.to_owned()),
    }
}

pub fn ended(code: i32) -> RunEvent {
    RunEvent::Ended(AttemptEnd {
        exit: Exit::Code(code),
        verdict: None,
        again_at: None,
        waits_for_caller: false,
        failure_reported: false,
        blocking_request_open: false,
        checkpoint_left: false,
        unreadable: None,
        can_resume: false,
        by_itself: false,
    })
}

pub fn denied(error: StoreError) -> Denied {
    match error {
        StoreError::Denied(denied) => denied,
        other => panic!("not a refusal: {other}"),
    }
}
