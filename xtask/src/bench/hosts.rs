//! A hub and a runner on two machines: how fast an answer reaches a worker on the runner.

use super::{Bench, chat};
use crate::fleet::namespace::Namespace;
use crate::fleet::network::{Network, address};
use crate::fleet::service::Service;
use crate::fleet::site::{CERTIFICATE, KEY, write_private};
use crate::floor;
use crate::lab::{Lab, Result};
use crate::stats::{Row, Samples};
use adjutant_api::view::HubView;
use rustix::process::{Signal, kill_process};
use serde::Deserialize;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The settings of a hub with TLS.
pub const TLS: &str = "[tls]\ncert = \"fleet.pem\"\nkey = \"fleet.key\"\n";
const HUB: usize = 0;
const RUNNER: usize = 1;
const POOL: &str = "fleet";
const ROUND_TRIPS: usize = 2_000;
const TARGET_MS: f64 = 10.0;
/// How long the hub may take to start, and processes to end. A run ends soon after its last answer.
const START_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(10);

/// Measures the time from the answer to the return of the blocked call of a worker on a runner.
pub async fn answer(bench: &Bench) -> Result<Vec<Row>> {
    let machines = Machines::new();
    let round_trips = machines.round_trips()?;
    let lab = bench.lab(&format!(
        "listen = \"{}:0\"\n{TLS}[pools.{POOL}]\nslots = 4\nrunners = true\n",
        machines.address()
    ))?;
    write_certificate(&lab)?;
    let mut hub = Service::new(lab, &["serve"]);
    hub.ensure(machines.get(HUB))?;
    let lab = hub.lab.clone();
    let view = wait_for_hub(&hub).await?;
    let token = RunnerToken::new(&lab, "runner")?;
    let there = Lab::new(&bench.adj, "")?;
    let token_file = there.dir.path().join("token");
    write_private(&token_file, &token.token)?;
    let (token_file, url) = (
        token_file.display().to_string(),
        view.url.ok_or("the hub does not listen")?,
    );
    let args = [
        "runner",
        "--join",
        &url,
        "--token-file",
        &token_file,
        "--fingerprint",
        &token.fingerprint,
        "--pool",
        POOL,
    ];
    let mut runner = Service::new(there, &args);
    runner.ensure(machines.get(RUNNER))?;
    let times = chat::answers(bench, &lab, Some(POOL))
        .await
        .map_err(|error| format!("{error}; the runner: {}", runner.log()))?;
    end(&mut runner).await?;
    lab.run(&["stop"])?;
    let left = left_after(&[&lab, &runner.lab]).await;
    if !left.is_empty() {
        return Err(format!("not ended {END_LIMIT:?} after their hub: {left:?}").into());
    }
    let what = format!(
        "answer given to the blocked call of a worker on a runner returning, TLS {}",
        machines.described()
    );
    let floor = bench.commit_ms() + round_trips.p50();
    Ok(vec![
        Row::plain(
            "floor: TCP round trip between hub and runner",
            super::ms(round_trips.p50()),
            super::ms(round_trips.p99()),
        ),
        Row::latency(&what, &times, Some(floor), TARGET_MS),
    ])
}

/// The machines of hub and runner: network namespaces with a switch between them. `None`: both are
/// this machine.
struct Machines(Option<Network>);

impl Machines {
    fn new() -> Self {
        let network = Network::new(2);
        if let Err(error) = &network {
            eprintln!("hub and runner are connected by loopback: {error}");
        }
        Self(network.ok())
    }

    fn get(&self, machine: usize) -> Option<&Namespace> {
        self.0.as_ref().map(|network| &network.machines[machine])
    }

    /// Returns the address of the hub.
    fn address(&self) -> String {
        if self.0.is_some() {
            address(HUB)
        } else {
            "127.0.0.1".to_owned()
        }
    }

    fn described(&self) -> &'static str {
        if self.0.is_some() {
            "between network namespaces"
        } else {
            "over loopback"
        }
    }

    /// Measures the link.
    fn round_trips(&self) -> Result<Samples> {
        let bind = || TcpListener::bind((self.address(), 0));
        let listener = self
            .get(HUB)
            .map_or_else(bind, |machine| machine.inside(bind))?;
        let to = listener.local_addr()?;
        let connect = || TcpStream::connect(to);
        let near = self
            .get(RUNNER)
            .map_or_else(connect, |machine| machine.inside(connect))?;
        let (far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        Ok(floor::round_trips(near, far, ROUND_TRIPS)?)
    }
}

/// Writes the files that [`TLS`] names into a home.
pub fn write_certificate(lab: &Lab) -> Result<()> {
    write_private(&lab.home.dir.join("fleet.pem"), CERTIFICATE)?;
    write_private(&lab.home.dir.join("fleet.key"), KEY)
}

/// What a runner needs to call a hub.
#[derive(Debug, Deserialize)]
pub struct RunnerToken {
    pub token: String,
    /// Of the hub's certificate.
    pub fingerprint: String,
}

impl RunnerToken {
    pub fn new(lab: &Lab, name: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Printed {
            data: RunnerToken,
        }
        let made = lab.run(&["--json", "token", "new", name, "--role", "runner"])?;
        Ok(serde_json::from_str::<Printed>(&made)?.data)
    }
}

/// Ends a runner, which waits until its attempts have ended and the hub has their logs.
async fn end(runner: &mut Service) -> Result<()> {
    kill_process(
        runner.pid().ok_or("the runner was not started")?,
        Signal::TERM,
    )?;
    let began = Instant::now();
    while runner.is_running()? {
        if began.elapsed() > END_LIMIT {
            return Err(format!("the runner does not end: {}", runner.log()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn wait_for_hub(hub: &Service) -> Result<HubView> {
    let began = Instant::now();
    loop {
        match hub.lab.hub().await {
            Ok(view) => return Ok(view),
            Err(error) if began.elapsed() > START_LIMIT => {
                return Err(format!("the hub does not start: {error}; {}", hub.log()).into());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Returns the processes that have not ended in time.
async fn left_after(labs: &[&Lab]) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left: Vec<String> = labs
            .iter()
            .flat_map(|lab| lab.processes())
            .map(|process| format!("{}: {}", process.pid, process.line()))
            .collect();
        if left.is_empty() || began.elapsed() > END_LIMIT {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
