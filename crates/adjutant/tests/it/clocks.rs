//! The machine's clock is wrong or changed, or the machine was off: no deadline passes early, and
//! each passes eventually.

use crate::support::{Ran, TestHome};
use adjutant_api::view::{Dispatch, RunView};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;

const MINUTE_MS: i64 = 60 * 1000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;

/// A home whose hub uses shifted clocks.
struct Machine {
    home: TestHome,
    file: PathBuf,
    ticks: Cell<u32>,
}

impl Machine {
    fn new(config: &str) -> Self {
        let home = TestHome::with_config(config);
        let file = home.work().join("../clock");
        let machine = Self {
            home,
            file,
            ticks: Cell::new(0),
        };
        machine.set(0, 0, "first");
        machine
    }

    /// Shifts the wall clock and the boot clock by these offsets, in the boot with this id.
    fn set(&self, wall_ms: i64, boot_ms: i64, boot: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{wall_ms} {boot_ms} {boot}")).expect("the clock can be set");
        std::fs::rename(&new, &self.file).expect("the clock can be set");
    }

    /// Runs a command, which may start the hub.
    fn adj(&self, args: &[&str]) -> Ran {
        let mut command = self.home.command(args);
        command
            .env("ADJ_FAILPOINT", format!("clock={}", self.file.display()))
            .env("ADJ_LOG", "debug");
        command.output().expect("adj can be started").into()
    }

    fn start(&self, name: &str, script: &str) {
        let ran = self.adj(&[
            "run",
            "--detach",
            "-a",
            "echo",
            "--name",
            name,
            &format!("{script}\n"),
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// Waits until the hub has checked the deadlines.
    fn tick(&self) {
        self.ticks.set(self.ticks.get() + 1);
        let name = format!("tick-{}", self.ticks.get());
        self.start(&name, "ask \"tick\" default: tock expires: 1s");
        assert_eq!(
            self.home.finished(&name)["outcome"],
            "succeeded",
            "deadlines go on"
        );
    }

    /// Restarts the hub with these clocks, and waits until it has run its cleanup.
    fn restart(&self, wall_ms: i64, boot_ms: i64, boot: &str) {
        self.home.ok(&["stop"]);
        let looked = || {
            std::fs::read_to_string(self.home.home.hub_log())
                .unwrap_or_default()
                .matches("the cleanup ran")
                .count()
        };
        let before = looked();
        self.set(wall_ms, boot_ms, boot);
        assert_eq!(self.adj(&["ps"]).code, 0);
        self.home.until("the new hub runs the cleanup", || {
            (looked() > before).then_some(())
        });
    }

    fn state_of(&self, question: &str) -> Value {
        let all = self.home.inbox(&["--all"]);
        let found = all
            .as_array()
            .and_then(|all| all.iter().find(|request| request["question"] == question))
            .cloned();
        found.unwrap_or_else(|| panic!("nobody asked {question}: {all}"))["status"].clone()
    }
}

#[test]
fn setting_the_clock_moves_no_deadline() {
    let machine = Machine::new("");
    machine.start("asks", "ask \"Go on?\"\ndone");
    machine.start("seeks", "approve \"drop it\"\ndone");
    machine.home.until("both are open", || {
        (machine.home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    for wall_ms in [20 * MINUTE_MS, 8 * DAY_MS, YEAR_MS, 25 * HOUR_MS, -YEAR_MS] {
        machine.set(wall_ms, 0, "first");
        machine.tick();
        assert_eq!(
            (machine.state_of("Go on?"), machine.state_of("drop it")),
            (json!("pending"), json!("pending")),
            "{wall_ms}"
        );
    }
    let open = machine.home.inbox(&[])[0].clone();
    let [asked, expires] = ["asked_at", "expires_at"].map(|name| {
        let shown = open[name]
            .as_str()
            .and_then(adjutant_os::clock::parse_rfc3339);
        shown.unwrap_or_else(|| panic!("no {name} in {open}")).0
    });
    let off_ms = expires - asked - (DAY_MS - YEAR_MS);
    assert!(
        off_ms.abs() < MINUTE_MS,
        "what is shown is when the clock will show it, as it is set now: {open}"
    );
    let told = machine.home.adj(&["ps"]);
    assert!(
        told.err
            .contains("the machine's clock was set back by 366d1h: deadlines do not follow it"),
        "{told:?}"
    );
    let doctor = machine.adj(&["doctor"]);
    assert!(
        doctor.out.contains("! clock") && doctor.out.contains("was set back by 366d"),
        "{doctor:?}"
    );
    machine.set(0, 0, "first");
    machine.home.ok(&["reply", "asks", "yes"]);
    machine.home.ok(&["approve", "seeks"]);
    assert_eq!(machine.home.finished("asks")["outcome"], "succeeded");
    assert_eq!(machine.home.finished("seeks")["outcome"], "succeeded");
    let log = std::fs::read_to_string(machine.home.home.hub_log()).expect("a log");
    assert!(
        log.contains("the machine's clock was set ahead by 20m")
            && log.contains("was set ahead by 365d"),
        "{log}"
    );
}

/// Runs of an agent wait for its usage limit. After it, they start at least five seconds apart.
#[test]
fn starts_after_a_usage_limit_are_spread_out() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let machine = Machine::new("");
    let home = &machine.home;
    let (program, limited) = (
        home.work().join("../player.sh"),
        home.work().join("../limited"),
    );
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 2.1.329\n[ -e {} ] || exec sleep 600\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"result\":\"API Error: 429 rate limit, try again in 2 hours\"}}'\n",
        limited.display()
    );
    std::fs::write(&limited, "").expect("a file");
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("it is executable");
    let config = format!(
        "[agents.first]\nharness = \"claude\"\ncommand = [{:?}]\n",
        program.display().to_string()
    );
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a file");
    for name in NAMES {
        assert_eq!(
            machine
                .adj(&["run", "-d", "-a", "first", "-n", name, "Do it"])
                .code,
            0
        );
        if name == "a" {
            home.until("it is parked", || {
                (home.show("a")["status"] == "stopped").then_some(())
            });
            std::fs::remove_file(&limited).expect("it was there");
        }
    }
    assert!(
        NAMES[1..]
            .iter()
            .all(|name| home.show(name)["queue"]["waiting_for"] == "quota"),
        "{}",
        home.ok(&["ps"])
    );
    let (waited, mut now_ms) = (&NAMES[1..], 2 * HOUR_MS + MINUTE_MS);
    let is_live = |name: &&str| home.show(name)["state"] == "running";
    // The hub's timers do not know of the shifted clock: any event of the queue triggers a check.
    for n in 0.. {
        machine.set(now_ms, now_ms, "first");
        machine.start(&format!("poke-{n}"), "say x");
        home.finished(&format!("poke-{n}"));
        if waited.iter().all(is_live) {
            break;
        }
        assert!(n < 60, "{}", home.ok(&["ps"]));
        now_ms += 1_000;
    }
    let claimed = |name: &&str| {
        let view = home.show(name);
        let at = view["started_at"]
            .as_str()
            .and_then(adjutant_os::clock::parse_rfc3339);
        at.unwrap_or_else(|| panic!("{view}")).0
    };
    let mut starts: Vec<i64> = waited.iter().map(claimed).collect();
    starts.sort_unstable();
    // 5 s by the steady clock. The hub can read one clock before a step of 1 s and the other one
    // after it.
    assert!(
        starts.windows(2).all(|pair| pair[1] - pair[0] >= 3_900),
        "{starts:?}"
    );
    for name in NAMES {
        home.ok(&["cancel", name]);
    }
}

#[test]
fn suspend_time_counts() {
    let machine = Machine::new("");
    machine.start("asks", "ask \"Go on?\" default: no\ndone");
    machine.home.until("it is open", || {
        (machine.home.inbox(&[]).as_array().map(Vec::len) == Some(1)).then_some(())
    });
    machine.set(3 * DAY_MS, 3 * DAY_MS, "first");
    machine.tick();
    machine.home.until("its day is over", || {
        (machine.state_of("Go on?") != "pending").then_some(())
    });
    assert_eq!(machine.home.finished("asks")["outcome"], "succeeded");
}

/// One object of each kind with a deadline: the question of a parked run, a stopped run, a finished
/// run, and a key.
struct Things<'a> {
    machine: &'a Machine,
    keyed: Dispatch,
    made: RunView,
}

impl<'a> Things<'a> {
    fn new(machine: &'a Machine) -> Self {
        machine.start(
            "asks",
            "tool ask_parent {\"question\": \"Go on?\", \"wait_s\": 0}\nresume-here\nsay after",
        );
        machine.home.until_status("asks", "stopped");
        machine.start(
            "stops",
            "block STOP_WORK {\"stop_reason\": \"blocker\", \"details\": \"no disk\"}",
        );
        machine.home.until_status("stops", "stopped");
        let cwd = machine.home.work().display().to_string();
        let keyed = Dispatch {
            agent: "echo".to_owned(),
            prompt: "say x".to_owned(),
            cwd,
            ..Dispatch::default()
        };
        let made = machine.home.call(&keyed, "once").expect("it is dispatched");
        machine.home.finished(&made.identity.name);
        Self {
            machine,
            keyed,
            made,
        }
    }

    fn are_there(&self, when: &str) {
        let Self {
            machine,
            keyed,
            made,
        } = self;
        assert_eq!(machine.state_of("Go on?"), "pending", "{when}");
        assert_eq!(machine.home.show("stops")["state"], "stopped", "{when}");
        assert_eq!(
            machine.home.show(&made.identity.name)["state"],
            "finished",
            "{when}: it is not removed"
        );
        assert!(
            !machine.home.log(&made.identity.name).is_empty(),
            "{when}: nor is its log"
        );
        let again = machine.home.call(keyed, "once").expect("the same reply");
        assert_eq!(
            again.identity.run_id, made.identity.run_id,
            "{when}: no second effect"
        );
    }
}

#[test]
fn hub_start_with_a_wrong_clock_removes_nothing() {
    let machine = Machine::new("finished_retention = \"10d\"\n");
    let things = Things::new(&machine);
    for (wall_ms, boot) in [
        (20 * MINUTE_MS, "first"),
        (25 * HOUR_MS, "first"),
        (8 * DAY_MS, "first"),
        (YEAR_MS, "second"),
        (-YEAR_MS, "second"),
    ] {
        machine.restart(wall_ms, 0, boot);
        machine.tick();
        things.are_there(&format!("{wall_ms} ms off, {boot} start"));
    }
    // The clock is correct again, for long enough.
    machine.set(16 * MINUTE_MS, 16 * MINUTE_MS, "second");
    machine.tick();
    machine.set(32 * MINUTE_MS, 32 * MINUTE_MS, "second");
    machine.tick();
    things.are_there("the clock is right again");
    machine.home.ok(&["reply", "asks", "yes"]);
    assert_eq!(machine.home.finished("asks")["outcome"], "succeeded");
}

#[test]
fn time_while_off_counts_after_a_grace() {
    let machine = Machine::new("finished_retention = \"5d\"\n");
    let things = Things::new(&machine);
    machine.restart(8 * DAY_MS, 0, "second");
    machine.tick();
    things.are_there("at the start");
    machine.set(8 * DAY_MS + 16 * MINUTE_MS, 16 * MINUTE_MS, "second");
    machine.tick();
    machine.home.until("its day is over", || {
        (machine.state_of("Go on?") == "expired").then_some(())
    });
    assert_eq!(
        machine.home.show("stops")["state"],
        "stopped",
        "one start adds three days at most"
    );
    machine.home.show(&things.made.identity.name);
    machine.set(13 * DAY_MS, 5 * DAY_MS, "second");
    machine.tick();
    machine.home.until("its week is over", || {
        (machine.home.show("stops")["state"] == "finished").then_some(())
    });
    machine.restart(13 * DAY_MS, 5 * DAY_MS, "second");
    assert_eq!(
        machine.home.adj(&["show", &things.made.identity.name]).code,
        5,
        "finished runs are removed in the end"
    );
}
