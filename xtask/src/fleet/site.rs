//! The hubs, the runners and the server of a campaign.

use crate::lab::{Lab, Result, lock_pid};
use crate::postgres::Server;
use adjutant::process::lock::holder_pid;
use rustix::process::Pid;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of hubs, and of runners.
pub const EACH: usize = 3;
const DATABASE: &str = "fleet";
/// The lease of attempts, shorter than the longest stop of a runner.
pub const LEASE_S: u64 = 6;
/// How long processes may take to end after their hub has released its home.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Records each event that a session commits without the lock of the hub that leads.
const WATCH: &str = "CREATE TABLE campaign_intruders (at TIMESTAMPTZ DEFAULT now(), backend INT);
  CREATE FUNCTION campaign_watch() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 1633970804 AND pid = pg_backend_pid()) THEN
      INSERT INTO campaign_intruders (backend) VALUES (pg_backend_pid());
    END IF;
    RETURN NEW;
  END $$;
  CREATE TRIGGER campaign_watch BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION campaign_watch()";

/// Everything that can be killed.
pub struct Site {
    pub server: Server,
    hubs: Vec<Arc<Lab>>,
    urls: Vec<String>,
    pub runners: Vec<Runner>,
}

/// A runner with its process.
pub struct Runner {
    lab: Lab,
    token_file: PathBuf,
    process: Option<Child>,
}

impl Site {
    /// Starts all of it.
    pub fn start(adj: &Path, unfenced: bool) -> Result<Self> {
        let server = Server::start().ok_or("PostgreSQL is not installed (apt-get install postgresql)")?;
        server.create_database(DATABASE);
        let (mut hubs, mut urls) = (Vec::new(), Vec::new());
        for _ in 0..EACH {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let config = format!(
                "store = \"{}\"\nstore_shared = true\nlisten = \"127.0.0.1:{port}\"\nrunner_lease = \"{LEASE_S}s\"\n[agents.echo]\nharness = \"echo\"\ngrace = \"1s\"\n",
                server.url(DATABASE)
            );
            let mut lab = Lab::new(adj, &config)?;
            if unfenced {
                lab.env.push(("ADJ_FAILPOINT".to_owned(), "unfenced=on".to_owned()));
            }
            lab.start_hub()?;
            hubs.push(Arc::new(lab));
            urls.push(format!("http://127.0.0.1:{port}"));
        }
        server.sql(DATABASE, WATCH);
        let mut site = Self { server, hubs, urls, runners: Vec::new() };
        for n in 0..EACH {
            let lab = Lab::new(adj, "")?;
            let made = site.hubs[0].run(&["--json", "token", "new", &format!("runner{n}"), "--role", "runner"])?;
            let made: serde_json::Value = serde_json::from_str(&made)?;
            let token_file = lab.dir.path().join("token");
            std::fs::write(&token_file, made["data"]["token"].as_str().ok_or("no token")?)?;
            std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600))?;
            site.runners.push(Runner { lab, token_file, process: None });
            site.start_runner(n)?;
        }
        Ok(site)
    }

    pub fn hubs(&self) -> Vec<Arc<Lab>> {
        self.hubs.clone()
    }

    /// The file in which each attempt records its start.
    pub fn journal(&self) -> PathBuf {
        self.hubs[0].dir.path().join("journal")
    }

    pub fn sql(&self, sql: &str) -> String {
        self.server.sql(DATABASE, sql)
    }

    /// Returns the process of a hub. `None`: it is dead.
    pub fn hub_pid(&self, n: usize) -> Option<Pid> {
        let file = self.hubs[n].home.hub_lock();
        holder_pid(file.parent()?, &file).ok().flatten()
    }

    pub fn hub_log(&self, n: usize) -> String {
        std::fs::read_to_string(self.hubs[n].home.hub_log()).unwrap_or_default()
    }

    /// Returns the hub that leads, as the store says.
    pub fn leader(&self) -> Option<usize> {
        let leader = self.sql("SELECT leader FROM hub");
        self.urls.iter().position(|url| leader.contains(&format!("\"{url}\"")))
    }

    /// Returns the process of a runner. `None`: it is dead.
    pub fn runner_pid(&self, n: usize) -> Option<Pid> {
        self.runners[n].process.as_ref().and_then(|process| Pid::from_raw(i32::try_from(process.id()).ok()?))
    }

    /// Starts a runner, after it was killed.
    pub fn start_runner(&mut self, n: usize) -> Result<()> {
        let urls = self.urls.clone();
        let runner = &mut self.runners[n];
        if let Some(mut process) = runner.process.take() {
            process.kill()?;
            process.wait()?;
        }
        let token = runner.token_file.display().to_string();
        let mut args = vec!["runner", "--token-file", &token, "--slots", "4"];
        args.extend(urls.iter().flat_map(|url| ["--join", url]));
        let log = File::options().create(true).append(true).open(runner.lab.dir.path().join("runner.log"))?;
        runner.process = Some(runner.lab.command(&args).stdout(Stdio::null()).stderr(log).spawn()?);
        Ok(())
    }

    /// Starts what is dead.
    pub fn revive(&mut self) -> Result<()> {
        for n in 0..EACH {
            self.hubs[n].start_hub()?;
            if self.runners[n].process.as_mut().is_none_or(|process| !matches!(process.try_wait(), Ok(None))) {
                self.start_runner(n)?;
            }
        }
        Ok(())
    }

    /// Ends runners and hubs, and returns the processes that remain after a while.
    pub async fn close(&mut self) -> Result<Vec<String>> {
        for runner in &mut self.runners {
            if let Some(mut process) = runner.process.take() {
                process.kill()?;
                process.wait()?;
            }
        }
        for hub in &self.hubs {
            let pid = lock_pid(&hub.home.hub_lock())?;
            hub.run(&["stop"]).map_err(|error| format!("the hub {pid} does not stop: {error}"))?;
        }
        let began = Instant::now();
        loop {
            let labs = self.hubs.iter().map(|hub| &**hub).chain(self.runners.iter().map(|runner| &runner.lab));
            let left: Vec<String> = labs.flat_map(Lab::processes).map(|process| format!("{}: {}", process.pid, process.line())).collect();
            if left.is_empty() || began.elapsed() > END_LIMIT {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
