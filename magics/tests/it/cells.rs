//! Tests of valid cells: the steps into which a cell is parsed.

use expect_test::{Expect, expect};
use ferrotune_magics::{Action, Step, Time, Tune, parse};
use ferrotune_space::Value;
use ferrotune_space::given::{Given, Values};
use ferrotune_space::objective::{Constraint, Direction, Objective, Summary};
use ferrotune_space::spec::StudySpec;

/// Compares the steps of a cell with the expected text, which has one line for each step: `first_line code` or the action.
pub(crate) fn check(cell: &str, expected: Expect) {
    let steps = parse(cell).expect("the cell is right");
    let lines: Vec<String> = steps.iter().map(render).collect();
    expected.assert_eq(&lines.join("\n"));
}

fn render(step: &Step) -> String {
    match step {
        Step::Code { source, first_line } => format!("{first_line} {source:?}"),
        Step::Action(action) => format!("{action:?}"),
    }
}

fn tune(cell: &str) -> Tune {
    match parse(cell).expect("the cell is right").as_slice() {
        [Step::Action(Action::Tune(tune))] => (**tune).clone(),
        other => panic!("not one %%tune: {other:?}"),
    }
}

#[test]
fn a_cell_without_magics_is_one_step_as_it_stands() {
    check("let a = 1;\nlet b = 2;\n", expect![[r#"1 "let a = 1;\nlet b = 2;\n""#]]);
    check("\n\n  let a = 1;", expect![[r#"3 "  let a = 1;""#]]);
}

#[test]
fn a_cell_of_blanks_and_comments_has_no_steps() {
    for cell in ["", "\n", "  \r\n", "// note", "/* note\n */\n\n"] {
        assert_eq!(parse(cell), Ok(vec![]), "{cell:?}");
    }
    check("/* unclosed", expect![[r#"1 "/* unclosed""#]]);
}

#[test]
fn line_magics_and_rust_mix_and_keep_their_lines() {
    check(
        "// choose a device\n%tpu_connect --require\n\nlet a = 1;\nlet b = 2;\n  %device\nlet c = 3;",
        expect![[r#"
            TpuConnect(TpuConnect { choice: Best { tpu: None, require: true }, self_test: false })
            4 "let a = 1;\nlet b = 2;\n"
            Device
            7 "let c = 3;""#]],
    );
}

#[test]
fn a_study_is_trusted_only_where_the_line_says_so() {
    check(
        "%resume digits\n%resume digits --trust",
        expect![[r#"
            Resume(Resume { study: Study { project: Some("digits"), directory: None }, max_trials: None, timeout_s: None, trust: false, background: false })
            Resume(Resume { study: Study { project: Some("digits"), directory: None }, max_trials: None, timeout_s: None, trust: true, background: false })"#]],
    );
}

#[test]
fn windows_line_endings_work() {
    check(
        "%device\r\nlet a = 1;\r\n%best 3\r\n",
        expect![[r#"
            Device
            2 "let a = 1;\r\n"
            Best(Best { study: Study { project: None, directory: None }, count: Some(3), insert: false })"#]],
    );
    assert_eq!(tune("%%tune --objective a:max\r\n|trial| { 1.0 }\r\n").body, "|trial| { 1.0 }\r\n");
}

#[test]
fn a_percent_sign_inside_rust_is_rust() {
    check("let a = b\n%device;", expect![[r#"1 "let a = b\n%device;""#]]);
    check("let a = f(\n%device\n);", expect![[r#"1 "let a = f(\n%device\n);""#]]);
    check("let a = \"\n%device\n\";", expect![[r#"1 "let a = \"\n%device\n\";""#]]);
    check("let a = r#\"\"\n%device\n\"#;", expect![[r##"1 "let a = r#\"\"\n%device\n\"#;""##]]);
    check("/* /* */\n%device\n*/", expect![[""]]);
    check(
        "fn f() {\n    a\n    %device\n}\n%device",
        expect![[r#"
        1 "fn f() {\n    a\n    %device\n}\n"
        Device"#]],
    );
    check(
        "let c = '\"';\n%device",
        expect![[r#"
        1 "let c = '\"';\n"
        Device"#]],
    );
    check(
        "let c: &'static str = \"\";\n%device",
        expect![[r#"
        1 "let c: &'static str = \"\";\n"
        Device"#]],
    );
}

#[test]
fn a_magic_may_follow_every_kind_of_finished_statement() {
    check(
        "struct A { b: u8 }\n%device\nfor i in 0..3 { f(i) }\n%device\n#![allow(unused)]\n%device",
        expect![[r##"
            1 "struct A { b: u8 }\n"
            Device
            3 "for i in 0..3 { f(i) }\n"
            Device
            5 "#![allow(unused)]\n"
            Device"##]],
    );
}

#[test]
fn evcxr_commands_are_code_that_ends_with_its_line() {
    check(
        ":dep a = { version = \"1\" }\n%device\n:vars",
        expect![[r#"
        1 ":dep a = { version = \"1\" }\n"
        Device
        3 ":vars""#]],
    );
    check("::std::process::abort()\n%device", expect![[r#"1 "::std::process::abort()\n%device""#]]);
}

#[test]
fn device_magics_take_their_options() {
    check(
        "%tpu_connect",
        expect!["TpuConnect(TpuConnect { choice: Best { tpu: None, require: false }, self_test: false })"],
    );
    check(
        "%tpu_connect --tpu local --require",
        expect![[r#"TpuConnect(TpuConnect { choice: Best { tpu: Some("local"), require: true }, self_test: false })"#]],
    );
    check(
        "%tpu_connect --tpu=\"my tpu\"",
        expect![[
            r#"TpuConnect(TpuConnect { choice: Best { tpu: Some("my tpu"), require: false }, self_test: false })"#
        ]],
    );
    check(
        "%tpu_connect --selftest",
        expect!["TpuConnect(TpuConnect { choice: Best { tpu: None, require: false }, self_test: true })"],
    );
    check(
        "%tpu_connect --selftest --plugin /opt/plugin.so",
        expect![[r#"TpuConnect(TpuConnect { choice: Plugin("/opt/plugin.so"), self_test: true })"#]],
    );
    check(
        "%tpu_connect --plugin cpu",
        expect![[r#"TpuConnect(TpuConnect { choice: Plugin("cpu"), self_test: false })"#]],
    );
    check("%device --report", expect!["DeviceReport"]);
    check("%devices", expect!["Devices"]);
    check(
        "%tpu_check --tpu v5e:2x2 'my step.mlir'",
        expect![[r#"TpuCheck(TpuCheck { tpu: "v5e:2x2", program: Named("my step.mlir") })"#]],
    );
}

#[test]
fn study_magics_take_their_options() {
    check(
        "%trials",
        expect![
            "Trials(Trials { study: Study { project: None, directory: None }, id: None, sort: None, filter: None, columns: None, limit: 200 })"
        ],
    );
    check(
        "%trials 7 --project digits --directory='my studies'",
        expect![[
            r#"Trials(Trials { study: Study { project: Some("digits"), directory: Some("my studies") }, id: Some(7), sort: None, filter: None, columns: None, limit: 200 })"#
        ]],
    );
    check(
        "%best",
        expect!["Best(Best { study: Study { project: None, directory: None }, count: None, insert: false })"],
    );
    check(
        "%best --insert --project=digits 3",
        expect![[
            r#"Best(Best { study: Study { project: Some("digits"), directory: None }, count: Some(3), insert: true })"#
        ]],
    );
    check(
        "%trials --where 'lr<0.01 and state=failed' --sort loss:desc --columns trial,lr --limit 5",
        expect![[
            r#"Trials(Trials { study: Study { project: None, directory: None }, id: None, sort: Some("loss:desc"), filter: Some("lr<0.01 and state=failed"), columns: Some("trial,lr"), limit: 5 })"#
        ]],
    );
    check("%space digits", expect![[r#"Space(Study { project: Some("digits"), directory: None })"#]]);
    check(
        "%plot contour --params lr,units --objective loss",
        expect![[
            r#"Plot(Plot { study: Study { project: None, directory: None }, kind: "contour", parameters: Some("lr,units"), objective: Some("loss"), evaluator: None })"#
        ]],
    );
    check(
        "%export csv 'my file.csv' --project digits",
        expect![[
            r#"Export(Export { study: Study { project: Some("digits"), directory: None }, format: "csv", target: "my file.csv" })"#
        ]],
    );
    check("%studies --directory runs", expect![[r#"Studies { directory: Some("runs") }"#]]);
}

#[test]
fn help_is_asked_for_in_every_form() {
    for cell in ["%%tune?", "%tune?", "?%tune", "?%%tune", "%tune??", "  %%tune?  \ncode"] {
        assert_eq!(parse(cell), Ok(vec![Step::Action(Action::Help { name: "tune".into() })]), "{cell}");
    }
    check(
        "%time?\n%lsmagic\n%lsmagic %%tune",
        expect![[r#"
        Help { name: "time" }
        Lsmagic { name: None }
        Lsmagic { name: Some("tune") }"#]],
    );
}

#[test]
fn a_timed_statement_stays_in_its_column() {
    check(
        "let a = 1;\n  %time f(a)?;",
        expect![[r#"
        1 "let a = 1;\n"
        Time(Time { source: "        f(a)?;", first_line: 2 })"#]],
    );
    check(
        "%time \"%device {\".len()",
        expect![[r#"Time(Time { source: "      \"%device {\".len()", first_line: 1 })"#]],
    );
    let time = Time { source: "f()\n".into(), first_line: 3 };
    assert_eq!(parse("\n%%time\nf()\n"), Ok(vec![Step::Action(Action::Time(time))]));
}

fn spec(options: &str) -> StudySpec {
    tune(&format!("%%tune {options}\n|trial| {{}}")).spec
}

#[test]
fn tune_takes_several_objectives_and_constraints() {
    let spec =
        spec("--objective 'val accuracy:max, size:min:last,loss:min:mean' --constraint \"latency <= 1e1,f1>=-.5\"");
    let size = Objective { summary: Summary::Last, ..Objective::new("size", Direction::Min) };
    let loss = Objective { summary: Summary::Mean, ..Objective::new("loss", Direction::Min) };
    assert_eq!(spec.objectives, [Objective::new("val accuracy", Direction::Max), size, loss]);
    let latency = Constraint { metric: "latency".into(), direction: Direction::Min, bound: 10.0 };
    let f1 = Constraint { metric: "f1".into(), direction: Direction::Max, bound: -0.5 };
    assert_eq!(spec.constraints, [latency, f1]);
}

#[test]
fn tune_takes_values_that_are_decided_beforehand() {
    let values = |pairs: [(&str, Value); 2]| Values::from(pairs.map(|(name, value)| (name.to_owned(), value)));
    let spec = spec(
        "--objective a:max --fix 'units=64, opt=a=b' --enqueue \"lr=0.01,units=32; lr = 1e-3,units=8\" --tune-only lr,units",
    );
    let expected = Given {
        fixed: values([("units", Value::Int(64)), ("opt", Value::Text("a=b".into()))]),
        tune_only: vec!["lr".into(), "units".into()],
        enqueued: vec![
            values([("lr", Value::Float(0.01)), ("units", Value::Int(32))]),
            values([("lr", Value::Float(1e-3)), ("units", Value::Int(8))]),
        ],
    };
    assert_eq!(spec.given, expected);
}

#[test]
fn tune_has_the_defaults_of_a_study() {
    let expected = Tune {
        spec: StudySpec::new("untitled_project", vec![Objective::new("val_accuracy", Direction::Max)]),
        body: "|trial| { 1.0 }".into(),
        is_named: false,
        body_line: 2,
    };
    assert_eq!(tune("%%tune --objective val_accuracy:max\n|trial| { 1.0 }"), expected);
}

#[test]
fn tune_takes_every_option_in_both_spellings() {
    let mut expected = StudySpec {
        directory: "/tmp/my studies".into(),
        oracle: "hyperband".into(),
        pruner: Some("median".into()),
        terminator: Some("regret".into()),
        max_trials: 30,
        executions: 3,
        from: vec!["~/earlier/digits".to_owned(), "letters".to_owned()],
        seed: Some(7),
        timeout_s: Some(7200.0),
        trial_timeout_s: Some(90.0),
        memory_budget_bytes: Some(4 << 30),
        overwrite: true,
        storage: Some("postgresql://ann@db/studies?sslmode=require".to_owned()),
        ..StudySpec::new("my digits", vec![Objective::new("loss", Direction::Min)])
    };
    let supervision = &mut expected.supervision;
    (supervision.concurrency, supervision.threads, supervision.retries) = (2, Some(4), 1);
    (supervision.max_consecutive_failures, supervision.keep_best) = (Some(5), 0);
    (supervision.worker_trials, supervision.grace_s, supervision.device_wait_s) = (7, 3, 120);
    supervision.heartbeat_s = 2;
    (supervision.mirror, supervision.background) = (Some("/mnt/drive".into()), true);
    let options = [
        ("oracle", "hyperband"),
        ("pruner", "median"),
        ("terminator", "regret"),
        ("objective", "loss:min"),
        ("max-trials", "30"),
        ("executions", "3"),
        ("from", "~/earlier/digits,letters"),
        ("seed", "7"),
        ("project", "'my digits'"),
        ("directory", "\"/tmp/my studies\""),
        ("timeout", "2h"),
        ("trial-timeout", "90"),
        ("memory", "'4 GiB'"),
        ("concurrency", "2"),
        ("threads", "4"),
        ("retries", "1"),
        ("max-consecutive-failures", "5"),
        ("keep-best", "0"),
        ("worker-trials", "7"),
        ("grace", "2.5s"),
        ("device-wait", "2m"),
        ("storage", "postgresql://ann@db/studies?sslmode=require"),
        ("heartbeat", "1.5s"),
        ("mirror", "/mnt/drive"),
    ];
    for sign in [" ", "="] {
        let options: Vec<String> = options.iter().map(|(name, value)| format!("--{name}{sign}{value}")).collect();
        assert_eq!(spec(&format!("{} --background --overwrite", options.join(" "))), expected);
    }
}

#[test]
fn a_remainder_in_the_body_of_tune_is_rust() {
    let body = "|trial| {\n    let a = b\n    %c;\n}\n";
    assert_eq!(tune(&format!("%%tune --objective a:b:max\n{body}")).body, body);
    assert_eq!(
        tune(&format!("%%tune --objective a:b:max\n{body}")).spec.objectives,
        [Objective::new("a:b", Direction::Max)]
    );
}
