//! Memory, floods of output, and many runs at once.

use super::crowd::{count_runs, gather, idle_cost};
use super::{Bench, in_lab};
use crate::lab::{Lab, Result, lock_pid, pss_mb};
use crate::mcp::Mcp;
use crate::stats::{Row, Samples};
use adjutant_api::view::{Cancel, ListRuns, RunView, Wait, WaitUntil};
use adjutant_core::{OutcomeKind, RunStateKind};
use adjutant_net::hub_client::Client;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub async fn memory(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = in_lab(bench, "", |lab| async move {
        let client = lab.client();
        // The run is idle and has finished starting.
        let pid = lab.hub().await?.pid;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let hub = pss_mb(pid)?;
        let run = lab.dispatch(&client, "echo", "say here\nhang").await?;
        let dir = lab.attempt_dir(&run.identity.run_id, 1);
        wait_for_log(&lab, &run.place.log_path).await?;
        let mut server = Mcp::parent(&lab, "bench")?;
        server.request("tools/list", json!({}))?;
        Ok(vec![
            Row::number(
                "memory, PSS: adj mcp",
                pss_mb(server.pid())?,
                "MB",
                6.0,
                true,
            ),
            Row::number(
                "memory, PSS: guard",
                pss_mb(lock_pid(&dir.guard_lock())?)?,
                "MB",
                1.0,
                true,
            ),
            Row::number(
                "memory, PSS: supervisor",
                pss_mb(lock_pid(&dir.supervisor_lock())?)?,
                "MB",
                6.0,
                true,
            ),
            Row::number(
                "memory, PSS: Adjutant's processes of one live run",
                memory_of_run(&dir)?,
                "MB",
                10.0,
                true,
            ),
            Row::number("memory, PSS: hub, idle", hub, "MB", 12.0, true),
        ])
    })
    .await?;
    rows.extend(
        in_lab(bench, "live_runs_max = 1", |lab| async move {
            let client = lab.client();
            lab.dispatch(&client, "echo", "hang").await?;
            let mut work = JoinSet::new();
            for lane in 0..16 {
                let (client, lab) = (client.clone(), lab.clone());
                let count = bench.scale.finished_runs / 16
                    + u32::from(lane < bench.scale.finished_runs % 16);
                work.spawn(async move {
                    for number in 0..count {
                        let run = lab
                            .dispatch(&client, "echo", &format!("say finished {number}"))
                            .await?;
                        client
                            .call(&Cancel {
                                run: run.identity.run_id,
                                reason: None,
                            })
                            .await?;
                    }
                    Result::Ok(())
                });
            }
            while let Some(done) = work.join_next().await {
                done??;
            }
            let what = format!(
                "memory, PSS: hub with {} finished runs",
                bench.scale.finished_runs
            );
            Ok(vec![Row::number(
                &what,
                pss_mb(lab.hub().await?.pid)?,
                "MB",
                16.0,
                true,
            )])
        })
        .await?,
    );
    Ok(rows)
}

/// Returns the memory of all processes of Adjutant for one live run: guard, supervisor and the
/// namespace's init. The supervisor also serves the worker's MCP.
fn memory_of_run(dir: &adjutant_api::protocol::AttemptDir) -> Result<f64> {
    let guard = lock_pid(&dir.guard_lock())?;
    let mut total = 0.0;
    let mut look_at = vec![guard];
    while let Some(pid) = look_at.pop() {
        let args = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_agent = args.split(|byte| *byte == 0).any(|arg| arg == b"__echo");
        if is_agent {
            continue;
        }
        total += pss_mb(pid)?;
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        look_at.extend(
            children
                .split_ascii_whitespace()
                .filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    Ok(total)
}

pub async fn wait_for_log(lab: &Lab, path: &str) -> Result<()> {
    let start = Instant::now();
    while std::fs::metadata(path).map_or(0, |meta| meta.len()) == 0 {
        if start.elapsed() > Duration::from_secs(10) {
            return Err(format!("nothing in {path}; {:?}", lab.hub().await).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Measures a run that writes as fast as it can.
pub async fn flood(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let start = Instant::now();
        let run = lab
            .dispatch(
                &client,
                "echo",
                &format!("flood {}", bench.scale.flood_bytes),
            )
            .await?;
        let wait = Wait {
            runs: vec![run.identity.run_id.clone()],
            until: WaitUntil::All,
            after: None,
            new_reports: false,
            wait_ms: 120_000,
        };
        let waiting = client.call(&wait);
        tokio::pin!(waiting);
        let mut others = Samples::default();
        let other = lab.client();
        let ended = loop {
            tokio::select! {
                ended = &mut waiting => break ended?,
                call = time_list_call(&other) => {
                    others.push(call?);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        if !ended
            .ended
            .first()
            .is_some_and(|run| run.has_outcome(OutcomeKind::Succeeded))
        {
            return Err(format!("{:?}", ended.ended).into());
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
        let (rate, disk) = (
            bench.scale.flood_bytes as f64 / 1e6 / seconds,
            disk_bytes(&lab.home.dir)? as f64 / 1e6,
        );
        let what = format!(
            "output of {} MB from one run",
            bench.scale.flood_bytes / 1_000_000
        );
        Ok(vec![
            Row::number(&what, rate, "MB/s", 200.0, false),
            // The log's cap is 64 MiB; the rest of the home is small.
            Row::number(
                "  the home's size on disk afterwards",
                disk,
                "MB",
                64.0 * 1.048_576 + 24.0,
                true,
            ),
            Row::number(
                "  the hub's other calls meanwhile, p99",
                others.p99(),
                "ms",
                100.0,
                true,
            ),
        ])
    })
    .await
}

async fn time_list_call(client: &Client) -> Result<Duration> {
    let start = Instant::now();
    client.call(&ListRuns::default()).await?;
    Ok(start.elapsed())
}

fn disk_bytes(dir: &std::path::Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        total += if meta.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            meta.blocks() * 512
        };
    }
    Ok(total)
}

/// Measures how fast a new hub adopts many live runs after the old one was killed.
pub async fn restart(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "live_runs_max = 5000", |lab| async move {
        let client = lab.client();
        let count = bench.scale.live_runs;
        gather(&lab, &client, count, "hang", is_running).await?;
        let pid = lab.hub().await?.pid;
        let idle = idle_cost(pid, Duration::from_secs(bench.scale.idle_s)).await?;
        let raw = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or("no pid")?;
        rustix::process::kill_process(raw, rustix::process::Signal::KILL)?;
        while lab.hub().await.is_ok_and(|hub| hub.pid == pid) {}
        let start = Instant::now();
        lab.start_hub()?;
        let adopted = count_adopted(&lab, &client, count as usize).await?;
        let time = start.elapsed().as_secs_f64();
        if adopted < count as usize {
            return Err(format!("only {adopted} of {count} runs were adopted").into());
        }
        Ok(vec![
            Row::number(
                &format!("hub restarted under {count} live runs: all adopted"),
                time,
                "s",
                2.0,
                true,
            ),
            Row::number(
                &format!("  idle cost of {count} live runs: hub"),
                idle,
                "% of a core",
                1.0,
                true,
            ),
        ])
    })
    .await
}

fn is_running(run: &RunView) -> bool {
    run.condition.state == RunStateKind::Running
}

async fn count_adopted(_lab: &Lab, client: &Client, count: usize) -> Result<usize> {
    let start = Instant::now();
    loop {
        let found = count_runs(client, is_running).await?;
        if found >= count || start.elapsed() > Duration::from_secs(20) {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
