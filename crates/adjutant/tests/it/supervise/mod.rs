//! One attempt through the real guard and supervisor, with real processes.

mod case;

use adjutant::link::{FactKind, WorkerAccess};
use adjutant::process::attempt_over;
use case::{Case, SOON, kill};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Every way to get out of a process group: same group (A), own group (B), own session (C), own
/// session and orphaned (D), and that with another name, a cleared environment and no pipes (E).
/// All ignore TERM.
const ESCAPES: &str = r#"
trap '' TERM
sleep $U &
set -m; sleep $U & set +m
setsid sleep $U &
(setsid sleep $U &)
(setsid env -i bash -c "exec -a renamed-$U sleep 1000" </dev/null >/dev/null 2>&1 &)
until [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr -d '\0' | grep -o "sleep$U\|renamed-$U" | wc -l)" -ge 5 ]; do sleep 0.01; done
"#;

/// Both ways to hold an attempt together, where this machine has both.
fn containments() -> Vec<&'static str> {
    if rustix::process::geteuid().is_root() { vec!["subreaper", "pid_namespace"] } else { vec!["subreaper"] }
}

fn exit_code(fact: &FactKind) -> Option<i32> {
    match fact {
        FactKind::Ended { exit_code, .. } => *exit_code,
        other => panic!("the last fact is {other:?}"),
    }
}

#[tokio::test]
async fn a_plain_agent_runs_from_its_prompt_to_its_last_words() {
    for containment in containments() {
        let case = Case::new();
        let mut order = case.order("cat; echo to stderr >&2; printf '%s' \"$ADJ_RUN\" > run; umask > umask; echo the end; exit 3");
        order.containment = containment.to_owned();
        let last = case.run(&order).await;
        let FactKind::Ended { exit_code, signal, swept, output_left_open, active_ms, result, output_bytes } = last else { panic!("{last:?}") };
        assert_eq!((exit_code, signal, swept, output_left_open), (Some(3), None, 0, false), "{}", case.supervisor_log());
        assert_eq!(result, "the prompt\nthe end");
        assert!(active_ms < 10_000);
        let log = case.log();
        assert_eq!(log.len() as u64, output_bytes);
        assert!(log.contains("the prompt\n") && log.contains("stderr: to stderr\n") && log.contains("the end\n"), "{log:?}");
        let facts = case.facts();
        assert!(matches!(&facts[0].what, FactKind::Started { containment: level, .. } if level == containment), "{facts:?}");
        assert_eq!(facts.iter().map(|fact| fact.n).collect::<Vec<_>>(), (1..=facts.len() as u64).collect::<Vec<_>>());
        assert_eq!(fs::read_to_string(case.home.join("work/run")).unwrap(), format!("{}/1", case.run_id));
        assert_eq!(fs::read_to_string(case.home.join("work/umask")).unwrap().trim(), "0022");
        let prompt = case.home.join("logs").join(format!("{}.prompt.md", case.run_id));
        assert_eq!(fs::read_to_string(&prompt).unwrap(), "the prompt\n");
        for file in fs::read_dir(case.home.join("logs")).unwrap().chain(fs::read_dir(&case.dir.0).unwrap()) {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.path().display());
        }
    }
}
