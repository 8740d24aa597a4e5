//! One attempt through the real guard and supervisor, with real processes.

mod case;

use adjutant_api::protocol::{FactKind, WorkerAccess};
use adjutant_home::attempt_processes::{attempt_over, kill_stragglers};
use case::{Case, SOON, kill};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// All ways to leave a process group: same group (A), own group (B), own session (C), orphan in its
/// own session (D), and the latter with another name, an empty environment and no pipes (E). All
/// ignore TERM.
const ESCAPES: &str = r#"
trap '' TERM
sleep $U &
set -m; sleep $U & set +m
setsid sleep $U &
(setsid sleep $U &)
(setsid env -i bash -c "exec -a renamed-$U sleep 1000" </dev/null >/dev/null 2>&1 &)
until [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr -d '\0' | grep -o "sleep$U\|renamed-$U" | wc -l)" -ge 5 ]; do sleep 0.01; done
"#;

/// Returns the kinds of containment that this machine supports.
fn containments() -> Vec<&'static str> {
    if rustix::process::geteuid().is_root() {
        vec!["subreaper", "pid_namespace"]
    } else {
        vec!["subreaper"]
    }
}

fn exit_code(fact: &FactKind) -> Option<i32> {
    match fact {
        FactKind::Ended { exit_code, .. } => *exit_code,
        other => panic!("the last fact is {other:?}"),
    }
}

#[tokio::test]
async fn plain_agent_runs_from_prompt_to_result() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order("cat; echo to stderr >&2; printf '%s' \"$ADJ_RUN\" > run; umask > umask; echo the end; exit 3");
        order.containment = containment.to_owned();
        let last = case.run(&order).await;
        let FactKind::Ended {
            exit_code,
            signal,
            swept,
            output_left_open,
            active_ms,
            result,
            output_bytes,
            verdict: None,
            usage: None,
            ..
        } = last
        else {
            panic!("{last:?}")
        };
        assert_eq!(
            (exit_code, signal, swept, output_left_open),
            (Some(3), None, 0, false),
            "{}",
            case.supervisor_log()
        );
        assert_eq!(result, "the prompt\nthe end");
        assert!(active_ms < 10_000);
        let log = case.log();
        assert_eq!(log.len() as u64, output_bytes);
        assert!(
            log.contains("the prompt\n")
                && log.contains("stderr: to stderr\n")
                && log.contains("the end\n"),
            "{log:?}"
        );
        let facts = case.facts();
        assert!(
            matches!(&facts[0].what, FactKind::Started { containment: level, .. } if level == containment),
            "{facts:?}"
        );
        assert_eq!(
            facts.iter().map(|fact| fact.n).collect::<Vec<_>>(),
            (1..=facts.len() as u64).collect::<Vec<_>>()
        );
        assert_eq!(
            fs::read_to_string(case.home.join("work/run")).unwrap(),
            format!("{}/1", case.run_id)
        );
        assert_eq!(
            fs::read_to_string(case.home.join("work/umask"))
                .unwrap()
                .trim(),
            "0022"
        );
        let prompt = case
            .home
            .join("logs")
            .join(format!("{}.prompt.md", case.run_id));
        assert_eq!(fs::read_to_string(&prompt).unwrap(), "the prompt\n");
        for file in fs::read_dir(case.home.join("logs"))
            .unwrap()
            .chain(fs::read_dir(&case.dir.0).unwrap())
        {
            let file = file.unwrap();
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                file.path().display()
            );
        }
    }
}

#[tokio::test]
async fn every_kind_of_escaped_process_is_swept() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order(&format!("{ESCAPES} echo done"));
        order.containment = containment.to_owned();
        let last = case.run(&order).await;
        case.none_left().await;
        let FactKind::Ended {
            exit_code,
            swept,
            output_left_open,
            result,
            ..
        } = last
        else {
            panic!("{last:?}")
        };
        assert_eq!(
            (exit_code, output_left_open, result.as_str()),
            (Some(0), true, "done"),
            "{containment}"
        );
        assert_eq!(swept, 5, "{containment}: {}", case.supervisor_log());
    }
}

#[tokio::test]
async fn stop_uses_its_grace_and_leaves_no_process() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order(&format!(
            "{ESCAPES} kill -STOP $!; while true; do sleep 1; done"
        ));
        order.containment = containment.to_owned();
        let guard = case.start(&order);
        case.started().await;
        case.wait_alive(5).await;
        let began = Instant::now();
        case.give(|orders| orders.stop = Some("cancelled".to_owned()));
        let last = case
            .fact(|fact| matches!(fact, FactKind::Ended { .. }))
            .await;
        assert!(
            began.elapsed() > Duration::from_millis(450),
            "{:?}: no grace",
            began.elapsed()
        );
        case.none_left().await;
        let FactKind::Ended { signal, swept, .. } = last else {
            panic!("{last:?}")
        };
        assert_eq!(signal, Some(9), "{containment}");
        assert!(swept >= 5, "{swept}");
        guard.wait().await.expect("is reaped");
    }
}

#[tokio::test]
async fn stop_is_as_fast_as_the_agent() {
    let case = Case::new();
    let mut order =
        case.order("trap 'echo bye; exit 4' TERM; echo here; while true; do sleep 0.01; done");
    order.grace_ms = 600_000;
    let guard = case.start(&order);
    case.fact(|fact| matches!(fact, FactKind::Output { .. }))
        .await;
    case.give(|orders| orders.stop = Some("cancelled".to_owned()));
    tokio::time::timeout(SOON, guard.wait())
        .await
        .expect("the guard ends without waiting for the grace period")
        .expect("is reaped");
    let last = case.facts().pop().expect("there are facts").what;
    assert!(
        matches!(&last, FactKind::Ended { exit_code: Some(4), result, .. } if result == "here\nbye"),
        "{last:?}"
    );
}

#[tokio::test]
async fn nothing_outlives_a_killed_supervisor() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order(&format!("{ESCAPES} sleep $U"));
        order.containment = containment.to_owned();
        let guard = case.start(&order);
        case.started().await;
        case.wait_alive(6).await;
        kill(case.supervisor_pid());
        case.none_left().await;
        guard.wait().await.expect("is reaped");
        attempt_over(&case.dir).await.expect("watched");
        assert!(
            !case
                .facts()
                .iter()
                .any(|fact| matches!(fact.what, FactKind::Ended { .. }))
        );
    }
}

#[tokio::test]
async fn nothing_outlives_a_supervisor_killed_at_start() {
    for containment in containments() {
        for round in 0..12 {
            let case = Case::new();
            let mut order = case.order(&format!("{ESCAPES} sleep $U"));
            order.containment = containment.to_owned();
            let guard = case.start(&order);
            while fs::read_to_string(case.dir.supervisor_lock())
                .unwrap_or_default()
                .is_empty()
            {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(round * 5)).await;
            kill(case.supervisor_pid());
            tokio::time::timeout(SOON, guard.wait())
                .await
                .expect("the guard ends")
                .expect("is reaped");
            case.none_left().await;
        }
    }
}

#[tokio::test]
async fn attempt_continues_without_its_guard() {
    let case = Case::new();
    let guard = case.start(&case.order(&format!(
        "{ESCAPES} until [ -e go ]; do sleep 0.01; done; echo fine"
    )));
    case.started().await;
    kill(case.guard_pid());
    guard.wait().await.expect("is reaped");
    case.fact(|fact| matches!(fact, FactKind::GuardLost {}))
        .await;
    let over = attempt_over(&case.dir);
    tokio::pin!(over);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut over)
            .await
            .is_err(),
        "the supervisor lives"
    );
    fs::write(case.home.join("work/go"), "").unwrap();
    let last = case
        .fact(|fact| matches!(fact, FactKind::Ended { .. }))
        .await;
    assert_eq!(exit_code(&last), Some(0));
    tokio::time::timeout(SOON, over)
        .await
        .expect("is over")
        .expect("watched");
    case.none_left().await;
}

#[tokio::test]
async fn leftover_processes_are_found_by_marker_and_limit() {
    let case = Case::new();
    let scrubbed =
        "(setsid env -i bash -c \"exec -a renamed-$U sleep 1000\" </dev/null >/dev/null 2>&1 &)";
    let guard = case.start(&case.order(&format!("{scrubbed}; setsid sleep $U & sleep $U")));
    case.started().await;
    case.wait_alive(3).await;
    let supervisor = case.supervisor_pid();
    kill(case.guard_pid());
    kill(supervisor);
    guard.wait().await.expect("is reaped");
    attempt_over(&case.dir).await.expect("watched");
    assert!(!case.alive().is_empty());
    assert!(kill_stragglers(&case.dir, &case.run_id, 1) >= 3);
    case.none_left().await;
}

#[tokio::test]
async fn attempt_starts_once() {
    let case = Case::new();
    let order = case.order("echo once >> times");
    case.run(&order).await;
    let status = case.start(&order).wait().await.expect("is reaped");
    assert_eq!(
        status.exit_status(),
        Some(i32::from(
            adjutant_home::attempt_processes::EXIT_BEGUN_BEFORE
        ))
    );
    assert_eq!(
        fs::read_to_string(case.home.join("work/times")).unwrap(),
        "once\n"
    );

    let case = Case::new();
    let guard = case.start(&case.order("sleep $U"));
    case.started().await;
    let exe = std::path::Path::new(env!("CARGO_BIN_EXE_adj"));
    let second =
        adjutant_home::attempt_processes::spawn_guard_of(exe, &case.dir, &case.order("echo no"));
    assert_eq!(
        second.expect_err("is refused").kind(),
        std::io::ErrorKind::AlreadyExists
    );
    case.give(|orders| orders.stop = Some("cancelled".to_owned()));
    guard.wait().await.expect("is reaped");
}

#[tokio::test]
async fn unstartable_agent_has_a_hint() {
    let script = |text: &str, mode: u32| {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let (plain, unreadable, no_interpreter) = (
        script("#!/bin/sh\n", 0o644),
        script("\0\0\0\0", 0o755),
        script("#!/no/such\n", 0o755),
    );
    let program = |path: &std::path::Path| vec![path.display().to_string()];
    type Change = Box<dyn Fn(&mut adjutant_api::protocol::Order)>;
    let cases: Vec<(&str, &str, Change)> = vec![
        (
            "agent_not_found",
            "does not exist: install it",
            Box::new(|order| order.argv = vec!["/no/such/program".to_owned()]),
        ),
        (
            "agent_not_found",
            "not found on PATH",
            Box::new(|order| order.argv = vec!["nosuchprogram".to_owned()]),
        ),
        (
            "agent_not_executable",
            "chmod +x",
            Box::new({
                let p = program(&plain);
                move |order| order.argv.clone_from(&p)
            }),
        ),
        (
            "agent_not_executable",
            "not a program for this machine",
            Box::new({
                let p = program(&unreadable);
                move |order| order.argv.clone_from(&p)
            }),
        ),
        (
            "agent_not_executable",
            "interpreter",
            Box::new({
                let p = program(&no_interpreter);
                move |order| order.argv.clone_from(&p)
            }),
        ),
        (
            "invalid",
            "does not exist: correct it",
            Box::new(|order| order.cwd = "/no/such/dir".into()),
        ),
        (
            "invalid",
            "is not a directory",
            Box::new(|order| order.cwd = "/etc/passwd".into()),
        ),
        (
            "invalid",
            "prompt = \"stdin\"",
            Box::new(|order| {
                order.prompt = "x".repeat(130_000);
                order.prompt_via = "arg".to_owned();
            }),
        ),
        (
            "invalid",
            "NUL",
            Box::new(|order| {
                order.prompt = "a\0b".to_owned();
                order.prompt_via = "arg".to_owned();
            }),
        ),
    ];
    for containment in containments() {
        for (wanted, text, change) in &cases {
            let case = Case::new();
            let mut order = case.order("true");
            order.containment = containment.to_owned();
            change(&mut order);
            let last = case.run(&order).await;
            let FactKind::SpawnFailed { code, message } = last else {
                panic!("{last:?}")
            };
            assert_eq!(code, *wanted, "{message}");
            assert!(message.contains(text), "{message}");
        }
    }
}

#[tokio::test]
async fn prompt_can_be_the_last_argument() {
    let case = Case::new();
    let mut order = case.order("printf '%s' \"$1\"; cat");
    order.argv.push("name".to_owned());
    order.prompt_via = "arg".to_owned();
    order.prompt = "-n $(id) `id` @/etc/passwd".to_owned();
    let last = case.run(&order).await;
    assert!(
        matches!(&last, FactKind::Ended { result, .. } if *result == order.prompt),
        "{last:?}"
    );
}

#[tokio::test]
async fn unread_large_prompt_blocks_nothing() {
    let case = Case::new();
    let mut order = case.order("echo not interested");
    order.prompt = "x".repeat(4 * 1024 * 1024);
    assert_eq!(exit_code(&case.run(&order).await), Some(0));
    let case = Case::new();
    let mut order = case.order("wc -c; sleep 0.1; head -c 3000000 /dev/zero | tr '\\0' x");
    order.prompt = "x".repeat(4 * 1024 * 1024);
    let last = case.run(&order).await;
    assert!(
        matches!(
            &last,
            FactKind::Ended {
                output_bytes: 3_000_008,
                ..
            }
        ),
        "{last:?}"
    );
}

#[tokio::test]
async fn output_flood_is_bounded() {
    let case = Case::new();
    let order = case.order("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; yes | head -c 60000000; yes errors | head -c 1000000 >&2; echo last; touch done; sleep $U");
    let guard = case.start(&order);
    // Without the mapped pages of the program, which differ between builds.
    let own_kib = |pid: i32| -> u64 {
        let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let mut pages = pages
            .split_whitespace()
            .skip(1)
            .filter_map(|count| count.parse::<u64>().ok());
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        resident.saturating_sub(shared) * rustix::param::page_size() as u64 / 1024
    };
    case.started().await;
    let until = Instant::now() + Duration::from_secs(200);
    let mut peak = 0;
    while !case.home.join("work/done").exists() {
        assert!(Instant::now() < until);
        peak = peak.max(own_kib(case.supervisor_pid()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((1..32 * 1024).contains(&peak), "{peak} KiB of memory");
    case.give(|orders| orders.stop = Some("cancelled".to_owned()));
    guard.wait().await.expect("is reaped");
    let log = case.log();
    assert!(
        log.len() as u64 <= order.log_bytes_max + 200,
        "{} bytes",
        log.len()
    );
    assert!(
        log.starts_with("first\nxxx") && log.contains("\nlast\n"),
        "{:?}",
        &log[log.len() - 30..]
    );
    assert!(log.contains("bytes of output are left out here"));
    let last = case.facts().pop().expect("there are facts").what;
    let FactKind::Ended {
        output_bytes,
        result,
        ..
    } = last
    else {
        panic!("{last:?}")
    };
    assert!(output_bytes > 161_000_000 && result.ends_with("last") && result.len() <= 16 * 1024);
    let disk: u64 = fs::read_dir(&case.dir.0)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    // The whole result is stored beside the log.
    assert!(
        disk < 100_000 + adjutant_core::limits::RESULT_BYTES_MAX as u64,
        "{disk} bytes beside the log"
    );
}

#[tokio::test]
async fn invalid_output_bytes_are_escaped() {
    let case = Case::new();
    let script = r#"printf 'a\0b\033[31mred\033[0m\r\n'; printf '\360\237'; sleep 0.05; printf '\230\200 '; printf '\303'; sleep 0.05; printf '\244\377!\n'; printf '\033]0;title\007x\302\233y\n'"#;
    let last = case.run(&case.order(script)).await;
    let FactKind::Ended { result, .. } = last else {
        panic!("{last:?}")
    };
    assert_eq!(result, "a␀bred\n😀 ä\u{fffd}!\nx\u{fffd}y");
}

#[tokio::test]
async fn home_on_a_long_path_is_supervised() {
    let case = Case::below(&format!("{}/{}", "d".repeat(120), "e".repeat(120)));
    let last = case
        .run(
            &case.order(&format!("curl -s --unix-socket /proc/self/fd/3/worker.sock http://adj/api/v1/run -d '{{}}' 3<{}", "$(dirname $ADJ_WORKER)")),
        )
        .await;
    let FactKind::Ended {
        exit_code, result, ..
    } = last
    else {
        panic!("{last:?}")
    };
    assert_eq!(exit_code, Some(0), "{}", case.log());
    assert!(result.contains(&case.run_id), "{result}");
}

#[tokio::test]
async fn facts_reach_a_returning_hub_once() {
    let case = Case::new();
    let guard = case.start(&case.order("echo one; until [ -e go ]; do sleep 0.01; done; echo two"));
    case.fact(|fact| matches!(fact, FactKind::Output { .. }))
        .await;
    case.hub_goes();
    fs::write(case.home.join("work/go"), "").unwrap();
    let until = Instant::now() + SOON;
    let on_disk = loop {
        let facts = adjutant_agent::supervisor::read_facts(&case.dir).expect("reads");
        if matches!(
            facts.last().expect("there are facts").what,
            FactKind::Ended { .. }
        ) {
            break facts;
        }
        assert!(Instant::now() < until, "no last fact: {facts:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(
        !case
            .facts()
            .iter()
            .any(|fact| matches!(fact.what, FactKind::Ended { .. })),
        "there is no hub"
    );
    let began = Instant::now();
    case.hub_comes();
    guard.wait().await.expect("is reaped");
    // Without a notification, it would check after 5 s.
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}: the new socket was not noticed",
        began.elapsed()
    );
    assert_eq!(case.facts(), on_disk);
}

#[tokio::test]
async fn workers_call_outlives_the_hub() {
    let case = Case::new();
    let call = "curl -s --unix-socket \"$(dirname $ADJ_WORKER)/worker.sock\" -H 'adj-key: k1' http://adj/api/v1/ask -d '{\"question\":\"?\"}'";
    let guard = case.start(&case.order(&format!(
        "until [ -e go ]; do sleep 0.01; done; touch asking; {call}"
    )));
    case.started().await;
    case.hub_goes();
    fs::write(case.home.join("work/go"), "").unwrap();
    while !case.home.join("work/asking").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    case.hub_comes();
    guard.wait().await.expect("is reaped");
    let last = case.facts().pop().expect("there are facts").what;
    let FactKind::Ended { result, .. } = last else {
        panic!("{last:?}")
    };
    let reply: serde_json::Value = serde_json::from_str(&result).expect("is JSON");
    assert_eq!(reply["name"], "ask");
    assert_eq!(reply["key"], "k1");
    assert_eq!(reply["attempt"], format!("{}/1", case.run_id));
    assert_eq!(case.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_accepts_only_its_worker() {
    for containment in containments() {
        let case = Case::new();
        let call = "curl -s -o /dev/null -w '%{http_code} ' --unix-socket \"$(dirname $ADJ_WORKER)/worker.sock\" http://adj/api/v1/run -d '{}'";
        let script = format!(
            "{call}; {call} -H 'authorization: Bearer stolen'; (setsid env -i ADJ_WORKER=$ADJ_WORKER PATH=$PATH bash -c \"{}; touch called\" &) ; until [ -e called ]; do sleep 0.01; done; touch ready; sleep $U",
            call.replace('"', "\\\"").replace('$', "\\$")
        );
        let mut order = case.order(&script);
        order.containment = containment.to_owned();
        let guard = case.start(&order);
        while !case.home.join("work/ready").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let access: WorkerAccess =
            serde_json::from_slice(&fs::read(case.dir.worker_access()).unwrap()).unwrap();
        let port: u16 = access
            .mcp_url
            .strip_prefix("http://127.0.0.1:")
            .unwrap()
            .strip_suffix("/mcp")
            .unwrap()
            .parse()
            .unwrap();
        let outside = curl(&[
            "--unix-socket",
            &access.socket.display().to_string(),
            "http://adj/api/v1/run",
            "-d",
            "{}",
        ]);
        assert_eq!(outside, "403");
        let url = format!("http://127.0.0.1:{port}/api/v1/run");
        let bearer = format!("authorization: Bearer {}", access.token);
        assert_eq!(curl(&[&url, "-d", "{}"]), "401");
        assert_eq!(
            curl(&[&url, "-d", "{}", "-H", "authorization: Bearer 00"]),
            "401"
        );
        assert_eq!(curl(&[&url, "-d", "{}", "-H", &bearer]), "200");
        assert_eq!(
            curl(&[&url, "-d", "{}", "-H", &bearer, "-H", "host: evil.example"]),
            "403"
        );
        assert_eq!(
            curl(&[
                &url,
                "-d",
                "{}",
                "-H",
                &bearer,
                "-H",
                "origin: http://evil.example"
            ]),
            "403"
        );
        assert_eq!(
            curl(&[
                &url,
                "-d",
                "{}",
                "-H",
                &bearer,
                "-H",
                &format!("origin: http://localhost:{port}")
            ]),
            "200"
        );
        let own = format!("/proc/{}/cmdline", case.supervisor_pid());
        assert!(!String::from_utf8_lossy(&fs::read(own).unwrap()).contains(&access.token));
        case.give(|orders| orders.stop = Some("cancelled".to_owned()));
        guard.wait().await.expect("is reaped");
        let last = case.facts().pop().expect("there are facts").what;
        assert!(
            matches!(&last, FactKind::Ended { result, .. } if result == "200 403 200"),
            "{containment}: {last:?} {}",
            case.supervisor_log()
        );
    }
}

fn curl(args: &[&str]) -> String {
    let out = std::process::Command::new("curl")
        .args([
            "-s",
            "--max-time",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ])
        .args(args)
        .output()
        .expect("curl runs");
    String::from_utf8(out.stdout).expect("is text")
}

#[tokio::test]
async fn time_limit_counts_active_time_only() {
    let case = Case::new();
    let mut order = case.order("sleep $U");
    order.timeout_ms = Some(1_000);
    order.active_ms_before = 400;
    case.give(|orders| orders.waiting = true);
    let guard = case.start(&order);
    case.started().await;
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(
        !case
            .facts()
            .iter()
            .any(|fact| matches!(fact.what, FactKind::LimitReached { .. })),
        "it was waiting"
    );
    let began = Instant::now();
    case.give(|orders| orders.waiting = false);
    let limit = case
        .fact(|fact| matches!(fact, FactKind::LimitReached { .. }))
        .await;
    let FactKind::LimitReached { active_ms } = limit else {
        unreachable!()
    };
    assert!(active_ms >= 1_000, "{active_ms}");
    assert!(began.elapsed() >= Duration::from_millis(400));
    guard.wait().await.expect("is reaped");
    case.none_left().await;
}

#[tokio::test]
async fn agent_with_input_gets_messages_and_its_cancel() {
    let case = Case::new();
    let mut order = case.order(
        "while read -r line; do echo \"got $line\"; case $line in *cancel*) exit 7;; esac; done",
    );
    order.prompt_via = "stream".to_owned();
    order.prompt = "two\nlines".to_owned();
    let guard = case.start(&order);
    case.started().await;
    let message = |id: &str, text: &str| adjutant_api::view::MessageView {
        message_id: id.to_owned(),
        from: "person".to_owned(),
        text: text.to_owned(),
        ..Default::default()
    };
    case.give(|orders| orders.messages = vec![message("m1", "a\nb")]);
    case.fact(|fact| matches!(fact, FactKind::Delivered { message_id } if message_id == "m1"))
        .await;
    case.give(|orders| orders.messages = vec![message("m1", "a\nb"), message("m2", "c")]);
    case.fact(|fact| matches!(fact, FactKind::Delivered { message_id } if message_id == "m2"))
        .await;
    case.give(|orders| orders.stop = Some("cancelled".to_owned()));
    guard.wait().await.expect("is reaped");
    let last = case.facts().pop().expect("there are facts").what;
    let FactKind::Ended {
        exit_code, result, ..
    } = last
    else {
        panic!("{last:?}")
    };
    assert_eq!(exit_code, Some(7));
    let wanted = r#"got {"type":"prompt","text":"two\nlines"}
got {"type":"message","from":"person","text":"a\nb"}
got {"type":"message","from":"person","text":"c"}
got {"type":"cancel"}"#;
    // `read -r` keeps backslashes, so the lines are unchanged.
    assert_eq!(result, wanted);
}

#[tokio::test]
async fn agent_inherits_no_extra_descriptor() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order("ls -l /proc/self/fd | grep -v 'total\\|/proc/' | wc -l; env | cut -d= -f1 | sort | tr '\\n' ' '");
        order.containment = containment.to_owned();
        let last = case.run(&order).await;
        let FactKind::Ended { result, .. } = last else {
            panic!("{last:?}")
        };
        let (descriptors, names) = result.split_once('\n').expect("two lines");
        assert_eq!(descriptors, "3", "{}", case.log());
        for name in names.split_whitespace() {
            assert!(
                [
                    "ADJ_RUN",
                    "ADJ_WORKER",
                    "ADJ_HOME",
                    "PATH",
                    "U",
                    "PWD",
                    "OLDPWD",
                    "SHLVL",
                    "_"
                ]
                .contains(&name),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn signals_just_before_the_end_are_all_reported() {
    let case = Case::new();
    let block =
        "printf '[PROGRESS]\\nagent_id: %s\\nnote: %s\\n[/PROGRESS]\\n' \"${ADJ_RUN%/*}\" $i";
    let last = case
        .run(&case.order(&format!("for i in $(seq 60); do {block}; done")))
        .await;
    let FactKind::Ended {
        exit_code,
        output_left_open,
        ..
    } = last
    else {
        panic!("{last:?}")
    };
    assert_eq!((exit_code, output_left_open), (Some(0), false));
    let signals = case
        .facts()
        .iter()
        .filter(|fact| matches!(fact.what, FactKind::Signal { .. }))
        .count();
    assert_eq!(signals, 60, "{:?}", case.facts());
}

#[tokio::test]
async fn resource_use_is_measured_and_summed_at_the_end() {
    for containment in containments() {
        let case = Case::new();
        // `dd` keeps its block until it is read, which takes longer than the first measurement.
        let mut order =
            case.order("dd if=/dev/zero bs=64M count=2 2>/dev/null | (sleep 1.5; cat >/dev/null)");
        order.containment = containment.to_owned();
        case.run(&order).await;
        let found: Vec<_> = case
            .facts()
            .into_iter()
            .filter_map(|fact| {
                if let FactKind::Resources(found) = fact.what {
                    Some(found)
                } else {
                    None
                }
            })
            .collect();
        let [first, .., last] = &found[..] else {
            panic!("{containment}: {found:?}")
        };
        assert!(
            first.memory_bytes >= 64 << 20 && first.processes >= 3,
            "{containment}: {found:?}"
        );
        assert!(
            last.memory_peak_bytes >= first.memory_bytes
                && last.cpu_ms >= first.cpu_ms
                && last.cpu_ms > 0,
            "{containment}: {found:?}"
        );
        assert_eq!(
            (last.processes, last.memory_bytes),
            (0, 0),
            "{containment}: {found:?}"
        );
    }
}
