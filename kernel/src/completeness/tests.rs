//! Tests of cells and of what a console should do with them.

use super::check;
use crate::execution::Completeness;
use ferrotune_magics::Step;

fn shown(code: &str) -> String {
    match check(code) {
        Completeness::Complete => "complete".into(),
        Completeness::Incomplete { indent } => format!("incomplete {}", indent.len()),
        Completeness::Invalid => "invalid".into(),
    }
}

fn assert_table(table: &[(&str, &str)]) {
    for (code, expected) in table {
        assert_eq!(&shown(code), expected, "{code:?}");
    }
}

#[test]
fn complete_cells() {
    let cells = [
        "",
        "\n  \n",
        "1 + 1",
        "x",
        "let a = 1;",
        "let a = 1;\na",
        "fn f<'a>(x: &'a str) -> &'a str { x }",
        "struct A;\nimpl A {}",
        "use std::fmt;",
        "println!(\"{}\", 1)",
        "// only a comment",
        "1 // with ( a bracket",
        "/* nested /* twice */ ( */ 1",
        "let q = '\"'; let b = '{'; let e = '\\''; let u = '\\u{1F600}';",
        "let s = \"( \\\" [\";",
        "let r = r#\"a \" ( \"#; let b = b\"(\"; let c = c\"{\"; let d = br##\"\"# [\"##;",
        "'outer: loop { break 'outer; }",
        "#[derive(Debug)] struct A;",
        "let x = 5 %\n 3;",
        "let x = 5\n %3;",
        "let x = 5\n%y;",
        "async { 1 }.await",
        "let Some(x) = y else { return };",
        "let größe = \"ü\"; größe",
    ];
    cells.iter().for_each(|cell| assert_table(&[(cell, "complete")]));
}

#[test]
fn begun_cells_are_incomplete() {
    assert_table(&[
        ("fn main() {", "incomplete 4"),
        ("/// Adds.", "incomplete 4"),
        ("fn main() {\n    if a {", "incomplete 8"),
        ("foo(", "incomplete 4"),
        ("vec![\n    1,", "incomplete 4"),
        ("let s = \"abc", "incomplete 0"),
        ("let s = r#\"abc\"", "incomplete 0"),
        ("/* comment", "incomplete 0"),
        ("let x =", "incomplete 4"),
        ("let x = 1", "incomplete 4"),
        ("let x", "incomplete 4"),
        ("1 +", "incomplete 4"),
        ("a.", "incomplete 4"),
        ("fn f()", "incomplete 4"),
        ("fn f() -> u8", "incomplete 4"),
        ("impl A for", "incomplete 4"),
        ("struct A", "incomplete 4"),
        ("if x", "incomplete 4"),
        ("if x {} else", "incomplete 4"),
        ("for i in", "incomplete 4"),
        ("let a = match b", "incomplete 4"),
        ("use std::fmt", "incomplete 4"),
        ("pub", "incomplete 4"),
        ("|x|", "incomplete 4"),
        ("#[derive(Debug)]", "incomplete 0"),
        ("1 + // more to come", "incomplete 4"),
    ]);
}

#[test]
fn cells_that_no_continuation_can_save_are_invalid() {
    assert_table(&[
        (")", "invalid"),
        ("foo(]", "invalid"),
        ("fn main() }", "invalid"),
        ("let 1a = ;", "invalid"),
        ("let a = 1\nlet b = 2;", "invalid"),
        ("fn fn", "invalid"),
        ("= 3", "invalid"),
    ]);
}

#[test]
fn magics_are_not_parsed_as_rust() {
    assert_table(&[
        ("%lsmagic", "complete"),
        ("%tpu_connect --require\nlet a = 1;", "complete"),
        ("let a = 1;\n%time a + 1", "complete"),
        (":dep rand = \"0.9\"\nuse rand::Rng;", "complete"),
        ("%tpu_connect (", "complete"),
        ("let a = 1;\n%time\nfoo(", "incomplete 4"),
        ("%%tune", "incomplete 0"),
        ("%%tune --max-trials 3\n", "incomplete 0"),
        ("%%tune\n|trial| {", "incomplete 0"),
        ("%%tune\n|trial| {}", "incomplete 0"),
        ("%%tune\n|trial| {}\n", "complete"),
        ("%%tune\n|trial| {\n}\n   ", "complete"),
    ]);
}

/// What the magics see in a cell: `m` for a magic, `r` for Rust, `!` for an error.
fn steps(code: &str) -> String {
    let letter = |step: &Step| if matches!(step, Step::Code { .. }) { 'r' } else { 'm' };
    ferrotune_magics::parse(code).map_or("!".to_owned(), |steps| steps.iter().map(letter).collect())
}

#[test]
fn magics_and_completeness_agree_on_what_is_a_magic() {
    let table = [
        ("?%tune", "m", "complete"),
        ("%tune?", "m", "complete"),
        ("?%%tune", "m", "complete"),
        ("%%tune?", "m", "complete"),
        ("?%nope", "!", "complete"),
        ("% device", "!", "complete"),
        ("%%nope?", "!", "incomplete 0"),
        ("%device (", "!", "complete"),
        ("  %device", "m", "complete"),
        ("\u{a0}%device", "m", "complete"),
        ("let a = 1;\n%device\nlet b = a;", "rmr", "complete"),
        ("let a = 1;\n?%tune", "rm", "complete"),
        ("fn f() {}\n%device", "rm", "complete"),
        ("// note\n%device", "m", "complete"),
        ("/* note */ %device", "r", "invalid"),
        ("let s = r#\"\n%device\n\"#;", "r", "complete"),
        ("let s = \"\n%device", "r", "incomplete 0"),
        ("/* /* */\n%device\n*/", "", "complete"),
        ("let q = '\"';\n%device", "rm", "complete"),
        ("fn f<'a>(a: &'a str) {}\n%device", "rm", "complete"),
        ("let a = 7\n%3;", "r", "complete"),
        ("f(\n%device", "r", "incomplete 4"),
        ("!ls -la", "m", "complete"),
        ("!ls \\", "m", "incomplete 0"),
        ("!ls \\\n-la", "m", "complete"),
        ("let a = 1;\n!ls {\nlet b = a;", "rmr", "complete"),
        ("(!true)", "r", "complete"),
        ("let a =\n!true;", "r", "complete"),
        ("f(\n!true)", "r", "complete"),
        ("!", "!", "complete"),
        ("%%bash\nls", "m", "incomplete 0"),
        ("%%bash\nls\n", "m", "complete"),
        (":vars", "r", "complete"),
        (":dep a = \"1\"\n%device", "rm", "complete"),
        ("::std::process::abort()", "r", "complete"),
        ("#[derive(Debug)]\nstruct A { b: u8 }\n%device", "rm", "complete"),
    ];
    for (code, seen, expected) in table {
        assert_eq!((steps(code).as_str(), shown(code).as_str()), (seen, expected), "{code:?}");
    }
}

#[test]
fn hostile_cells_neither_crash_nor_hang() {
    assert_table(&[
        (&"(".repeat(100_000), "incomplete 512"),
        (&format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)), "complete"),
        (&format!("{}1", "!".repeat(30_000)), "complete"),
        (&"'".repeat(1_000), "invalid"),
        ("'\\", "invalid"),
        // Beyond the depth that is parsed, brackets alone decide.
        (&format!("{}1 1{}", "(".repeat(200), ")".repeat(200)), "complete"),
        ("\u{0}", "invalid"),
        ("\u{feff}1", "complete"),
    ]);
}

#[test]
fn nesting_is_parsed_in_good_time() {
    let levels = 100;
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{", "1", "}"),
        ("Box<", "u8", ">"),
        ("if a {", "1", "}"),
        ("if a {1} else ", "{1}", ""),
        ("|a| ", "1", ""),
        ("f(|a| {", "1", "})"),
        ("match a { _ => ", "1", " }"),
        ("a!{", "1", "}"),
        ("&", "1", ""),
        ("unsafe { async { ", "1", " } }"),
        ("a[", "1", "]"),
        ("a::<{", "1", "}>()"),
    ] {
        for wrap in [("", ";"), ("let a: ", " = 1;"), ("fn f(a: ", ") {}")] {
            let code = format!("{}{}{middle}{}{}", wrap.0, open.repeat(levels), close.repeat(levels), wrap.1);
            let started = std::time::Instant::now();
            check(&code);
            assert!(started.elapsed().as_secs() < 5, "{open}");
        }
    }
}
