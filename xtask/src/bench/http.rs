//! Calls over HTTP, compared with the same calls on the hub's socket.

use super::hub_connection::HubConnection;
use super::{Bench, in_lab};
use crate::lab::{Result, cpu_time};
use crate::stats::{Row, Samples, short};
use adjutant_api::view::GetRun;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Number of connections whose CPU time is measured.
const CONNECTIONS: u32 = 300;
/// The hub's CPU time for another connection of a program on this machine, without its call.
const CONNECTION_MAX_MS: f64 = 1.0;

pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let calls = bench.scale.answers as usize;
    in_lab(bench, "listen = \"127.0.0.1:0\"\n", |lab| async move {
        lab.start_hub()?;
        let client = lab.client();
        let url = lab.hub().await?.url.ok_or("the hub does not listen")?;
        let token = lab.run(&["token", "new", "bench"])?;
        let mut http = HubConnection::open(&url, token.trim())?;
        let order = json!({"agent": "echo", "prompt": "say hi\n", "cwd": lab.home.dir});
        let run: Value = serde_json::from_slice(&http.post("/api/v1/dispatch", "", &order)?)?;
        let run = run["run_id"].as_str().ok_or("a run has an id")?.to_owned();
        let (mut socket, mut times, mut tools) = (Samples::default(), Samples::default(), Samples::default());
        let call = GetRun { run: run.clone(), snapshots: false, newest: false };
        for _ in 0..calls {
            let start = Instant::now();
            client.call(&call).await?;
            socket.push(start.elapsed());
            let start = Instant::now();
            http.post("/api/v1/run", "", &json!({"run": run}))?;
            times.push(start.elapsed());
            let start = Instant::now();
            let params = json!({"name": "check_subagent_status", "arguments": {"run_id": run}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }});
            let headers = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
                           mcp-name: check_subagent_status\r\n";
            http.post("/mcp", headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))?;
            tools.push(start.elapsed());
        }
        let over = (tools.p50() - socket.p50()).max(0.0);
        let hub = lab.hub().await?.pid;
        let body = json!({"run": run});
        let kept = cpu_of(hub, || http.post("/api/v1/run", "", &body).map(drop))?;
        let new = cpu_of(hub, || HubConnection::open(&url, token.trim())?.post("/api/v1/run", "", &body).map(drop))?;
        let each = new.saturating_sub(kept).as_secs_f64() * 1e3 / f64::from(CONNECTIONS);
        Ok(vec![
            Row::plain("HTTP: the same call on the socket", shown(socket.p50()), shown(socket.p99())),
            Row::plain("HTTP: call of the API", shown(times.p50()), shown(times.p99())),
            Row::plain("HTTP: call of an MCP tool", shown(tools.p50()), shown(tools.p99())),
            Row::number("HTTP: MCP tool above the call on the socket", over, "ms", 0.3, true),
            Row::number("HTTP: CPU time of the hub for another connection of a program on this machine", each, "ms", CONNECTION_MAX_MS, true),
        ])
    })
    .await
}

/// Returns the CPU time of the hub for as many calls as connections are measured.
fn cpu_of(hub: u32, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let before = cpu_time(hub)?;
    for _ in 0..CONNECTIONS {
        call()?;
    }
    Ok(cpu_time(hub)?.saturating_sub(before))
}

fn shown(ms: f64) -> String {
    format!("{} ms", short(ms))
}
