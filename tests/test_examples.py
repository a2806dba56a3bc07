"""The examples of Rust's standard library run as cells, whole and with each statement in a cell of its own.

`KNOWN` lists those that do not run yet. An example that runs now and is in the list fails the test, so that the list shrinks.
`FERROTUNE_EXAMPLES` is the number of examples, or `all`, which takes hours: `cargo xtask torture` runs them.
"""

import os
import pathlib

import pytest

import rust_examples
from bench_examples import GOALS, Runner, runs_in_rustdoc

NUMBER = os.environ.get("FERROTUNE_EXAMPLES", "12")
SEED = "1"
# One line for each example that fails, `MODE NAME`, and comments.
KNOWN = pathlib.Path(__file__).parent / "known_examples.txt"


def known(mode):
    """The names of the examples that fail in a mode."""
    lines = [line.split() for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return {name for of, name in lines if of == mode}


def chosen():
    examples = rust_examples.library().examples
    return rust_examples.sample(examples, len(examples) if NUMBER == "all" else int(NUMBER), SEED)


@pytest.mark.parametrize("mode", GOALS)
def test_examples_of_the_standard_library_run(mode, tmp_path):
    runner, examples = Runner(tmp_path), chosen()
    try:
        results = [runner.run(example, mode) for example in examples]
    finally:
        runner.close()
    failed = {result.name: f"{result.place}: {result.error}" for result in results if result.error is not None}
    listed = known(mode)
    # An example for another platform does not run in rustdoc either.
    suspects = [example for example in examples if example.name in failed.keys() - listed]
    programs = runs_in_rustdoc(suspects, tmp_path)
    assert {name: error for name, error in failed.items() if name in programs} == {}
    run = {example.name for example in examples} - failed.keys()
    assert run & listed == set(), f"these run now; remove them from {KNOWN.name}"


def test_every_known_failure_is_an_example():
    names = {example.name for example in rust_examples.library().examples}
    lines = [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    assert sorted({*lines}) == sorted(lines)
    assert {line.split()[1] for line in lines} - names == set()


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
    assert rust_examples.cut(marked.replace("----\n", "")) == marked.split("\n----\n")


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
