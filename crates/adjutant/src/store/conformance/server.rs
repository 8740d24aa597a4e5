//! A PostgreSQL server for tests, with its own data and socket, which ends with its owner.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The user that the server runs as when the tests run as root, which PostgreSQL refuses. `nobody`.
const UNPRIVILEGED: u32 = 65_534;

/// A running server.
#[derive(Debug)]
pub struct Server {
    dir: tempfile::TempDir,
    programs: PathBuf,
    process: Option<Child>,
    /// Where it listens besides its socket.
    tcp: Option<Tcp>,
    /// Whether its commits reach the disk, for measurements. Otherwise the machine does not crash, so nothing has to.
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

    fn start_with(is_durable: bool) -> Option<Self> {
        let programs = programs()?;
        let dir = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").expect("a directory");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("owned");
        }
        let mut server = Self { dir, programs, process: None, tcp: None, is_durable, variables: Vec::new() };
        let made = server
            .program("initdb")
            .args(["-D", "data", "-A", "trust", "-U", "adj", "-E", "UTF8", "--locale=C", "-N"])
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.resume();
        Some(server)
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

    /// Starts the server's processes, after [`Server::kill`].
    pub fn resume(&mut self) {
        let dir = self.dir.path().display();
        let mut settings = vec![format!("unix_socket_directories={dir}"), "max_connections=200".to_owned()];
        settings.push(format!("fsync={}", if self.is_durable { "on" } else { "off" }));
        match &self.tcp {
            None => settings.push("listen_addresses=".to_owned()),
            Some(tcp) => settings.extend([format!("listen_addresses={}", tcp.host), format!("ssl={}", if tcp.has_tls { "on" } else { "off" })]),
        }
        let mut program = self.program("postgres");
        program.args(["-D", "data"]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        for setting in &settings {
            program.args(["-c", setting]);
        }
        // It prints nothing that could be awaited.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !self.program("pg_isready").args(["-q", "-h"]).arg(self.dir.path()).status().expect("pg_isready starts").success() {
            assert!(std::time::Instant::now() < until, "{}", std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
            // It refuses to start while processes of a killed one still end.
            if self.process.as_mut().is_none_or(|process| process.try_wait().expect("its state").is_some()) {
                let log = std::fs::File::create(self.dir.path().join("log")).expect("a log");
                self.process = Some(program.stdout(Stdio::null()).stderr(log).spawn().expect("postgres starts"));
            }
        }
    }

    /// Ends all its processes as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("killed");
            process.wait().expect("reaped");
        }
    }

    /// Requires a password of everyone, from now on.
    pub fn require_password(&mut self, password: &str) {
        let made = self
            .program("psql")
            .arg("-h")
            .arg(self.dir.path())
            .args(["-U", "adj", "-d", "postgres", "-c", &format!("ALTER ROLE adj PASSWORD '{password}'")])
            .output()
            .expect("psql starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(self.dir.path().join("data/pg_hba.conf"), "local all all scram-sha-256\n").expect("written");
        self.kill();
        self.resume();
    }

    /// Restarts it so that it also listens on loopback, with TLS if there is a certificate with its key, and then only so. Returns its port.
    pub fn listen(&mut self, certificate: Option<[&Path; 2]>) -> u16 {
        self.listen_at("localhost", "localhost", certificate)
    }

    /// Restarts it so that it also listens at all addresses, for all hosts that use TLS. Returns its port.
    #[allow(dead_code, reason = "only cargo xtask fleet uses it")]
    pub fn listen_to_all(&mut self, certificate: [&Path; 2]) -> u16 {
        self.listen_at("*", "all", Some(certificate))
    }

    fn listen_at(&mut self, host: &'static str, hosts: &str, certificate: Option<[&Path; 2]>) -> u16 {
        use std::os::unix::fs::PermissionsExt;
        let data = self.dir.path().join("data");
        for (from, to) in certificate.iter().flatten().zip(["server.crt", "server.key"]) {
            let to = data.join(to);
            std::fs::copy(from, &to).expect("copied");
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).expect("private");
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&to, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("owned");
            }
        }
        let kind = if certificate.is_some() { "hostssl" } else { "host" };
        std::fs::write(data.join("pg_hba.conf"), format!("local all all trust\n{kind} all all {hosts} trust\n")).expect("written");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        self.kill();
        self.tcp = Some(Tcp { host, port, has_tls: certificate.is_some() });
        self.resume();
        port
    }

    /// Runs a statement in a database and returns what `psql` prints, without headings.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let ran = self.psql(database).args(["-c", sql]).output().expect("psql starts");
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// A `psql` that reads statements.
    pub fn psql(&self, database: &str) -> Command {
        let mut psql = self.program("psql");
        psql.arg("-h").arg(self.dir.path()).args(["-U", "adj", "-d", database, "-X", "-A", "-t"]);
        psql
    }

    /// Measures commits of one row each by one client. Returns microseconds.
    #[allow(dead_code, reason = "only cargo xtask bench uses it")]
    pub fn commit_times_us(&self, count: u32) -> Vec<u64> {
        self.create_database("floor");
        self.sql("floor", "CREATE TABLE floor (no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT)");
        std::fs::write(self.dir.path().join("insert.sql"), "INSERT INTO floor (text) VALUES ('one row');\n").expect("written");
        let ran = self
            .program("pgbench")
            .args(["-n", "-U", "adj", "-f", "insert.sql", "-l", "-t", &count.to_string(), "-h"])
            .arg(self.dir.path())
            .arg("floor")
            .output()
            .expect("pgbench starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        self.sql("postgres", "DROP DATABASE floor");
        let mut times = Vec::new();
        for entry in std::fs::read_dir(self.dir.path()).expect("its files") {
            let path = entry.expect("an entry").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pgbench_log.")) {
                let log = std::fs::read_to_string(&path).expect("its log");
                times.extend(log.lines().map(|line| line.split(' ').nth(2).and_then(|time| time.parse::<u64>().ok()).expect("a time")));
                std::fs::remove_file(&path).expect("removed");
            }
        }
        times
    }

    /// Creates an empty database.
    pub fn create_database(&self, name: &str) {
        create_database(self.dir.path(), name);
    }

    /// The `store` setting for a database.
    pub fn url(&self, database: &str) -> String {
        url(self.dir.path(), database)
    }

    #[expect(clippy::disallowed_methods, reason = "a server for tests is not an agent")]
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
            if rustix::process::kill_process(pid, rustix::process::Signal::INT).is_ok() && process.wait().is_err() {
                eprintln!("the server for tests cannot be reaped");
            }
        }
    }
}

/// Creates an empty database of a running server.
#[expect(clippy::disallowed_methods, reason = "a server for tests is not an agent")]
pub fn create_database(socket_dir: &Path, name: &str) {
    let createdb = programs().expect("PostgreSQL is installed").join("createdb");
    let made = Command::new(createdb).arg("-h").arg(socket_dir).args(["-U", "adj", name]).output().expect("createdb starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The `store` setting for a database of a running server.
pub fn url(socket_dir: &Path, database: &str) -> String {
    format!("postgres://adj@/{database}?host={}", socket_dir.display())
}

/// Finds the programs of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs.join("initdb").exists().then_some((version, programs))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, programs)| programs)
}
