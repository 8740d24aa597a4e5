//! The gate to a model's API, in a real supervisor with a real hub: the time that it adds to the
//! first byte, the rate at which it streams and counts, and its memory.

use super::model_api::{KEY, ModelConnection, answer};
use super::{Bench, in_lab};
use crate::lab::{Lab, Result, lock_pid, pss_mb};
use crate::stats::{Row, Samples};
use adjutant_api::view::RunView;
use adjutant_net::hub_client::Client;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// The agent reports the address of its model's API, and waits.
const AGENT: &str = "#!/bin/sh\ncat > /dev/null\necho \"$MODEL_URL $MODEL_KEY\"\nexec sleep 1000\n";

pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let api = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    let files = tempfile::tempdir()?;
    let write = |name: &str, text: &str, mode: u32| -> Result<String> {
        let path = files.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(path.display().to_string())
    };
    let (agent, key) = (write("agent", AGENT, 0o755)?, write("key", KEY, 0o600)?);
    let config = format!(
        "[presets.own]\ndriver = \"plain\"\ncommand = [{agent:?}]\n[presets.own.gate]\nbase_url = \"http://{api}\"\n\
         env = {{ MODEL_URL = \"{{gate_url}}\", MODEL_KEY = \"{{gate_token}}\" }}\n\
         [agents.gated]\nharness = \"own\"\npermissions = \"full\"\ngate = true\nkey = {{ file = {key:?} }}\n\
         [agents.bare]\nharness = \"own\"\npermissions = \"full\"\n"
    );
    let requests = bench.scale.answers as usize;
    in_lab(bench, &config, |lab| async move {
        let client = lab.client();
        let (bare, _) = start(&lab, &client, "bare").await?;
        let (gated, access) = start(&lab, &client, "gated").await?;
        let (url, token) = access
            .split_once(' ')
            .ok_or("the agent has not reported the address of its model's API")?;
        let (host, token) = (
            url.trim_start_matches("http://").to_owned(),
            token.to_owned(),
        );
        let measured = tokio::task::spawn_blocking(move || -> Result<(Samples, Samples, f64)> {
            let (mut direct, mut through) = (
                ModelConnection::open(&api.to_string(), KEY)?,
                ModelConnection::open(&host, &token)?,
            );
            let (mut floor, mut times) = (Samples::default(), Samples::default());
            for _ in 0..requests {
                floor.push(direct.first_byte()?);
                times.push(through.first_byte()?);
            }
            Ok((floor, times, through.stream_rate()?))
        });
        let (floor, times, rate) = measured.await??;
        let memory = pss_mb(supervisor(&lab, &gated)?)? - pss_mb(supervisor(&lab, &bare)?)?;
        Ok(vec![
            Row::latency(
                "request to first byte through the gate (floor: without it)",
                &times,
                Some(floor.p50()),
                floor.p50() + 1.0,
            ),
            Row::number(
                "stream through the gate, counted",
                rate,
                "MB/s",
                200.0,
                false,
            ),
            Row::number(
                "memory, PSS: a supervisor's gate after that",
                memory,
                "MB",
                4.0,
                true,
            ),
        ])
    })
    .await
}

fn supervisor(lab: &Lab, run: &RunView) -> Result<u32> {
    Ok(lock_pid(
        &lab.attempt_dir(&run.identity.run_id, 1).supervisor_lock(),
    )?)
}

async fn start(lab: &Lab, client: &Client, agent: &str) -> Result<(RunView, String)> {
    let run = lab.dispatch(client, agent, "wait").await?;
    super::size::wait_for_log(lab, &run.place.log_path).await?;
    let log = std::fs::read_to_string(&run.place.log_path)?;
    let line = log
        .lines()
        .find(|line| line.starts_with("http://"))
        .unwrap_or_default()
        .to_owned();
    Ok((run, line))
}
