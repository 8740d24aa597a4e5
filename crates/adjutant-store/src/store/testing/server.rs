//! A PostgreSQL server for tests, with its own data and socket, which ends with its owner.
#![allow(
    unreachable_pub,
    reason = "the end-to-end tests and xtask have this file, too"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The user that the server runs as when the tests run as root, which PostgreSQL refuses. `nobody`.
const UNPRIVILEGED: u32 = 65_534;

/// How long a server may take to start on a loaded machine.
const START_MAX: Duration = Duration::from_secs(60);

/// Copies what a server prints to its log. Returns a channel that says when it accepts connections,
/// and ends with it.
fn is_ready(printed: ChildStderr, mut log: std::fs::File) -> Receiver<()> {
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            if let Err(error) = writeln!(log, "{line}") {
                // A campaign fills the disk.
                assert_eq!(
                    error.kind(),
                    std::io::ErrorKind::StorageFull,
                    "the log: {error}"
                );
            }
            if line.contains("ready to accept") {
                // Nobody reads it after the wait has ended.
                ready.send(()).unwrap_or_default();
            }
        }
    });
    is_ready
}

/// Runs a program, which must succeed.
fn run(program: &mut Command) {
    let ran = program.output().expect("it starts");
    assert!(
        ran.status.success(),
        "{program:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    dir: tempfile::TempDir,
    programs: PathBuf,
    process: Option<Child>,
    /// Where it listens besides its socket.
    tcp: Option<Tcp>,
    /// Whether its commits reach the disk, for measurements. Otherwise the machine does not crash,
    /// so nothing has to.
    is_durable: bool,
    /// Variables of its processes.
    variables: Vec<(String, String)>,
}

/// An address at which a server listens.
#[derive(Debug)]
struct Tcp {
    host: &'static str,
    port: u16,
    has_tls: bool,
}

impl Server {
    /// Starts a server. `None`: PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(false)
    }

    /// Starts a server whose commits reach the disk. `None`: PostgreSQL is not installed.
    #[allow(dead_code, reason = "only cargo xtask bench uses it")]
    pub fn start_durable() -> Option<Self> {
        Self::start_with(true)
    }

    /// Starts a server of an installed version.
    #[allow(dead_code, reason = "only tests use it")]
    pub fn start_version(version: u32) -> Option<Self> {
        Self::start_of(programs_of(version)?, Path::new("/tmp"), false)
    }

    /// Starts a server with its data below a directory. `None`: PostgreSQL is not installed.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn start_below(parent: &Path) -> Option<Self> {
        Self::start_of(programs()?, parent, false)
    }

    fn start_with(is_durable: bool) -> Option<Self> {
        Self::start_of(programs()?, Path::new("/tmp"), is_durable)
    }

    fn start_of(programs: PathBuf, parent: &Path, is_durable: bool) -> Option<Self> {
        let dir = tempfile::Builder::new()
            .prefix("pg")
            .tempdir_in(parent)
            .expect("a directory");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .expect("owned");
        }
        let mut server = Self {
            dir,
            programs,
            process: None,
            tcp: None,
            is_durable,
            variables: Vec::new(),
        };
        let made = server
            .program("initdb")
            .args([
                "-D",
                "data",
                "-A",
                "trust",
                "-U",
                "adj",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ])
            .output()
            .expect("initdb starts");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        server.resume();
        Some(server)
    }

    /// Writes a dump of a database, which [`Self::restore`] of this version or a newer one reads.
    #[allow(dead_code, reason = "only tests use it")]
    pub fn dump(&self, database: &str) -> Vec<u8> {
        let mut dump = self.program("pg_dump");
        let dumped = dump
            .args(["-Fc", "-U", "adj", "-h"])
            .arg(self.dir.path())
            .arg(database)
            .output()
            .expect("pg_dump starts");
        assert!(
            dumped.status.success(),
            "{}",
            String::from_utf8_lossy(&dumped.stderr)
        );
        dumped.stdout
    }

    /// Reads a dump into a new database.
    #[allow(dead_code, reason = "only tests use it")]
    pub fn restore(&self, database: &str, dump: &[u8]) {
        self.create_database(database);
        let mut restore = self.program("pg_restore");
        restore
            .args(["--exit-on-error", "-U", "adj", "-d", database, "-h"])
            .arg(self.dir.path());
        let mut restore = restore
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pg_restore starts");
        restore
            .stdin
            .take()
            .expect("a pipe")
            .write_all(dump)
            .expect("it reads the dump");
        let restored = restore.wait_with_output().expect("reaped");
        assert!(
            restored.status.success(),
            "{}",
            String::from_utf8_lossy(&restored.stderr)
        );
    }

    /// Sets variables of its processes, from its next start on.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn set_variables(&mut self, variables: Vec<(String, String)>) {
        self.variables = variables;
    }

    /// The directory of its socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the server's processes again if they have ended, or are ending.
    pub fn resume(&mut self) {
        let dir = self.dir.path().display();
        let mut settings = vec![
            format!("unix_socket_directories={dir}"),
            "max_connections=200".to_owned(),
        ];
        settings.push(format!(
            "fsync={}",
            if self.is_durable { "on" } else { "off" }
        ));
        match &self.tcp {
            None => settings.push("listen_addresses=".to_owned()),
            Some(tcp) => settings.extend([
                format!("listen_addresses={}", tcp.host),
                format!("ssl={}", if tcp.has_tls { "on" } else { "off" }),
            ]),
        }
        let mut program = self.program("postgres");
        program
            .args(["-D", "data"])
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        for setting in &settings {
            program.args(["-c", setting]);
        }
        // It may have been stopped, or have crashed.
        let is_ready_now = self.process.is_some() && self.accepts_connections();
        if let Some(mut process) = self.process.take_if(|_| !is_ready_now) {
            process.wait().expect("reaped");
        }
        let until = Instant::now() + START_MAX;
        while self.process.is_none() {
            let mut process = program
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("postgres starts");
            let printed = process.stderr.take().expect("a pipe");
            let log = std::fs::File::create(self.dir.path().join("log")).expect("a log");
            match is_ready(printed, log)
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(()) => self.process = Some(process),
                // It refuses to start while processes of a killed one still end.
                Err(RecvTimeoutError::Disconnected) if Instant::now() < until => {
                    process.wait().expect("reaped");
                }
                Err(_) => panic!(
                    "{}",
                    std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
                ),
            }
        }
    }

    fn accepts_connections(&self) -> bool {
        self.program("pg_isready")
            .args(["-q", "-h"])
            .arg(self.dir.path())
            .status()
            .is_ok_and(|ran| ran.success())
    }

    /// Waits until it accepts connections, also if it has ended all its processes, or is about to
    /// do so.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn recover(&mut self) {
        let until = Instant::now() + START_MAX;
        while !self.accepts_connections() {
            if self
                .process
                .as_mut()
                .is_none_or(|process| process.try_wait().expect("its state").is_some())
            {
                return self.resume();
            }
            assert!(
                Instant::now() < until,
                "the server does not recover: {}",
                std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Ends all its processes as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("killed");
            process.wait().expect("reaped");
        }
    }

    /// Puts a synchronous replica in its place: makes one, ends all processes of the server as a
    /// crash does, and promotes the replica, which listens at the same addresses.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn promote_replica(&mut self) {
        let dir = self.dir.path().to_owned();
        let (data, replica, aside) = (dir.join("data"), dir.join("replica"), dir.join("aside"));
        self.allow_replication(&data.join("pg_hba.conf"));
        run(self
            .program("pg_basebackup")
            .args([
                "-D", "replica", "-R", "-X", "stream", "-c", "fast", "-U", "adj", "-h",
            ])
            .arg(&dir));
        let mut standby = self.start_replica(&aside);
        self.wait_for_synchronous_replica();
        self.kill();
        run(self.program("psql").arg("-h").arg(&aside).args([
            "-U",
            "adj",
            "-d",
            "postgres",
            "-c",
            "SELECT pg_promote()",
        ]));
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&standby),
            rustix::process::Signal::INT,
        )
        .expect("it lives");
        standby.wait().expect("reaped");
        std::fs::remove_dir_all(&aside).expect("removed");
        std::fs::remove_dir_all(&data).expect("removed");
        std::fs::rename(&replica, &data).expect("renamed");
        self.resume();
    }

    fn allow_replication(&self, rules: &Path) {
        let allowed = std::fs::read_to_string(rules).expect("rules");
        if !allowed.contains("local replication") {
            std::fs::write(rules, format!("{allowed}local replication all trust\n"))
                .expect("written");
        }
        self.change("SELECT 1");
    }

    /// Runs a statement that changes a setting, and reads the settings again.
    fn change(&self, sql: &str) {
        run(self.psql("postgres").args([
            "-c",
            "SET default_transaction_read_only = off",
            "-c",
            sql,
            "-c",
            "SELECT pg_reload_conf()",
        ]));
    }

    /// Starts the replica with its socket in a new directory.
    fn start_replica(&self, aside: &Path) -> Child {
        std::fs::create_dir(aside).expect("a directory");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(aside, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("owned");
        }
        let mut standby = self
            .program("postgres")
            .args([
                "-D",
                "replica",
                "-c",
                "listen_addresses=",
                "-c",
                "ssl=off",
                "-c",
                "max_connections=200",
                "-c",
            ])
            .arg(format!("unix_socket_directories={}", aside.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("postgres starts");
        let log = std::fs::File::create(self.dir.path().join("replica.log")).expect("a log");
        is_ready(standby.stderr.take().expect("a pipe"), log)
            .recv_timeout(START_MAX)
            .expect("the replica accepts connections");
        standby
    }

    fn wait_for_synchronous_replica(&self) {
        self.change("ALTER SYSTEM SET synchronous_standby_names = '*'");
        let until = Instant::now() + START_MAX;
        while self.sql(
            "postgres",
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'",
        ) != "1"
        {
            assert!(Instant::now() < until, "the replica is not synchronous");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Requires a password of everyone, from now on.
    pub fn require_password(&mut self, password: &str) {
        let made = self
            .program("psql")
            .arg("-h")
            .arg(self.dir.path())
            .args([
                "-U",
                "adj",
                "-d",
                "postgres",
                "-c",
                &format!("ALTER ROLE adj PASSWORD '{password}'"),
            ])
            .output()
            .expect("psql starts");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        std::fs::write(
            self.dir.path().join("data/pg_hba.conf"),
            "local all all scram-sha-256\n",
        )
        .expect("written");
        self.kill();
        self.resume();
    }

    /// Restarts it so that it also listens on loopback, with TLS if there is a certificate with its
    /// key, and then only so. Returns its port.
    pub fn listen(&mut self, certificate: Option<[&Path; 2]>) -> u16 {
        self.listen_at("localhost", "localhost", certificate)
    }

    /// Restarts it so that it also listens at all addresses, for all hosts that use TLS. Returns
    /// its port.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn listen_to_all(&mut self, certificate: [&Path; 2]) -> u16 {
        self.listen_at("*", "all", Some(certificate))
    }

    fn listen_at(
        &mut self,
        host: &'static str,
        hosts: &str,
        certificate: Option<[&Path; 2]>,
    ) -> u16 {
        use std::os::unix::fs::PermissionsExt;
        let data = self.dir.path().join("data");
        for (from, to) in certificate
            .iter()
            .flatten()
            .zip(["server.crt", "server.key"])
        {
            let to = data.join(to);
            std::fs::copy(from, &to).expect("copied");
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).expect("private");
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&to, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                    .expect("owned");
            }
        }
        let kind = if certificate.is_some() {
            "hostssl"
        } else {
            "host"
        };
        std::fs::write(
            data.join("pg_hba.conf"),
            format!("local all all trust\n{kind} all all {hosts} trust\n"),
        )
        .expect("written");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        self.kill();
        self.tcp = Some(Tcp {
            host,
            port,
            has_tls: certificate.is_some(),
        });
        self.resume();
        port
    }

    /// Runs a statement in a database and returns what `psql` prints, without headings.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let ran = self
            .psql(database)
            .args(["-c", sql])
            .output()
            .expect("psql starts");
        assert!(
            ran.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// A `psql` that reads statements.
    pub fn psql(&self, database: &str) -> Command {
        let mut psql = self.program("psql");
        psql.arg("-h")
            .arg(self.dir.path())
            .args(["-U", "adj", "-d", database, "-X", "-A", "-t"]);
        psql
    }

    /// Measures commits of one row each by one client. Returns microseconds.
    #[allow(dead_code, reason = "only cargo xtask bench uses it")]
    pub fn commit_times_us(&self, count: u32) -> Vec<u64> {
        self.create_database("floor");
        self.sql(
            "floor",
            "CREATE TABLE floor (no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT)",
        );
        self.pgbench(
            "INSERT INTO floor (text) VALUES ('one row');\n",
            &["-l", "-t", &count.to_string()],
        );
        self.sql("postgres", "DROP DATABASE floor");
        let mut times = Vec::new();
        for entry in std::fs::read_dir(self.dir.path()).expect("its files") {
            let path = entry.expect("an entry").path();
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("pgbench_log."))
            {
                let log = std::fs::read_to_string(&path).expect("its log");
                times.extend(log.lines().map(|line| {
                    line.split(' ')
                        .nth(2)
                        .and_then(|time| time.parse::<u64>().ok())
                        .expect("a time")
                }));
                std::fs::remove_file(&path).expect("removed");
            }
        }
        times
    }

    /// Measures how many rows a second many clients take from a queue, one in each transaction,
    /// with `SKIP LOCKED`.
    #[allow(dead_code, reason = "only cargo xtask bench uses it")]
    pub fn skip_locked_per_s(&self, clients: usize, count: usize) -> f64 {
        self.create_database("floor");
        self.sql(
            "floor",
            "CREATE TABLE floor (no BIGINT PRIMARY KEY, taken_by BIGINT)",
        );
        self.sql(
            "floor",
            &format!("INSERT INTO floor SELECT n, NULL FROM generate_series(1, {count}) n"),
        );
        self.sql(
            "floor",
            "CREATE INDEX floor_queued ON floor (no) WHERE taken_by IS NULL",
        );
        let claim = "UPDATE floor SET taken_by = :client_id WHERE no = (SELECT no FROM floor WHERE taken_by IS NULL ORDER BY no FOR UPDATE SKIP LOCKED LIMIT 1);\n";
        let printed = self.pgbench(
            claim,
            &[
                "-M",
                "prepared",
                "-j",
                "2",
                "-c",
                &clients.to_string(),
                "-t",
                &(count / clients).to_string(),
            ],
        );
        self.sql("postgres", "DROP DATABASE floor");
        let rate = printed
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.unwrap_or_else(|| panic!("pgbench printed no rate: {printed}"))
    }

    /// Runs a script on the database `floor`. Returns what is printed.
    fn pgbench(&self, script: &str, args: &[&str]) -> String {
        std::fs::write(self.dir.path().join("floor.sql"), script).expect("written");
        let mut program = self.program("pgbench");
        program
            .args(["-n", "-U", "adj", "-f", "floor.sql"])
            .args(args)
            .arg("-h")
            .arg(self.dir.path())
            .arg("floor");
        let ran = program.output().expect("pgbench starts");
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Creates an empty database.
    pub fn create_database(&self, name: &str) {
        let made = self
            .program("createdb")
            .arg("-h")
            .arg(self.dir.path())
            .args(["-U", "adj", name])
            .output()
            .expect("createdb starts");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// The `store` setting for a database.
    pub fn url(&self, database: &str) -> String {
        url(self.dir.path(), database)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a server for tests is not an agent"
    )]
    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(self.programs.join(name));
        program.current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some(tcp) = &self.tcp {
            // Of the server, and of its socket for the other programs.
            program.env("PGPORT", tcp.port.to_string());
        }
        if rustix::process::geteuid().is_root() {
            program.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        program
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let pid = rustix::process::Pid::from_child(&process);
            // A fast shutdown, which ends its children too.
            if rustix::process::kill_process(pid, rustix::process::Signal::INT).is_ok()
                && process.wait().is_err()
            {
                eprintln!("the server for tests cannot be reaped");
            }
        }
    }
}

/// A running PgBouncer in front of a database of a server. It listens at port 6432 of its socket.
#[allow(dead_code, reason = "only tests use it")]
#[derive(Debug)]
pub struct Pooler {
    dir: tempfile::TempDir,
    process: Child,
}

#[allow(dead_code, reason = "only tests use it")]
impl Pooler {
    /// Starts it in a pool mode, such as `transaction`. `None`: it is not installed.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server for tests is not an agent"
    )]
    pub fn start(server: &Server, database: &str, mode: &str) -> Option<Self> {
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.exists() {
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("pgb")
            .tempdir_in("/tmp")
            .expect("a directory");
        let settings = format!(
            "[databases]\n{database} = host={} dbname={database} user=adj\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {}\n\
             auth_type = any\npool_mode = {mode}\n",
            server.socket_dir().display(),
            dir.path().display()
        );
        std::fs::write(dir.path().join("settings"), settings).expect("written");
        let mut pooler = Command::new(program);
        pooler
            .arg(dir.path().join("settings"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .expect("owned");
            pooler.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        let mut process = pooler.spawn().expect("pgbouncer starts");
        let (ready, is_ready) = mpsc::channel();
        let printed = process.stderr.take().expect("a pipe");
        std::thread::spawn(move || {
            // It is read to the end, so that the pooler never waits.
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                if line.contains("process up") {
                    ready.send(()).unwrap_or_default();
                }
            }
        });
        is_ready.recv_timeout(START_MAX).expect("pgbouncer is up");
        Some(Self { dir, process })
    }

    /// The directory of its socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if self
            .process
            .kill()
            .and_then(|()| self.process.wait())
            .is_err()
        {
            eprintln!("pgbouncer cannot be reaped");
        }
    }
}

/// Creates an empty database of a running server, which another process has started.
#[allow(dead_code, reason = "only tests use it")]
#[expect(
    clippy::disallowed_methods,
    reason = "a server for tests is not an agent"
)]
pub fn create_database(socket_dir: &Path, name: &str) {
    let createdb = programs()
        .expect("PostgreSQL is installed")
        .join("createdb");
    let made = Command::new(createdb)
        .arg("-h")
        .arg(socket_dir)
        .args(["-U", "adj", name])
        .output()
        .expect("createdb starts");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// The `store` setting for a database of a running server.
pub fn url(socket_dir: &Path, database: &str) -> String {
    format!("postgres://adj@/{database}?host={}", socket_dir.display())
}

/// Where the installed versions are, each in a directory named after it: Debian's, and those in the
/// directory that a variable names (without TLS).
const INSTALLED: &str = "/usr/lib/postgresql";
const MORE_INSTALLED: &str = "ADJ_POSTGRES";
/// The variable with the version that servers have if none is named. Without it, they have the
/// newest of Debian.
const VERSION: &str = "ADJ_POSTGRES_VERSION";

#[expect(clippy::disallowed_methods, reason = "a variable of the tests")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the installed versions, oldest first.
pub fn versions() -> Vec<u32> {
    let mut all = installed(INSTALLED);
    all.append(&mut more_installed());
    all.into_keys().collect()
}

fn more_installed() -> BTreeMap<u32, PathBuf> {
    variable(MORE_INSTALLED)
        .map(|dir| installed(&dir))
        .unwrap_or_default()
}

fn installed(dir: &str) -> BTreeMap<u32, PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs
                .join("initdb")
                .exists()
                .then_some((version, programs))
        })
        .collect()
}

fn programs_of(version: u32) -> Option<PathBuf> {
    installed(INSTALLED)
        .remove(&version)
        .or_else(|| more_installed().remove(&version))
}

/// Finds the programs of the version that servers have if none is named.
fn programs() -> Option<PathBuf> {
    if let Some(version) = variable(VERSION) {
        return programs_of(version.parse().expect("a version, such as 15"));
    }
    let newest = installed(INSTALLED)
        .pop_last()
        .or_else(|| more_installed().pop_last());
    newest.map(|(_, programs)| programs)
}
