//! Processes of runs that hide their connection to the hub, and callers outside whose process
//! cannot be seen.

use crate::fence::users::{as_user, give_to_nobody};
use crate::support::{PATIENCE, TestHome, is_root, kill, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";

/// An agent that calls the hub in the way that its prompt names, with the token in the file `call`,
/// and prints the status of the reply.
const CALLER: &str = r#"
import array, ctypes, os, re, socket, subprocess, sys, threading, time
way = re.search(r"WAY=(\w+)", sys.stdin.read())
way = way.group(1) if way else sys.argv[1]
port, token = open("call").read().split()
body = b"{}"
request = ("POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1:%s\r\nconnection: close\r\nauthorization: Bearer %s\r\n"
           "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % (port, token)).encode()
libc = ctypes.CDLL(None, use_errno=True)

def connect(cork=True):
    s = socket.create_connection(("127.0.0.1", int(port)))
    if cork:
        s.setsockopt(socket.IPPROTO_TCP, 3, 1)
    return s

def tell(bytes):
    print(way, bytes.split(b"\r\n")[0].decode() or "nothing", flush=True)

def in_flight(depth):
    fd = connect().detach()
    os.write(fd, request)
    pairs = [socket.socketpair() for _ in range(depth)]
    for n, (a, b) in enumerate(pairs):
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd if n == 0 else pairs[n - 1][1].fileno()]))])
    os.close(fd)
    for a, b in pairs[:-1]:
        b.close()
    time.sleep(1)
    held = pairs[-1][1]
    for n in reversed(range(depth)):
        _, anc, _, _ = held.recvmsg(1, socket.CMSG_SPACE(4))
        held = socket.socket(fileno=array.array("i", anc[0][2])[0])
    tell(held.recv(65536))

def in_backlog():
    path = "backlog.sock"
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen()
    sender = socket.socket(socket.AF_UNIX); sender.connect(path)
    fd = connect().detach()
    os.write(fd, request)
    sender.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)
    time.sleep(1)
    receiver, _ = listener.accept()
    _, anc, _, _ = receiver.recvmsg(1, socket.CMSG_SPACE(4))
    tell(socket.socket(fileno=array.array("i", anc[0][2])[0]).recv(65536))

def not_dumpable():
    libc.prctl(4, 0, 0, 0, 0)
    s = connect(False)
    s.sendall(request)
    tell(s.recv(65536))

def blocked_thread():
    fd = connect().detach()
    os.write(fd, request)
    got = []
    reader = threading.Thread(target=lambda: got.append(os.read(fd, 65536)))
    reader.start()
    time.sleep(0.05)
    os.close(fd)
    reader.join(10)
    tell(got[0] if got else b"")

def own_table():
    # A thread with a table of its own, which the process itself does not have.
    got = []
    def call():
        libc.unshare(0x400)
        s = connect(False)
        s.sendall(request)
        got.append(s.recv(65536))
    reader = threading.Thread(target=call)
    reader.start()
    reader.join(10)
    tell(got[0] if got else b"")

def detached():
    # In another session, without an environment and without the limit that marks the attempt's processes.
    code = open(sys.argv[0]).read()
    out = subprocess.run(["setsid", "env", "-i", sys.executable, sys.argv[0], "in_flight"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    print(out.stdout.decode().replace("in_flight", way), flush=True)

{"in_flight": lambda: in_flight(1), "nested": lambda: in_flight(3), "backlog": in_backlog, "not_dumpable": not_dumpable,
 "blocked_thread": blocked_thread, "own_table": own_table, "detached": detached, "plain": lambda: (lambda s: (s.sendall(request), tell(s.recv(65536))))(connect(False))}[way]()
"#;

/// A tunnel whose process forbids inspection, as that of `sshd` does.
const TUNNEL: &str = r#"
import ctypes, socket, sys, threading
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def pipe(a, b):
    try:
        while True:
            data = a.recv(65536)
            if not data: break
            b.sendall(data)
    except OSError: pass
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
while True:
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=pipe, args=(near, far), daemon=True).start()
    threading.Thread(target=pipe, args=(far, near), daemon=True).start()
"#;
const WAYS: [&str; 8] = [
    "plain",
    "in_flight",
    "nested",
    "backlog",
    "not_dumpable",
    "blocked_thread",
    "own_table",
    "detached",
];

/// A hub of root or of an ordinary user, with a token that was found by its runs.
struct Victim {
    home: TestHome,
    is_nobody: bool,
    port: u16,
    token: String,
}

impl Victim {
    fn new(is_nobody: bool) -> Self {
        let agent = |name: &str, command: &str| {
            format!(
                "[agents.{name}]\nharness = \"plain\"\nprompt = \"stdin\"\ncommand = {command}\n"
            )
        };
        let config = agent("caller", &format!("[\"{PYTHON}\", \"caller.py\"]"))
            + &agent("idle", "[\"/bin/sleep\", \"600\"]")
            + "[pools.default]\nslots = 4\n";
        let home = TestHome::with_config(&format!("listen = \"127.0.0.1:0\"\n{config}"));
        std::fs::write(home.work().join("caller.py"), CALLER).expect("written");
        if is_nobody {
            give_to_nobody(home.work().parent().expect("a directory"));
        }
        let mut victim = Self {
            home,
            is_nobody,
            port: 0,
            token: String::new(),
        };
        let made: Value =
            serde_json::from_str(&victim.adj(&["token", "new", "t", "--role", "person", "--json"]))
                .expect("JSON");
        victim.token = made["data"]["token"].as_str().expect("a token").to_owned();
        let doctor: Value = serde_json::from_str(&victim.adj(&["ui", "--json"])).expect("JSON");
        let page = doctor["data"]["page"].as_str().expect("a page");
        let authority = page.split('/').nth(2).expect("an authority");
        victim.port = authority
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port");
        std::fs::write(
            victim.home.work().join("call"),
            format!("{} {}", victim.port, victim.token),
        )
        .expect("written");
        victim
    }

    fn adj(&self, args: &[&str]) -> String {
        as_user(&self.home, self.is_nobody, args)
    }

    /// Calls the hub from this process or through a tunnel, and returns the status line.
    fn call(&self, port: u16) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!(
            "POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: 2\r\n\r\n{{}}",
            self.port, self.token
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    }

    /// Starts a tunnel as this user, outside of all runs.
    fn tunnel(&self, uid: u32) -> (Child, u16) {
        let mut command = Command::new(PYTHON);
        command
            .args(["-c", TUNNEL, &self.port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_clear()
            .current_dir("/");
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        let mut child = command.spawn().expect("python starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a port");
        let port = line.trim().parse().expect("a port");
        (child, port)
    }

    fn own_uid(&self) -> u32 {
        if self.is_nobody {
            65_534
        } else {
            rustix::process::geteuid().as_raw()
        }
    }
}

fn users() -> Vec<bool> {
    if rustix::process::geteuid().is_root() {
        vec![false, true]
    } else {
        vec![false]
    }
}

fn is_installed() -> bool {
    let found = std::path::Path::new(PYTHON).exists();
    if !found {
        skip("python3 is not installed");
    }
    found
}

#[test]
fn run_that_hides_its_connection_is_refused_beside_a_tunnel() {
    if !is_installed() {
        return;
    }
    for is_nobody in users() {
        let victim = Victim::new(is_nobody);
        let (mut tunnel, port) = victim.tunnel(victim.own_uid());
        // A run that hides nothing does not prevent the tunnel.
        victim.adj(&["run", "-d", "-a", "idle", "-n", "idle", "wait"]);
        let reply = victim.call(port);
        assert!(reply.starts_with("HTTP/1.1 200 "), "{is_nobody}: {reply}");
        for fence in ["none", "workspace", "best-effort"] {
            for way in WAYS {
                let name = format!("{way}-{fence}").replace('_', "-");
                victim.adj(&[
                    "run",
                    "-w",
                    "-a",
                    "caller",
                    "-n",
                    &name,
                    "--fence",
                    fence,
                    &format!("WAY={way}"),
                ]);
                let log = victim.adj(&["logs", &name]);
                assert!(
                    log.contains(&format!("{way} HTTP/1.1 403 Forbidden")),
                    "nobody: {is_nobody}, fence {fence}, {way}: {log}"
                );
            }
        }
        let reply = victim.call(port);
        assert!(reply.starts_with("HTTP/1.1 200 "), "{is_nobody}: {reply}");
        kill(tunnel.id());
        tunnel.wait().expect("it ends");
        victim.adj(&["cancel", "idle"]);
        victim.adj(&["stop"]);
    }
}

#[test]
fn proxy_of_another_user_is_admitted() {
    if !is_installed() {
        return skip("python3 is not installed");
    }
    if !is_root("a proxy is started as another user") {
        return;
    }
    for is_nobody in users() {
        let victim = Victim::new(is_nobody);
        victim.adj(&["run", "-d", "-a", "idle", "-n", "idle", "wait"]);
        for uid in [0, 33, 65_534] {
            let (mut tunnel, port) = victim.tunnel(uid);
            let reply = victim.call(port);
            assert!(
                reply.starts_with("HTTP/1.1 200 "),
                "nobody: {is_nobody}, proxy of {uid}: {reply}"
            );
            kill(tunnel.id());
            tunnel.wait().expect("it ends");
        }
        victim.adj(&["cancel", "idle"]);
        victim.adj(&["stop"]);
    }
}
