//! A server with the API of S3 (`s3s-fs`), which stores objects in a directory and ends with its
//! owner.

use crate::support::{TestHome, skip};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const KEY_ID: &str = "adj-test";
pub const SECRET: &str = "adj-test-secret-canary";
pub const BUCKET: &str = "logs";

/// A running server.
pub struct S3 {
    program: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl S3 {
    /// Starts a server with a bucket. `None`: the program is not installed.
    pub fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("ADJ_S3S").map(PathBuf::from) else {
            skip(
                "s3s-fs is not installed (cargo install s3s-fs --features binary; ADJ_S3S=PROGRAM)",
            );
            return None;
        };
        let dir = tempfile::Builder::new()
            .prefix("adj-s3-")
            .tempdir()
            .expect("a directory");
        std::fs::create_dir(dir.path().join(BUCKET)).expect("a bucket");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let mut server = Self {
            program,
            dir,
            port,
            process: None,
        };
        server.resume();
        Some(server)
    }

    /// Starts the server's process, after [`S3::kill`].
    pub fn resume(&mut self) {
        let mut program = Command::new(&self.program);
        program.args([
            "--host",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
            "--access-key",
            KEY_ID,
            "--secret-key",
            SECRET,
        ]);
        program
            .arg(self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.process = Some(program.spawn().expect("s3s-fs starts"));
        // It prints nothing that could be awaited.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(std::time::Instant::now() < until, "s3s-fs does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Ends its process as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("killed");
            process.wait().expect("reaped");
        }
    }

    /// The directory with its buckets and unfinished uploads.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn setting(&self) -> String {
        format!(
            "log_store = \"s3://{BUCKET}/adj?endpoint=http://127.0.0.1:{}\"\n",
            self.port
        )
    }

    /// Returns a home whose log store is on this server, with this secret in a file.
    pub fn home(&self, secret: &str) -> TestHome {
        let home = TestHome::with_config(&format!(
            "{}log_store_credentials = \"keys\"\n",
            self.setting()
        ));
        write_keys(&home, secret);
        home
    }
}

pub fn write_keys(home: &TestHome, secret: &str) {
    let file = home.home.dir.join("keys");
    std::fs::write(
        &file,
        format!("AWS_ACCESS_KEY_ID={KEY_ID}\nAWS_SECRET_ACCESS_KEY={secret}\n"),
    )
    .expect("a file");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("a private file");
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}
