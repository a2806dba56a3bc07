//! Tests of the magics that time Rust, read and write files, and show the session.

use crate::cells::check;
use expect_test::expect;

#[test]
fn what_stands_behind_the_counts_of_timeit_is_rust() {
    check(
        "%timeit a\n%timeit -n 5 -r3 -a\n%timeit -n * 2\n%timeit -n=5 a\n%timeit -r",
        expect![[r#"
            Timeit(Timeit { measure: Time { loops: None, runs: 7 }, setup: None, source: "        a", first_line: 1 })
            Timeit(Timeit { measure: Time { loops: Some(5), runs: 3 }, setup: None, source: "                 -a", first_line: 2 })
            Timeit(Timeit { measure: Time { loops: None, runs: 7 }, setup: None, source: "        -n * 2", first_line: 3 })
            Timeit(Timeit { measure: Time { loops: None, runs: 7 }, setup: None, source: "        -n=5 a", first_line: 4 })
            Timeit(Timeit { measure: Time { loops: None, runs: 7 }, setup: None, source: "        -r", first_line: 5 })"#]],
    );
    check(
        "\n%%timeit -r 2 let b = 1;\nb",
        expect![[
            r#"Timeit(Timeit { measure: Time { loops: None, runs: 2 }, setup: Some("              let b = 1;"), source: "b", first_line: 3 })"#
        ]],
    );
    check(
        "%%timeit\nb\n",
        expect![[
            r#"Timeit(Timeit { measure: Time { loops: None, runs: 7 }, setup: None, source: "b\n", first_line: 2 })"#
        ]],
    );
}

#[test]
fn a_cell_magic_takes_its_text_as_it_is() {
    check(
        "%%writefile -a 'my file'\n%x\n\n\"{\n",
        expect![[r#"WriteFile(WriteFile { path: "my file", append: true, text: "%x\n\n\"{\n" })"#]],
    );
    check("%%html\n", expect![[r#"Show { mime_type: "text/html", text: "" }"#]]);
    check(
        "%load a.rs -r 5-7\n%load a.rs -r 5-\n%load -r 5 a.rs\n%whos Tensor",
        expect![[r#"
        Load(Load { path: "a.rs", lines: Some(Lines { first: 5, last: Some(7) }) })
        Load(Load { path: "a.rs", lines: Some(Lines { first: 5, last: None }) })
        Load(Load { path: "a.rs", lines: Some(Lines { first: 5, last: Some(5) }) })
        Who(Who { style: Table, type_name: Some("Tensor") })"#]],
    );
}

#[test]
fn magics_of_the_session_are_read() {
    check(
        "%run a.ipynb\n%history 3-5 -n -f a.rs\n%reset -f\n%dep serde@1.0 --features derive\n%opt 3\n%doc Vec::push",
        expect![[r#"
            Run { path: "a.ipynb" }
            History(History { cells: Some(Lines { first: 3, last: Some(5) }), numbered: true, file: Some("a.rs") })
            Reset
            Dep(Dep { package: "serde@1.0", features: Some("derive") })
            Opt { level: "3" }
            Doc { name: "Vec::push" }"#]],
    );
    check(" Vec?\n", expect![[r#"Inspect(Inspect { name: "Vec", style: Documentation, rust: Some(" Vec?\n") })"#]]);
    check("??train", expect![[r#"Inspect(Inspect { name: "train", style: Source, rust: None })"#]]);
    check("f()?", expect![[r#"1 "f()?""#]]);
}

#[test]
fn a_folder_and_a_variable_are_read() {
    check(
        "%cd\n%cd -\n%cd 'my data'\n%env\n%env A\n%env A=b c\n%env A 'b=c'\n%env A=",
        expect![[r#"
            Cd(Home)
            Cd(Previous)
            Cd(Path("my data"))
            Env(List)
            Env(Show { name: "A" })
            Env(Set { name: "A", value: "b c" })
            Env(Set { name: "A", value: "b=c" })
            Env(Set { name: "A", value: "" })"#]],
    );
}
