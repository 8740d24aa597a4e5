//! What is chosen of the output: fields of JSON, columns of `adj ps`, symbols for the locale's
//! charset.

use crate::support::TestHome;
use crate::terminal::Terminal;
use serde_json::{Value, json};

fn error(line: &str) -> Value {
    let value: Value =
        serde_json::from_str(line.trim_end()).unwrap_or_else(|error| panic!("{error} in {line}"));
    value["error"].clone()
}

#[test]
fn json_has_only_the_wanted_fields_in_their_order() {
    let home = TestHome::new();
    home.ok(&["run", "-w", "-a", "echo", "-n", "one", "say hello"]);
    assert_eq!(
        home.ok(&["ps", "-a", "--json=state,name"]),
        "{\"schema\":1,\"data\":[{\"state\":\"finished\",\"name\":\"one\"}],\"more\":0}\n"
    );
    assert_eq!(
        home.ok(&["--json=name", "show", "one"]),
        "{\"schema\":1,\"data\":{\"name\":\"one\"}}\n"
    );
    assert_eq!(
        home.adj(&["logs", "one", "--json=text"]).data(),
        json!({ "text": "hello\n" })
    );
    assert_eq!(
        home.adj(&["config", "path", "--json=home"]).data(),
        json!({ "home": home.home.dir })
    );
    // A field that a run does not have is left out.
    assert_eq!(
        home.adj(&["show", "one", "--json=name,overdue_since"])
            .data(),
        json!({ "name": "one" })
    );
    home.start("two", "ask \"Which?\"");
    home.until_status("two", "waiting_parent_reply");
    let inbox = home.ok(&["inbox", "--json=number"]);
    assert_eq!(
        inbox.trim_end(),
        r#"{"schema":1,"data":[{"number":"Q1"}],"more":0,"mentions":{"mentions":[],"more":false},"runs":[],"runs_more":0}"#
    );
    let all = home.json(&["ps", "-a"]);
    assert!(
        all[0].get("run_id").is_some() && all[0].get("cursor").is_some(),
        "{all}"
    );
}

#[test]
fn unknown_field_is_refused_before_anything_happens() {
    let home = TestHome::new();
    let ran = home.adj(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "one",
        "say x",
        "--json=name,colour",
    ]);
    let refused = error(&ran.err);
    assert_eq!(
        (ran.code, ran.out.as_str(), &refused["message"]),
        (
            2,
            "",
            &json!("no field \"colour\" in the JSON of this command")
        )
    );
    assert!(
        refused["hint"]
            .as_str()
            .is_some_and(|hint| hint.starts_with("fields: run_id, name, agent")),
        "{refused}"
    );
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
    for args in [
        &["completions", "bash", "--json=name"][..],
        &["chat", "export", "1", "--json=name"],
    ] {
        let ran = home.adj(args);
        assert!(
            ran.code == 2
                && error(&ran.err)["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("prints no JSON")),
            "{ran:?}"
        );
    }
    let ran = home.adj(&["ps", "--json="]);
    assert!(
        ran.code == 2 && error(&ran.err)["code"] == "usage",
        "{ran:?}"
    );
}

#[test]
fn ps_prints_the_chosen_columns() {
    let home = TestHome::new();
    home.ok(&["run", "-w", "-a", "echo", "-n", "one", "say hello"]);
    assert_eq!(
        home.ok(&["ps", "-a", "--columns", "state,name,attempt"]),
        "STATE   RUN  ATTEMPT\n✓ done  one  1\n"
    );
    assert_eq!(
        home.ok(&["ps", "-a", "--columns", "run,state"]),
        "RUN  STATE\none  ✓ done\n",
        "the headings are names too"
    );
    let all = home.ok(&[
        "ps",
        "-a",
        "--columns",
        "name,id,agent,model,state,progress,cost,tokens,time,age,attempt,pool,directory,task",
    ]);
    assert_eq!(
        all.lines()
            .next()
            .map(|heads| heads.split_whitespace().count()),
        Some(14),
        "{all}"
    );
    // A narrow terminal cuts them, and drops none.
    let narrow = Terminal::sized(
        &home,
        &["ps", "-a", "--columns", "name,directory,agent,task"],
        24,
        40,
    )
    .rest();
    assert!(
        ["RUN", "DIRECTORY", "AGENT", "TASK"]
            .iter()
            .all(|head| narrow.contains(head)),
        "{narrow}"
    );
    let ran = home.adj(&["ps", "--columns", "name,colour"]);
    assert!(
        ran.code == 2
            && ran.err.contains("colour")
            && ran.err.contains("possible values: name, id, agent"),
        "{ran:?}"
    );
}

#[test]
fn symbols_are_ascii_if_the_charset_is_not_utf8() {
    let home = TestHome::new();
    home.ok(&["run", "-w", "-a", "echo", "-n", "one", "say ✓ – …"]);
    let ps = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["ps", "-a", "--columns", "name,state"]);
        let ran = command
            .envs(variables.iter().copied())
            .output()
            .expect("adj starts");
        String::from_utf8(ran.stdout).expect("UTF-8")
    };
    let (ascii, utf8) = ("RUN  STATE\none  + done\n", "RUN  STATE\none  ✓ done\n");
    for (variables, shown) in [
        (&[][..], utf8),
        (&[("LC_ALL", "C")], ascii),
        (&[("LC_CTYPE", "POSIX"), ("LANG", "C.UTF-8")], ascii),
        (&[("LC_ALL", ""), ("LANG", "de_DE.ISO-8859-1")], ascii),
        (&[("LC_ALL", "C.utf8"), ("LANG", "C")], utf8),
    ] {
        assert_eq!(ps(variables), shown, "{variables:?}");
    }
    let in_c = |args: &[&str]| {
        String::from_utf8(
            home.command(args)
                .env("LC_ALL", "C")
                .output()
                .expect("adj starts")
                .stdout,
        )
        .expect("UTF-8")
    };
    // What an agent wrote stays as it is, and so does JSON.
    assert_eq!(in_c(&["logs", "one"]), "✓ – …\n");
    assert!(in_c(&["show", "one", "--json"]).contains("✓ – …"));
    for args in [
        &["--help"][..],
        &["ps", "--help"],
        &["help", "run"],
        &["doctor"],
        &["agents"],
        &["help", "environment"],
    ] {
        let shown = in_c(args);
        assert!(
            !shown.is_empty() && shown.is_ascii(),
            "{args:?}: {:?}",
            shown.chars().filter(|c| !c.is_ascii()).collect::<String>()
        );
    }
}
