//! Start times of commands, the MCP server and an agent.

use super::{Bench, in_lab};
use crate::lab::{Result, monotonic_ns};
use crate::mcp::Mcp;
use crate::stats::{Row, Samples};
use adjutant_api::view::{Dispatch, StopHub, WaitUntil};
use adjutant_core::{Fence, OutcomeKind};
use adjutant_net::hub_client::Client;
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let spawn = Some(bench.floors.spawn.p50());
        let mut listed = Samples::default();
        for _ in 0..bench.scale.starts {
            let start = Instant::now();
            let mut server = Mcp::parent(&lab, "bench")?;
            server.request("tools/list", json!({}))?;
            listed.push(start.elapsed());
        }
        let time = |args: &[&str]| -> Result<Duration> {
            let start = Instant::now();
            let status = lab
                .command(args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            let time = start.elapsed();
            if status.success() {
                Ok(time)
            } else {
                Err(format!("adj {args:?}: {status}").into())
            }
        };
        let (mut help, mut running, mut starting) =
            (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..bench.scale.starts {
            help.push(time(&["--help"])?);
            running.push(time(&["ps"])?);
        }
        for _ in 0..bench.scale.starts / 4 {
            lab.client().call(&StopHub {}).await?;
            while lab.hub().await.is_ok() {}
            starting.push(time(&["ps"])?);
        }
        Ok(vec![
            Row::latency(
                "adj mcp: start to tools/list, hub running",
                &listed,
                spawn,
                5.0,
            ),
            Row::latency("adj --help", &help, spawn, 10.0),
            Row::latency("adj ps, hub running", &running, spawn, 15.0),
            Row::latency("adj ps that starts the hub", &starting, spawn, 150.0),
        ])
    })
    .await
}

/// Measures the time from the dispatching call to the agent's first instruction.
pub async fn dispatch(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let journal = lab.dir.path().join("journal");
        let mut times = Samples::default();
        for number in 0..bench.scale.starts {
            let order = lab.order("echo", format!("journal {} {number}", journal.display()));
            times.push_ns(first_instruction_ns(&client, &journal, &order).await?);
        }
        Ok(vec![Row::latency(
            "dispatch to the agent's first instruction",
            &times,
            Some(bench.floors.spawn.p50() * 3.0 + bench.fdatasync_ms()),
            30.0,
        )])
    })
    .await
}

/// Measures the time that a fence adds to a start. Starts with and without a fence alternate.
pub async fn fence(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let workspace = lab.dir.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        let journal = workspace.join("journal");
        let mut added = Samples::default();
        for number in 0..bench.scale.starts {
            let open = lab.order("echo", format!("journal {} {number}", journal.display()));
            let open = Dispatch {
                cwd: workspace.display().to_string(),
                ..open
            };
            let fenced = Dispatch {
                fence: Some(Fence::Workspace.into()),
                ..open.clone()
            };
            let without_ns = first_instruction_ns(&client, &journal, &open).await?;
            added.push_ns(
                first_instruction_ns(&client, &journal, &fenced)
                    .await?
                    .saturating_sub(without_ns),
            );
        }
        Ok(vec![Row::latency(
            "a fence adds to a start",
            &added,
            Some(bench.floors.spawn.p50()),
            15.0,
        )])
    })
    .await
}

/// Measures the time from the dispatching call to the agent's first entry in the journal.
async fn first_instruction_ns(client: &Client, journal: &Path, order: &Dispatch) -> Result<u64> {
    let start_ns = monotonic_ns();
    let run = client.call(order).await?;
    let wait = adjutant_api::view::Wait {
        runs: vec![run.identity.run_id.clone()],
        until: WaitUntil::All,
        after: None,
        new_reports: false,
        wait_ms: 20_000,
    };
    let ended = client.call(&wait).await?;
    if !ended
        .ended
        .first()
        .is_some_and(|run| run.has_outcome(OutcomeKind::Succeeded))
    {
        return Err(format!("{}: {:?}", run.identity.name, ended.ended).into());
    }
    let text = std::fs::read_to_string(journal)?;
    let last: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
    if last.first() != Some(&run.identity.run_id.as_str()) {
        return Err(format!("the journal's last line is {last:?}").into());
    }
    Ok(last[3].parse::<u64>()?.saturating_sub(start_ns))
}
