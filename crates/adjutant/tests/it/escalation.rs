//! Escalation: an open request reaches people after configured times, and is never answered by it.

use crate::support::{TestHome, kill};
use serde_json::{Value, json};

fn people_of(request: &Value) -> Vec<&str> {
    request["escalated"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["to"].as_str())
        .collect()
}

fn request(home: &TestHome) -> Value {
    home.inbox(&["--all"])[0].clone()
}

const PEOPLE: &str = "[escalation]\npeople = [{ name = \"anna\", after = \"100ms\" }, { name = \"ben\", after = \"300ms\" }]\n";

#[test]
fn request_is_escalated_in_order() {
    let home = TestHome::with_config(PEOPLE);
    home.start("asks", "approve \"drop the table\"");
    let escalated = home.until("both are notified", || {
        Some(request(&home)).filter(|request| people_of(request) == ["anna", "ben"])
    });
    assert_eq!(
        escalated["status"], "pending",
        "nothing is answered: {escalated}"
    );
    let (inbox, shown, ps) = (
        home.ok(&["inbox"]),
        home.ok(&["show", "asks"]),
        home.ok(&["ps"]),
    );
    assert!(
        inbox.contains("with ben") && shown.contains("escalated to anna") && ps.contains("→ ben"),
        "{inbox}\n{shown}\n{ps}"
    );
    let events = home.ok(&["events", "asks"]);
    let steps: Vec<&str> = events
        .lines()
        .filter(|line| line.contains("request.escalated"))
        .collect();
    assert!(
        matches!(&steps[..], [first, second] if first.contains("Q1 to anna") && second.contains("Q1 to ben")),
        "{events}"
    );
}

#[test]
fn escalated_approval_is_denied_at_its_deadline() {
    let home = TestHome::with_config(&format!("expiry = \"2s\"\n{PEOPLE}"));
    home.start("asks", "approve \"drop the table\"");
    assert_eq!(home.finished("asks")["outcome"], "succeeded");
    let denied = request(&home);
    assert_eq!(people_of(&denied), ["anna", "ben"]);
    assert_eq!(
        (&denied["answered_by"], &denied["decision"]),
        (&json!("default"), &json!("denied")),
        "silence never approves"
    );
}

#[test]
fn answered_request_is_not_escalated() {
    let home = TestHome::with_config("[escalation]\nafter = \"2s\"\n");
    home.start("quick", "approve \"push\"");
    home.until_status("quick", "waiting_parent_reply");
    home.ok(&["approve", "quick"]);
    home.finished("quick");
    home.start("slow", "approve \"push\"");
    home.until("the other one is escalated", || {
        home.ok(&["events", "slow"])
            .contains("to person")
            .then_some(())
    });
    assert!(!home.ok(&["events", "quick"]).contains("request.escalated"));
}

#[test]
fn escalation_survives_the_hub_and_respects_quiet_hours() {
    // At any time, one of the two has quiet hours now.
    let config = "[escalation]\npeople = [{ name = \"late\", after = \"100ms\", quiet = \"00:00-12:00\" }, { name = \"early\", after = \"100ms\", quiet = \"12:00-00:00\" }]\n";
    let home = TestHome::with_config(config);
    home.start("asks", "approve \"push\"");
    let reached = home.until("one person is notified", || {
        let request = request(&home);
        let people: Vec<String> = people_of(&request).into_iter().map(str::to_owned).collect();
        (!people.is_empty()).then_some(people)
    });
    assert_eq!(reached.len(), 1, "the other one is left alone: {reached:?}");
    home.ok(&["stop"]);
    home.until("the next hub serves", || {
        (home.adj(&["inbox"]).code == 0).then_some(())
    });
    assert_eq!(
        people_of(&request(&home)),
        reached,
        "each person is notified once"
    );
    assert_eq!(
        home.ok(&["events", "asks"])
            .matches("request.escalated")
            .count(),
        1
    );
}

#[test]
fn quiet_hours_use_the_persons_time_zone() {
    // The zones are twelve hours apart, so exactly one of the two has quiet hours at any time.
    let config = "[escalation]\npeople = [{ name = \"west\", after = \"100ms\", quiet = \"00:00-12:00\", zone = \"Etc/GMT+6\" }, \
                  { name = \"east\", after = \"100ms\", quiet = \"00:00-12:00\", zone = \"Etc/GMT-6\" }, { name = \"last\", after = \"200ms\" }]\n";
    let home = TestHome::with_config(config);
    home.start("asks", "approve \"push\"");
    let reached = home.until("the last one is notified", || {
        let request = request(&home);
        let people: Vec<String> = people_of(&request).into_iter().map(str::to_owned).collect();
        people.contains(&"last".to_owned()).then_some(people)
    });
    assert_eq!(
        reached.len(),
        2,
        "one of the others is left alone: {reached:?}"
    );
}

#[test]
fn next_hub_escalates_to_the_next_person() {
    let home = TestHome::with_config(
        "[escalation]\npeople = [{ name = \"anna\", after = \"100ms\" }, { name = \"ben\", after = \"3s\" }]\n",
    );
    home.start("asks", "approve \"push\"");
    home.until("anna is notified", || {
        (people_of(&request(&home)) == ["anna"]).then_some(())
    });
    kill(home.hub_pid());
    // The time while no hub runs counts, and the next one looks by itself.
    home.until("ben is notified", || {
        (people_of(&request(&home)) == ["anna", "ben"]).then_some(())
    });
    let events = home.ok(&["events", "asks"]);
    assert_eq!(
        (
            events.matches("Q1 to anna").count(),
            events.matches("Q1 to ben").count()
        ),
        (1, 1),
        "{events}"
    );
}

#[test]
fn invalid_escalation_is_refused() {
    let home = TestHome::with_config(
        "[escalation]\npeople = [{ name = \"anna\", after = \"10m\", quiet = \"night\" }]\n",
    );
    let refused = home.adj(&["run", "--detach", "--agent", "echo", "say x"]);
    assert!(
        refused.code != 0
            && refused.err.contains("escalation.people[0].quiet")
            && refused.err.contains("22:00-07:00"),
        "{refused:?}"
    );
    let config = "[escalation]\npeople = [{ name = \"anna\", after = \"10m\", quiet = \"22:00-07:00\", zone = \"Mars/Base\" }]\n";
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a file");
    let refused = home.adj(&["run", "--detach", "--agent", "echo", "say x"]);
    assert!(
        refused.code != 0
            && refused.err.contains("escalation.people[0].zone")
            && refused.err.contains("Europe/Berlin"),
        "{refused:?}"
    );
}
