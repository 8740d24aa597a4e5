//! The machines of a campaign, each in a network namespace of its own: three with a hub, three with
//! a runner, one with PostgreSQL.

use super::clock::{Clock, Clocks};
use super::disk::Disk;
use super::network::{Network, address};
use super::probe;
use super::service::Service;
use crate::lab::{Lab, Result};
use crate::panics;
use crate::postgres::Server;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of hubs, and of runners. Machines are numbered: hubs, runners, PostgreSQL.
pub const EACH: usize = 3;
pub const FIRST_RUNNER: usize = EACH;
pub const SERVER: usize = 2 * EACH;
pub const MACHINES: usize = SERVER + 1;
pub const DATABASE: &str = "fleet";
const PORT: u16 = 7317;
/// The lease of attempts, shorter than the longest stop of a runner.
pub const LEASE_S: u64 = 6;
/// How long processes may take to end after their hub has released its home, or PostgreSQL after a
/// signal.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long a hub may take to accept connections. It waits for PostgreSQL.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The sizes of disks in MiB. PostgreSQL's has room for two copies of its data.
const DISK_MIB: u32 = 256;
const SERVERS_DISK_MIB: u32 = 1024;
/// The size of PostgreSQL's log of transactions.
const WAL_MAX: &str = "128MB";
/// The certificate of all machines, which names their addresses and is valid for 100 years.
pub const CERTIFICATE: &str = include_str!("../../fixtures/fleet.pem");
pub const KEY: &str = include_str!("../../fixtures/fleet.key");
/// Records each statement that writes in a session without the lock of the leader, and how far the
/// clock of each event is off from that of PostgreSQL. Standby hubs write only in the table `hubs`.
const WATCH: &str = "CREATE TABLE campaign_intruders (at TIMESTAMPTZ DEFAULT now(), backend INT, what TEXT);
  CREATE TABLE campaign_clocks (minutes_off BIGINT PRIMARY KEY);
  CREATE FUNCTION campaign_watch() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1633970804 AND pid = pg_backend_pid()) THEN
      INSERT INTO campaign_intruders (backend, what) VALUES (pg_backend_pid(), TG_OP || ' ' || TG_TABLE_NAME);
    END IF;
    RETURN NULL;
  END $$;
  CREATE FUNCTION campaign_read_clock() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO campaign_clocks VALUES (round((NEW.at / 1000.0 - extract(epoch FROM clock_timestamp())) / 60)) ON CONFLICT DO NOTHING;
    RETURN NULL;
  END $$;
  CREATE TRIGGER campaign_read_clock AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION campaign_read_clock();
  DO $$ DECLARE watched TEXT; BEGIN
    FOR watched IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'hubs' AND tablename NOT LIKE 'campaign%' LOOP
      EXECUTE format('CREATE TRIGGER campaign_watch AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH STATEMENT EXECUTE FUNCTION campaign_watch()', watched);
    END LOOP;
  END $$";

/// Everything that can fail.
pub struct Site {
    pub server: Server,
    pub network: Network,
    /// One for each machine.
    pub clocks: Vec<Clock>,
    pub hubs: Vec<Service>,
    pub runners: Vec<Service>,
    /// One for each machine. What is on them is removed before.
    pub disks: Vec<Disk>,
    files: Clocks,
}

impl Site {
    /// Starts all of it, after it has shown that the faults of the network and of the clocks work.
    pub fn start(adj: &Path, unfenced: bool) -> Result<Self> {
        let mut network = Network::new(MACHINES)?;
        probe::check(&mut network)?;
        let files = Clocks::new()?;
        let clocks = (0..MACHINES)
            .map(|n| files.clock(n))
            .collect::<Result<Vec<_>>>()?;
        let disks = (0..MACHINES)
            .map(|n| {
                Disk::new(if n == SERVER {
                    SERVERS_DISK_MIB
                } else {
                    DISK_MIB
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let (server, url) = start_server(&network, files.dir(), &disks[SERVER], &clocks[SERVER])?;
        let mut site = Self {
            server,
            network,
            clocks,
            hubs: Vec::new(),
            runners: Vec::new(),
            disks,
            files,
        };
        for n in 0..EACH {
            let lab = site.hub(adj, n, &url, unfenced)?;
            let log = site.files.dir().join(format!("hub{n}.log"));
            site.hubs
                .push(Service::new(lab, &["serve"]).logging_to(log));
            site.ensure_hub(n)?;
        }
        site.sql(WATCH);
        for n in 0..EACH {
            let runner = site.runner(adj, n)?;
            site.runners.push(runner);
            site.runners[n].ensure(Some(&site.network.machines[FIRST_RUNNER + n]))?;
        }
        for (service, clock) in site.hubs.iter().chain(&site.runners).zip(&site.clocks) {
            service.check_clock(clock)?;
        }
        Ok(site)
    }

    /// Creates the home of a hub.
    fn hub(&self, adj: &Path, n: usize, store: &str, unfenced: bool) -> Result<Lab> {
        let config = format!(
            "store = \"{store}\"\nstore_shared = true\nlisten = \"{}:{PORT}\"\nrunner_lease = \"{LEASE_S}s\"\n\
             [agents.echo]\nharness = \"echo\"\ngrace = \"1s\"\n[tls]\ncert = \"fleet.pem\"\nkey = \"fleet.key\"\n",
            address(n)
        );
        let mut lab = Lab::new_in(self.disks[n].path(), adj, &config)?;
        write_private(&lab.home.dir.join("fleet.pem"), CERTIFICATE)?;
        write_private(&lab.home.dir.join("fleet.key"), KEY)?;
        lab.env.extend(self.clocks[n].variables());
        if unfenced {
            lab.env
                .push(("ADJ_FAILPOINT".to_owned(), "unfenced=on".to_owned()));
        }
        Ok(lab)
    }

    /// Creates the home of a runner, with a token.
    fn runner(&self, adj: &Path, n: usize) -> Result<Service> {
        let mut lab = Lab::new_in(self.disks[FIRST_RUNNER + n].path(), adj, "")?;
        lab.env.extend(self.clocks[FIRST_RUNNER + n].variables());
        let made = self.hubs[0].lab.run(&[
            "--json",
            "token",
            "new",
            &format!("runner{n}"),
            "--role",
            "runner",
        ])?;
        let made: serde_json::Value = serde_json::from_str(&made)?;
        let token_file = lab.dir.path().join("token");
        write_private(
            &token_file,
            made["data"]["token"].as_str().ok_or("no token")?,
        )?;
        let fingerprint = made["data"]["fingerprint"]
            .as_str()
            .ok_or("no fingerprint")?;
        let token_file = token_file.display().to_string();
        let urls: Vec<String> = (0..EACH).map(url).collect();
        let mut args = vec![
            "runner",
            "--token-file",
            &token_file,
            "--slots",
            "4",
            "--fingerprint",
            fingerprint,
        ];
        args.extend(urls.iter().flat_map(|url| ["--join", url]));
        Ok(Service::new(lab, &args).logging_to(self.files.dir().join(format!("runner{n}.log"))))
    }

    pub fn hubs(&self) -> Vec<Arc<Lab>> {
        self.hubs.iter().map(|hub| Arc::clone(&hub.lab)).collect()
    }

    /// The file in which each attempt records its start. It is on no disk of a machine, because a
    /// fault can fill those.
    pub fn journal(&self) -> PathBuf {
        self.files.dir().join("journal")
    }

    pub fn sql(&self, sql: &str) -> String {
        self.server.sql(DATABASE, sql)
    }

    /// Returns how many statements sessions without the lock have written.
    pub fn intruders(&self) -> u64 {
        self.sql("SELECT count(*) FROM campaign_intruders")
            .trim()
            .parse()
            .expect("a count")
    }

    /// Returns the leader, as the store says.
    pub fn leader(&self) -> Option<usize> {
        let leader = self.sql("SELECT leader FROM hub");
        (0..EACH).find(|n| leader.contains(&format!("\"{}\"", url(*n))))
    }

    /// Starts a hub unless it runs, and waits until it accepts connections.
    fn ensure_hub(&mut self, n: usize) -> Result<()> {
        let began = Instant::now();
        let hub = &mut self.hubs[n];
        loop {
            // A hub that was about to end is started again.
            hub.ensure(Some(&self.network.machines[n]))?;
            if UnixStream::connect(hub.lab.home.socket()).is_ok() {
                return Ok(());
            }
            if began.elapsed() > START_LIMIT {
                return Err(format!("hub {n} does not start: {}", hub.log()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the processes of PostgreSQL, after they have ended.
    pub fn start_server(&mut self) {
        self.network.machines[SERVER].inside(|| self.server.resume());
    }

    /// Ends PostgreSQL as `pg_ctl restart` does, and starts it.
    pub fn restart_server(&mut self) -> Result<()> {
        let pid = pid_of_server(&self.server)?;
        kill_process(pid, Signal::INT)?;
        wait_for_end(pid)?;
        self.start_server();
        Ok(())
    }

    /// Puts a synchronous replica in the place of PostgreSQL, which is killed.
    pub fn promote_replica(&mut self) {
        self.network.machines[SERVER].inside(|| self.server.promote_replica());
    }

    /// Starts what is dead.
    pub fn revive(&mut self) -> Result<()> {
        for n in 0..EACH {
            self.ensure_hub(n)?;
            self.runners[n].ensure(Some(&self.network.machines[FIRST_RUNNER + n]))?;
        }
        Ok(())
    }

    /// Copies the logs of hubs and runners into a directory.
    pub fn keep_logs(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        for (name, services) in [("hub", &self.hubs), ("runner", &self.runners)] {
            for (n, service) in services.iter().enumerate() {
                std::fs::write(dir.join(format!("{name}{n}.log")), service.log())?;
            }
        }
        Ok(())
    }

    /// Describes the panics of hubs, runners and the processes of their attempts.
    pub fn panics(&self) -> Vec<String> {
        let of_service = |name: &str, n: usize, service: &Service| -> Vec<String> {
            let in_log = panics::in_text("its log", &service.log())
                .into_iter()
                .map(|panic| panic.to_string());
            service
                .lab
                .panics()
                .into_iter()
                .chain(in_log)
                .map(|panic| format!("{name} {n}: {panic}"))
                .collect()
        };
        let hubs = self
            .hubs
            .iter()
            .enumerate()
            .flat_map(|(n, hub)| of_service("hub", n, hub));
        let runners = self
            .runners
            .iter()
            .enumerate()
            .flat_map(|(n, runner)| of_service("runner", n, runner));
        hubs.chain(runners).collect()
    }

    /// Ends runners and hubs, and returns the processes that remain after a while.
    pub async fn close(&mut self) -> Result<Vec<String>> {
        for runner in &mut self.runners {
            runner.kill()?;
        }
        for hub in &self.hubs {
            hub.lab
                .run(&["stop"])
                .map_err(|error| format!("{:?} does not stop: {error}", hub.pid()))?;
        }
        let began = Instant::now();
        loop {
            let labs = self
                .hubs
                .iter()
                .chain(&self.runners)
                .map(|service| &service.lab);
            let left: Vec<String> = labs
                .flat_map(|lab| lab.processes())
                .map(|process| format!("{}: {}", process.pid, process.line()))
                .collect();
            if left.is_empty() || began.elapsed() > END_LIMIT {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A failed campaign can have stopped it, and then it does not end.
        for pid in self.network.machines[SERVER]
            .processes()
            .unwrap_or_default()
        {
            if let Err(error) = kill_process(pid, Signal::CONT) {
                eprintln!("{pid:?} of PostgreSQL cannot be continued: {error}");
            }
        }
    }
}

/// Waits until a process has ended.
pub fn wait_for_end(pid: Pid) -> Result<()> {
    let began = Instant::now();
    while crate::processes::process(pid.as_raw_pid().unsigned_abs()).is_some() {
        if began.elapsed() > END_LIMIT {
            return Err(format!("{pid:?} has not ended after {END_LIMIT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts PostgreSQL on its machine with this disk and clock, and returns the address of its
/// database.
fn start_server(
    network: &Network,
    dir: &Path,
    disk: &Disk,
    clock: &Clock,
) -> Result<(Server, String)> {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| dir.join(name));
    write_private(&certificate, CERTIFICATE)?;
    write_private(&key, KEY)?;
    let started = network.machines[SERVER].inside(|| {
        let mut server = Server::start_below(disk.path())?;
        // Its own log must not fill the disk.
        server.sql(
            "postgres",
            &format!("ALTER SYSTEM SET max_wal_size = '{WAL_MAX}'"),
        );
        server.set_variables(clock.variables());
        server.create_database(DATABASE);
        let port = server.listen_to_all([&certificate, &key]);
        Some((server, port))
    });
    let (server, port) =
        started.ok_or("PostgreSQL is not installed (apt-get install postgresql)")?;
    if !clock.is_seen_by(pid_of_server(&server)?.as_raw_pid().unsigned_abs()) {
        return Err("PostgreSQL does not see its clock".into());
    }
    let url = format!(
        "postgres://adj@{}:{port}/{DATABASE}?sslrootcert={}",
        address(SERVER),
        certificate.display()
    );
    Ok((server, url))
}

/// Returns the process that starts the others of PostgreSQL.
fn pid_of_server(server: &Server) -> Result<Pid> {
    let lock = std::fs::read_to_string(server.socket_dir().join("data/postmaster.pid"))?;
    let pid = lock
        .lines()
        .next()
        .and_then(|line| Pid::from_raw(line.trim().parse().ok()?));
    Ok(pid.ok_or("the lock of PostgreSQL names no process")?)
}

fn url(hub: usize) -> String {
    format!("https://{}:{PORT}", address(hub))
}

pub fn write_private(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o600),
    )?)
}
