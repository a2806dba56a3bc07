"""The examples of Rust's standard library run as cells, whole and with each statement in a cell of its own.

known_examples.txt lists those that do not run yet; `cargo xtask bench examples --known` writes it. An example that runs and is in
the list fails the test, so that the list shrinks.
`FERROTUNE_EXAMPLES` is the number of examples, or `all`, which takes hours: `cargo xtask torture` runs them.
"""

import os

import pytest

import rust_examples
from bench_examples import GOALS, KNOWN, Runner, runs_in_rustdoc
from rust_statements import cut

NUMBER = os.environ.get("FERROTUNE_EXAMPLES", "12")
SEED = "1"


def known():
    """The failures that are known, as mode and name."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split()) for line in lines if line and not line.startswith("#")]


def chosen():
    examples = rust_examples.library().examples
    return rust_examples.sample(examples, len(examples) if NUMBER == "all" else int(NUMBER), SEED)


@pytest.mark.parametrize("mode", GOALS)
def test_examples_of_the_standard_library_run(mode, tmp_path):
    examples, listed = chosen(), {name for of, name in known() if of == mode}
    runner, failed, runs_now = Runner(tmp_path), {}, []
    try:
        for example in examples:
            run = runner.run_once if example.name in listed else runner.run
            result = run(example, mode)
            if result.error is None and example.name in listed:
                runs_now.append(example.name)
            elif result.error is not None and example.name not in listed:
                failed[example.name] = f"{result.place}, cell {result.failed + 1}: {result.error}"
    finally:
        runner.close()
    # An example for another platform does not run in rustdoc either.
    programs = runs_in_rustdoc([example for example in examples if example.name in failed], tmp_path)
    failed = [f"{name} ({error})" for name, error in failed.items() if name in programs]
    assert failed == [], "\n".join(failed)
    assert runs_now == [], f"these run now: remove them from {KNOWN.name}"


def test_each_known_failure_is_an_example_and_is_listed_once():
    names = {example.name for example in rust_examples.library().examples}
    assert [(mode, name) for mode, name in known() if mode not in GOALS or name not in names] == []
    assert len(set(known())) == len(known())


# Programs, with a line `----` between two statements.
CUTS = [
    "use std::{fmt, io};\n----\nlet a = 1; // one\n----\n// two\nlet b = 2;\n// the end",
    "struct Unit;\n----\nstruct Pair(u8, u8);\n----\n#[derive(Debug)]\nstruct Point { x: i32 }\n----\nlet point = Point { x: 1 };",
    "if let Point { x } = point {\n    x;\n} else if unsafe { f() } {\n} else {\n}\n----\n*x += 1;\n----\n(a, b) = (b, a);",
    "match { 3 } {\n    3 => {}\n    _ => {}\n}\n----\n'outer: for Point { x } in points { break 'outer; }",
    'unsafe extern "C" { fn f(); }\n----\nunsafe { f() }\n----\nconst fn g() {}\n----\nconst N: u8 = { 3 };\n----\nunsafe impl Send for A {}',
    "let Some(x) = y else { panic!(\"{}\", '}') };\n----\nmacro_rules! m { () => {} }\n----\nm! {}\n----\nunsafe { v.get(0) }.unwrap();",
    "#![allow(unused)]\nlet s = r#\"a \"; b\"#;\n----\n/* one; /* two; */ */\nloop { break; }\n----\ns",
]


@pytest.mark.parametrize("marked", CUTS)
def test_program_is_cut_between_its_statements(marked):
    assert cut(marked.replace("----\n", "")) == marked.split("\n----\n")


def test_examples_are_found_as_rustdoc_finds_them(tmp_path):
    source = """//! ```
//! # let hidden = 1;
//! ## [doc]
//! ```
/// * an item
///   ```should_panic
///   panic!();
///   ```
/// ```text
/// no Rust
/// ```
/// ```no_run
/// loop {}
/// ```
/// ```
/// #![feature(never)]
/// ```
#[doc = "```"]
#[doc = concat!("let x = ", stringify!($x), ";")]
/// ```
/// ~~~rust,edition2021
/// fn main() -> Result<(), String> { Ok(()) }
/// ~~~
/// ```
/// hidden
///
"""
    for crate in rust_examples.CRATES:
        (tmp_path / crate / "src").mkdir(parents=True)
    (tmp_path / "std/src/lib.rs").write_text(source)
    library = rust_examples.library(tmp_path)
    assert [(example.place, example.panics, example.code) for example in library.examples] == [
        ("std/src/lib.rs:1", False, "let hidden = 1;\n# [doc]"),
        ("std/src/lib.rs:6", True, "panic!();"),
        ("std/src/lib.rs:21", False, "fn main() -> Result<(), String> { Ok(()) }\nmain()?;"),
    ]
    counts = (library.unstable, library.not_run, library.other, library.generated, library.repeated)
    assert counts == (1, 1, 1, 1, 0)
