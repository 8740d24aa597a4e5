//! What shows runs live: event streams over HTTP, `adj top`, and the memory of a hub that listens.

use super::crowd::gather;
use super::{Bench, in_lab};
use crate::lab::{Lab, Result, monotonic_ns, private_mb, pss_mb, written_mb};
use crate::stats::{Row, Samples, short};
use adjutant_api::view::{Cancel, Dispatch, ReadEvents, RunView};
use adjutant_core::RunStateKind;
use adjutant_net::hub_client::Client;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Number of unfinished runs.
const RUNS: u32 = 1_000;
/// The fewest of them that run, and that are parked.
const RUNNING_MIN: u32 = 8;
const PARKED_MIN: u32 = 12;
/// Number of clients that read an event stream, and of others that read nothing.
const CLIENTS: usize = 200;
const STALLED: usize = 20;
/// Size of the receive buffer of a client that reads nothing.
const STALLED_BUFFER_BYTES: usize = 4_096;
/// Timeout for an event, and for a redraw.
const EVENT_MAX: Duration = Duration::from_secs(10);
/// Events while the usage of `adj top` is measured.
const EVENTS_PER_S: u64 = 10;
/// The size of the terminal.
const ROWS: u16 = 40;
const COLUMNS: u16 = 120;
/// Asks, and exits without the answer.
const PARKS: &str = "tool ask_parent {\"question\": \"Which one?\", \"options\": [\"red\", \"green\"], \"wait_s\": 0}\nresume-here\nsay after";
const LISTENS: &str = "live_runs_max = 100\nlisten = \"127.0.0.1:0\"\n[pools.held]\nslots = 1\n";

/// Measures how fast an event reaches all clients that read the event stream, beside others that
/// read nothing.
pub async fn streams(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, LISTENS, |lab| async move {
        let client = lab.client();
        let filled = fill(&lab, &client, bench).await?;
        let address = Address::of(&lab).await?;
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let lines = address.follow("").await?;
            readers.spawn(read_events(lines, sender.clone()));
        }
        let alone = reach(bench, &lab, &client, &mut arrivals).await?;
        // These ask for the whole history, so that the hub has something to send.
        let stalled = (0..STALLED)
            .map(|_| address.stall())
            .collect::<Result<Vec<_>>>()?;
        let beside = reach(bench, &lab, &client, &mut arrivals).await?;
        let memory = pss_mb(lab.hub().await?.pid)?;
        let mut incomplete = 0_u32;
        let last = last_seq(&lab, &client, &mut arrivals).await?;
        for stream in stalled {
            let got = tokio::task::spawn_blocking(move || read_rest(stream, last)).await??;
            incomplete += u32::from(!address.catches_up(&client, got, last).await?);
        }
        readers.shutdown().await;
        let target_ms = 50.0;
        let floor = Some(bench.fdatasync_ms());
        Ok(vec![
            Row::plain(
                &format!("event streams: {CLIENTS} clients, {filled}"),
                String::new(),
                String::new(),
            ),
            Row::latency_p99(
                "  an event, from its call until all clients have it",
                &alone,
                floor,
                target_ms,
            ),
            Row::latency_p99(
                &format!("  the same beside {STALLED} clients that read nothing"),
                &beside,
                floor,
                target_ms,
            ),
            Row::number(
                "  memory, PSS: hub with all of them",
                memory,
                "MB",
                80.0,
                true,
            ),
            Row::number(
                &format!("  of these {STALLED}, that miss an event when they read again"),
                f64::from(incomplete),
                "",
                0.0,
                true,
            ),
        ])
    })
    .await
}

/// Measures `adj top` with many runs: its usage while events arrive, and the time from a key to the
/// redraw.
pub async fn top(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, LISTENS, |lab| async move {
        let client = lab.client();
        let filled = fill(&lab, &client, bench).await?;
        let mut terminal = Terminal::open(&lab, &["top"])?;
        let pid = terminal.child.id();
        // The first screen, and what the terminal's start still costs.
        terminal.redrawn()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let idle = usage(pid, Duration::from_secs(bench.scale.idle_s)).await?;
        let events = tokio::spawn(make_events(lab.clone(), bench.scale.idle_s * EVENTS_PER_S));
        let busy = usage(pid, Duration::from_secs(bench.scale.idle_s)).await?;
        let rate = events.await??;
        let events = tokio::spawn(make_events(lab.clone(), bench.scale.idle_s * EVENTS_PER_S));
        let mut redraws = Samples::default();
        while !events.is_finished() {
            for key in ["j", "k"] {
                terminal.drain();
                let start = Instant::now();
                terminal.keyboard.write_all(key.as_bytes())?;
                terminal.redrawn()?;
                redraws.push(start.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        events.await??;
        terminal.keyboard.write_all(b"q")?;
        if !terminal.child.wait()?.success() {
            return Err("adj top failed".into());
        }
        Ok(vec![
            Row::plain(
                &format!("adj top, {COLUMNS} columns, {filled}"),
                String::new(),
                String::new(),
            ),
            Row::number("  usage without events", idle, "% of a core", 2.0, true),
            Row::number(
                &format!("  usage with {rate:.0} events a second"),
                busy,
                "% of a core",
                2.0,
                true,
            ),
            Row::latency_p99("  from a key to the redraw meanwhile", &redraws, None, 16.0),
        ])
    })
    .await
}

/// Compares the memory of a hub that listens with one that does not.
pub async fn listener(bench: &Bench) -> Result<Vec<Row>> {
    let silent = in_lab(bench, "", |lab| async move { settled(&lab).await }).await?;
    let (listens, used) = in_lab(bench, LISTENS, |lab| async move {
        let listens = settled(&lab).await?;
        let address = Address::of(&lab).await?;
        for path in ["/", "/app.css", "/js/app.js", "/vendor/preact.mjs"] {
            drop(address.get(path).await?);
        }
        let stream = address.follow("").await?;
        let used = settled(&lab).await?;
        drop(stream);
        Ok((listens, used))
    })
    .await?;
    Ok(vec![
        Row::plain(
            "memory, private and written: hub that does not listen",
            mb(silent.written_mb),
            String::new(),
        ),
        Row::number(
            "  TCP sockets that it has",
            f64::from(silent.tcp_sockets),
            "",
            0.0,
            true,
        ),
        Row::number(
            "  hub that listens: more",
            listens.written_mb - silent.written_mb,
            "MB",
            6.0,
            true,
        ),
        Row::number(
            "  hub that has served the dashboard and an event stream: more",
            used.written_mb - silent.written_mb,
            "MB",
            6.0,
            true,
        ),
        Row::plain(
            "  all private memory: that does not listen, that listens, that has served",
            [silent.private_mb, listens.private_mb, used.private_mb]
                .map(mb)
                .join(", "),
            String::new(),
        ),
    ])
}

fn mb(value: f64) -> String {
    format!("{} MB", short(value))
}

#[derive(Debug)]
struct HubCost {
    private_mb: f64,
    written_mb: f64,
    tcp_sockets: u32,
}

/// Returns what the hub uses when it has finished starting.
async fn settled(lab: &Lab) -> Result<HubCost> {
    let pid = lab.hub().await?.pid;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let tcp: Vec<String> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok())
        .collect();
    let inodes: Vec<&str> = tcp
        .iter()
        .flat_map(|text| text.lines().skip(1))
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let mut tcp_sockets = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let target = std::fs::read_link(entry?.path()).unwrap_or_default();
        let target = target.display().to_string();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        tcp_sockets += u32::from(inode.is_some_and(|inode| inodes.contains(&inode)));
    }
    Ok(HubCost {
        private_mb: private_mb(pid)?,
        written_mb: written_mb(pid)?,
        tcp_sockets,
    })
}

/// Fills the home with unfinished runs, few of them with processes: running, parked with an open
/// question, and queued in a paused pool.
async fn fill(lab: &Arc<Lab>, client: &Client, bench: &Bench) -> Result<String> {
    lab.run(&["pools", "pause", "held"])?;
    let running = (bench.scale.live_runs.min(RUNS) / 25).max(RUNNING_MIN);
    let parked = (bench.scale.live_runs.min(RUNS) / 20).max(PARKED_MIN);
    gather(lab, client, running, "say here\nhang", |run| {
        run.condition.state == RunStateKind::Running
    })
    .await?;
    gather(lab, client, parked, PARKS, |run| {
        run.condition.state == RunStateKind::Stopped
    })
    .await?;
    for _ in 0..RUNS - running - parked {
        hold(lab, client).await?;
    }
    Ok(format!(
        "{RUNS} runs ({running} running, {parked} parked with a question, the others queued)"
    ))
}

/// Dispatches a run that stays in the queue.
async fn hold(lab: &Lab, client: &Client) -> Result<RunView> {
    let order = lab.order("echo", "say hi\n".to_owned());
    Ok(client
        .call(&Dispatch {
            pool: Some("held".to_owned()),
            ..order
        })
        .await?)
}

/// Starts and cancels queued runs, an event every tenth of a second, and returns the events a
/// second.
async fn make_events(lab: Arc<Lab>, count: u64) -> Result<f64> {
    let client = lab.client();
    let mut pace = tokio::time::interval(Duration::from_millis(1_000 / EVENTS_PER_S));
    let start = Instant::now();
    let mut held = None;
    for _ in 0..count {
        pace.tick().await;
        held = match held {
            None => Some(hold(&lab, &client).await?.identity.run_id),
            Some(run) => {
                client.call(&Cancel { run, reason: None }).await?;
                None
            }
        };
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// An event that a client has received.
struct Arrival {
    run_id: String,
    seq: i64,
    at_ns: u64,
}

/// Makes events one after the other, and returns the times until all clients have each.
async fn reach(
    bench: &Bench,
    lab: &Lab,
    client: &Client,
    arrivals: &mut mpsc::UnboundedReceiver<Arrival>,
) -> Result<Samples> {
    let mut times = Samples::default();
    for _ in 0..bench.scale.posts {
        let start_ns = monotonic_ns();
        let run = hold(lab, client).await?.identity.run_id;
        times.push_ns(
            reached(&run, arrivals)
                .await?
                .at_ns
                .saturating_sub(start_ns),
        );
        client.call(&Cancel { run, reason: None }).await?;
    }
    Ok(times)
}

/// Waits until all clients have the first event of a run, and returns the last arrival.
async fn reached(run: &str, arrivals: &mut mpsc::UnboundedReceiver<Arrival>) -> Result<Arrival> {
    let mut first = 0;
    let mut seq = None;
    loop {
        let arrival = tokio::time::timeout(EVENT_MAX, arrivals.recv())
            .await
            .map_err(|_| format!("only {first} clients have the event of {run}"))?;
        let arrival = arrival.ok_or("the streams ended")?;
        if arrival.run_id == run && *seq.get_or_insert(arrival.seq) == arrival.seq {
            first += 1;
            if first == CLIENTS {
                return Ok(arrival);
            }
        }
    }
}

/// Makes an event, and returns its position.
async fn last_seq(
    lab: &Lab,
    client: &Client,
    arrivals: &mut mpsc::UnboundedReceiver<Arrival>,
) -> Result<i64> {
    let run = hold(lab, client).await?.identity.run_id;
    Ok(reached(&run, arrivals).await?.seq)
}

type Lines = tokio::io::Lines<tokio::io::BufReader<tokio::net::TcpStream>>;

/// Reads a stream to its end.
async fn read_events(mut lines: Lines, arrivals: mpsc::UnboundedSender<Arrival>) -> Result<()> {
    let mut seq = 0;
    while let Some(line) = lines.next_line().await? {
        let at_ns = monotonic_ns();
        if let Some(id) = line.strip_prefix("id: ") {
            seq = id.parse()?;
        } else if let Some((_, rest)) = line.split_once("\"run_id\":\"") {
            let run_id = rest.split('"').next().unwrap_or_default().to_owned();
            if arrivals.send(Arrival { run_id, seq, at_ns }).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Reads what a stream has for a client that read nothing so far: up to the event `last`, or less
/// if the hub has cut it. Returns the position of the last complete event.
fn read_rest(stream: TcpStream, last: i64) -> Result<i64> {
    stream.set_read_timeout(Some(EVENT_MAX))?;
    let (mut seq, mut next) = (0, 0);
    for line in BufReader::new(stream).lines() {
        // A cut connection can be reset.
        let Ok(line) = line else { break };
        if let Some(Ok(id)) = line.strip_prefix("id: ").map(str::parse) {
            next = id;
        } else if line.is_empty() {
            seq = next;
        }
        if seq >= last {
            break;
        }
    }
    Ok(seq)
}

/// Where the hub listens, with a token.
struct Address {
    host: String,
    token: String,
}

impl Address {
    async fn of(lab: &Lab) -> Result<Self> {
        let url = lab.hub().await?.url.ok_or("the hub does not listen")?;
        let token = lab
            .run(&["token", "new", "bench", "--role", "person"])?
            .trim()
            .to_owned();
        Ok(Self {
            host: url.trim_start_matches("http://").to_owned(),
            token,
        })
    }

    fn request(&self, path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            self.host, self.token
        )
    }

    /// Begins to read a path.
    async fn get(&self, path: &str) -> Result<Lines> {
        let mut stream = tokio::net::TcpStream::connect(&self.host).await?;
        stream.write_all(self.request(path).as_bytes()).await?;
        let mut lines = tokio::io::BufReader::new(stream).lines();
        let status = lines.next_line().await?.unwrap_or_default();
        if status.contains(" 200 ") {
            Ok(lines)
        } else {
            Err(format!("{path}: {status}").into())
        }
    }

    /// Opens an event stream, and returns when it has begun.
    async fn follow(&self, query: &str) -> Result<Lines> {
        let mut lines = self.get(&format!("/api/v1/events{query}")).await?;
        while let Some(line) = lines.next_line().await? {
            if line == "event: start" {
                return Ok(lines);
            }
        }
        Err("an event stream ended before it began".into())
    }

    /// Opens an event stream that nobody reads.
    fn stall(&self) -> Result<TcpStream> {
        let address: SocketAddr = self.host.parse()?;
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        set_socket_recv_buffer_size(&socket, STALLED_BUFFER_BYTES)?;
        connect(&socket, &address)?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(self.request("/api/v1/events?since=0").as_bytes())?;
        Ok(stream)
    }

    /// Returns whether a new connection has all events after a position, up to the last one, in
    /// order.
    async fn catches_up(&self, client: &Client, after: i64, last: i64) -> Result<bool> {
        let mut lines = self.follow(&format!("?since={after}")).await?;
        let mut seq = after;
        while seq < last {
            let page = client
                .call(&ReadEvents {
                    after: seq,
                    ..ReadEvents::default()
                })
                .await?;
            for event in page.events {
                let data = loop {
                    let line = tokio::time::timeout(EVENT_MAX, lines.next_line())
                        .await??
                        .ok_or("an event stream ended")?;
                    if let Some(data) = line.strip_prefix("data: {\"seq\":") {
                        break data.to_owned();
                    }
                };
                if !data.starts_with(&format!("{},", event.seq)) {
                    return Ok(false);
                }
            }
            seq = page.cursor;
        }
        Ok(true)
    }
}

/// A command on a terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    output: Receiver<usize>,
}

impl Terminal {
    fn open(lab: &Lab, args: &[&str]) -> Result<Self> {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&keyboard)?;
        unlockpt(&keyboard)?;
        let name = ptsname(&keyboard, Vec::new())?.into_string()?;
        tcsetwinsize(
            &keyboard,
            Winsize {
                ws_row: ROWS,
                ws_col: COLUMNS,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )?;
        let end = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&name)
                .map(Stdio::from)
        };
        let child = lab
            .command(args)
            .env("TERM", "xterm-256color")
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()?;
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone()?;
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 64 * 1024];
            // Reading fails once the last process has exited.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(count).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            keyboard,
            output,
        })
    }

    /// Discards what was drawn.
    fn drain(&self) {
        while self.output.try_recv().is_ok() {}
    }

    /// Waits until something is drawn.
    fn redrawn(&self) -> Result<()> {
        match self.output.recv_timeout(EVENT_MAX) {
            Ok(_) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err("nothing was drawn".into()),
            Err(RecvTimeoutError::Disconnected) => Err("adj top has ended".into()),
        }
    }
}

/// Measures the CPU usage of all threads of a process, in percent of a core.
async fn usage(pid: u32, length: Duration) -> Result<f64> {
    let before = running_ns(pid)?;
    let start = Instant::now();
    tokio::time::sleep(length).await;
    let used: u64 = running_ns(pid)?
        .into_iter()
        .map(|(thread, ns)| ns.saturating_sub(before.get(&thread).copied().unwrap_or(0)))
        .sum();
    Ok(Duration::from_nanos(used).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}

/// Returns the CPU time of each thread, in nanoseconds: the kernel counts ticks of 10 ms for whole
/// processes.
fn running_ns(pid: u32) -> Result<HashMap<String, u64>> {
    let mut found = HashMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let text = std::fs::read_to_string(entry.path().join("schedstat"))?;
        let ns = text
            .split(' ')
            .next()
            .ok_or("an empty schedstat")?
            .parse()?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), ns);
    }
    Ok(found)
}
