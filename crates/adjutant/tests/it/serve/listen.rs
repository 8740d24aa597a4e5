//! Where the hub listens, and what it does if it cannot.

use super::{Site, port_of};
use crate::support::TestHome;
use adjutant_api::view::GetHub;
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn without_configuration_the_hub_does_not_listen() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    assert_eq!(home.call(&GetHub {}, "").expect("a hub").url, None);
    let pid = home.hub_pid();
    let descriptors = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        // The hub's own user cannot inspect it; root can.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
        read => read.expect("the hub lives"),
    };
    let sockets: Vec<String> = descriptors
        .filter_map(|entry| {
            std::fs::read_link(entry.ok()?.path())
                .ok()?
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')
                .map(str::to_owned)
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("the table");
    let inode = |line: &str| {
        line.split_whitespace()
            .nth(9)
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        table.lines().all(|line| !sockets.contains(&inode(line))),
        "{table}"
    );
}

#[test]
fn port_in_use_ends_serve_and_not_a_hub_that_a_command_started() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let home = TestHome::with_config(&format!("listen = \"{address}\"\n"));
    let refused = home.adj(&["serve"]);
    assert!(refused.code != 0, "{refused:?}");
    let log = std::fs::read_to_string(home.home.hub_log()).unwrap_or_default();
    assert!(
        refused.err.contains(&address) || log.contains(&address),
        "{refused:?} {log}"
    );

    home.ok(&["ps"]);
    let hub = home.call(&GetHub {}, "").expect("a hub");
    assert!(
        hub.url.is_none()
            && hub
                .problems
                .iter()
                .any(|problem| problem.contains(&address)),
        "{hub:?}"
    );
    let doctor = home.adj(&["doctor"]);
    assert!(doctor.out.contains(&address), "{doctor:?}");
    home.ok(&["stop"]);
    drop(taken);
    port_of(&home);
}

#[test]
fn address_of_serve_is_kept_until_the_hub_is_stopped() {
    let home = TestHome::new();
    let url = |home: &TestHome| home.call(&GetHub {}, "").ok().and_then(|hub| hub.url);
    let start = |args: &[&str]| {
        let mut command = home.command(args);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("started")
    };
    let mut old = start(&[
        "__hub",
        "--foreground",
        "--as-version",
        "0.0.1",
        "--listen",
        "127.0.0.1:0",
    ]);
    let address = home.until("the older hub listens", || url(&home));
    // The first command of a newer version starts the next hub.
    home.until("the newer hub has taken over", || {
        home.ok(&["ps"]);
        home.call(&GetHub {}, "")
            .ok()
            .filter(|hub| hub.version != "0.0.1")
    });
    assert!(old.wait().expect("it ends").success());
    assert_eq!(url(&home).as_ref(), Some(&address));
    let pid = home.hub_pid();
    crate::support::kill(pid);
    home.until("the hub is dead", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
    home.ok(&["ps"]);
    assert_eq!(url(&home), Some(address));
    home.ok(&["stop"]);
    home.ok(&["ps"]);
    assert_eq!(url(&home), None);

    home.ok(&["stop"]);
    let mut serve = start(&["serve", "--listen", "127.0.0.1:0"]);
    home.until("it listens", || url(&home));
    let pid =
        rustix::process::Pid::from_raw(i32::try_from(serve.id()).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
    serve.wait().expect("it ends");
    home.ok(&["ps"]);
    assert_eq!(url(&home), None, "the person has ended it");
}

#[test]
fn hub_that_listens_does_not_end_when_idle() {
    let home = TestHome::with_config("listen = \"127.0.0.1:0\"\nidle_exit = \"1ms\"\n");
    let site = Site {
        port: port_of(&home),
        home,
    };
    let caller = site.caller(&site.token("one", &["--role", "person"]));
    let pid = site.home.hub_pid();
    for _ in 0..50 {
        assert_eq!(caller.call("hub", &serde_json::json!({}))["pid"], pid);
    }
}

#[test]
fn token_is_printed_once_and_stored_as_a_hash() {
    let site = Site::new();
    let token = site.token("ci", &["--client", "/work/app"]);
    assert!(token.starts_with("adj_") && token.len() == 47, "{token}");
    let caller = site.caller(&token);
    caller.call("runs", &serde_json::json!({}));
    let list = site.home.json(&["token", "list"]);
    assert_eq!(
        (&list["tokens"][0]["name"], &list["tokens"][0]["client"]),
        (&"ci".into(), &"/work/app".into())
    );
    assert!(
        list["tokens"][0]["used_at"].is_string() && !list.to_string().contains(&token[4..]),
        "{list}"
    );
    let again = site.home.adj(&["token", "new", "ci"]);
    assert!(again.code != 0 && again.err.contains("ci"), "{again:?}");
    let shown = site.home.ok(&["token", "new", "parent"]);
    assert_eq!(
        shown.lines().count(),
        1,
        "only the token is on standard output: {shown}"
    );
    site.home.ok(&["stop"]);
    for entry in std::fs::read_dir(&site.home.home.dir)
        .expect("the home")
        .map_while(Result::ok)
        .filter(|entry| entry.path().is_file())
    {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        assert!(
            !bytes
                .windows(30)
                .any(|part| part == &token.as_bytes()[4..34]),
            "{}",
            entry.path().display()
        );
    }
    // Only the person on the socket manages tokens.
    let refused = site.home.json(&["token", "list", "--all"]);
    assert_eq!(refused["tokens"].as_array().map(Vec::len), Some(2));
}

#[test]
fn invalid_configuration_at_the_start_is_reported() {
    let home = TestHome::with_config("listen = \"127.0.0.1:0\"\nnonsense = 1\n");
    home.ok(&["ps"]);
    let hub = home.call(&GetHub {}, "").expect("a hub");
    let said = "the configuration was invalid when this hub started, so it does not listen";
    assert!(
        hub.url.is_none() && hub.problems.iter().any(|problem| problem.contains(said)),
        "{hub:?}"
    );
    assert!(
        std::fs::read_to_string(home.home.hub_log())
            .expect("a log")
            .contains(said)
    );
    assert!(home.adj(&["doctor"]).out.contains(said));
    // A configuration that is corrected without HTTP has no such problem.
    std::fs::write(home.home.dir.join("config.toml"), "").expect("written");
    home.until("the problem is gone", || {
        home.call(&GetHub {}, "")
            .expect("a hub")
            .problems
            .is_empty()
            .then_some(())
    });
}

#[test]
fn proxy_is_called_by_its_public_name() {
    let home = TestHome::with_config(
        "listen = \"127.0.0.1:0\"\npublic_url = \"https://adj.example.org\"\n",
    );
    let site = Site {
        port: port_of(&home),
        home,
    };
    let caller = site.caller(&site.token("one", &[]));
    let status =
        |headers: &[(&str, &str)]| caller.send("POST", "/api/v1/runs", headers, "{}").status;
    for host in ["adj.example.org", "adj.example.org:443"] {
        assert_eq!(
            status(&[("host", host), ("origin", "https://adj.example.org")]),
            200,
            "{host}"
        );
    }
    assert_eq!(
        status(&[
            ("host", "adj.example.org"),
            ("origin", "http://adj.example.org")
        ]),
        403
    );
    assert_eq!(status(&[("host", "adj.example.org:8443")]), 403);
    assert_eq!(status(&[]), 200, "its own address stays");
}

#[test]
fn name_of_another_program_is_refused() {
    // Without IPv6, localhost has one address.
    let Ok(first) = TcpListener::bind("[::1]:0") else {
        return;
    };
    // A port of another test at 127.0.0.1 is none for this hub.
    let is_free = |listener: &TcpListener| {
        TcpListener::bind((
            "127.0.0.1",
            listener.local_addr().expect("an address").port(),
        ))
        .is_ok()
    };
    let others = (0..8).map(|_| TcpListener::bind("[::1]:0").expect("a port"));
    let other = std::iter::once(first)
        .chain(others)
        .find(is_free)
        .expect("a port that is free at 127.0.0.1");
    let port = other.local_addr().expect("an address").port();
    let home = TestHome::with_config(&format!("listen = \"127.0.0.1:{port}\"\n"));
    let site = Site {
        port: port_of(&home),
        home,
    };
    let caller = site.caller(&site.token("one", &[]));
    let status = |host: &str| {
        caller
            .send(
                "POST",
                "/api/v1/runs",
                &[("host", &format!("{host}:{port}"))],
                "{}",
            )
            .status
    };
    assert_eq!(
        ["127.0.0.1", "localhost", "[::1]"].map(status),
        [200, 403, 403]
    );
    site.home.ok(&["stop"]);
    drop(other);
    port_of(&site.home);
    assert_eq!(
        ["127.0.0.1", "localhost", "[::1]"].map(status),
        [200, 200, 200],
        "the hub has both addresses"
    );
}

#[test]
fn call_in_progress_is_answered_when_the_hub_ends() {
    /// The hub waits for a part of a second, which a machine under load can miss.
    const ATTEMPTS_MAX: usize = 10;
    let mut site = Site::new();
    let token = site.token("one", &[]);
    let is_answered = (0..ATTEMPTS_MAX).any(|_| {
        let mut stream =
            site.caller(&token)
                .open("POST", "/api/v1/runs", &[("content-length", "2")], "{");
        let mut stop = site
            .home
            .command(&["stop"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("started");
        let socket = site.home.home.socket();
        site.home
            .until("the hub ends", || (!socket.exists()).then_some(()));
        // The connection may be closed by now.
        let _sent = stream.get_mut().write_all(b"}");
        let mut answer = String::new();
        let _end = stream.read_to_string(&mut answer);
        stop.wait().expect("it ends");
        site.revive();
        answer.starts_with("HTTP/1.1 200 ")
    });
    assert!(is_answered);
}
