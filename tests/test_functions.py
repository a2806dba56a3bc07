"""A large function is compiled once: later cells call the code of the first one, until an item changes."""

import re

import pytest

# A body that is long enough to be linked. It prints nothing for arguments below 1000.
LONG = "if x > 1000 { println!(\"{x}\"); }\n" * 12
ADDRESS = "big as fn(i32) -> i32 as usize"
BIG = f"fn big(x: i32) -> i32 {{\n{LONG}one(x) + 1\n}}\nfn one(x: i32) -> i32 {{ x }}"


def test_function_is_one_in_all_cells_until_an_item_changes(start):
    kernel = start()
    kernel.ok(BIG)
    assert kernel.ok(f"let place = {ADDRESS}; big(1)").result == "2"
    assert kernel.ok(f"({ADDRESS} == place, std::thread::spawn(|| big(2)).join().unwrap())").result == "(true, 3)"
    assert kernel.ok("let many: Vec<fn(i32) -> i32> = vec![big, one]; many[0](3)").result == "4"
    # What the function calls is defined anew, and a value of before it calls what it called.
    assert kernel.ok(f"fn one(x: i32) -> i32 {{ 10 * x }}\n(big(1), {ADDRESS} == place, many[0](1))").result == "(11, false, 2)"
    assert kernel.ok("big(2)").result == "21"
    kernel.ok("%undo")
    kernel.ok("%undo")
    assert kernel.ok("big(2)").result == "3"
    kernel.fails("std::process::abort()")
    assert kernel.ok("big(3)").result == "4"


# Cells, and the result of the last one.
SEEN = {
    "a static": ([BIG.replace("one(x) + 1", "static N: AtomicI32 = AtomicI32::new(0); N.fetch_add(x, Relaxed)"), "big(5)", "big(1)", "big(0)"], "6"),
    "a constant": ([BIG.replace("one(x) + 1", "K") + "\nconst K: i32 = 1;", "big(5)", "const K: i32 = 2;", "big(5)"], "2"),
    "an import": ([BIG.replace("one(x) + 1", "max(x, 3)") + "\nuse std::cmp::max;", "big(1)", "use std::cmp::min as max;", "big(1)"], "1"),
    "an implementation": (
        [
            BIG.replace("one(x) + 1", "drop(D); COUNT.load(Relaxed)") + "\nstruct D;\nstatic COUNT: AtomicI32 = AtomicI32::new(0);",
            "big(1)",
            "impl Drop for D { fn drop(&mut self) { COUNT.fetch_add(1, Relaxed); } }",
            "big(1)",
        ],
        "1",
    ),
    "a function that calls itself": ([BIG.replace("one(x) + 1", "if x == 0 { 0 } else { x + big(x - 1) }"), "big(1)", "big(4)"], "10"),
    "a type without one name": (
        ["fn big<'a>(x: i32, (text, _): (&'a str, u8), mut out: Vec<&'a str>) -> Result<Vec<&'a str>, Box<dyn std::error::Error + 'a>> {\n"
         f"{LONG}if x < 0 {{ return Err(text.into()); }}\nout.push(text);\nOk(out)\n}}",
         'big(1, ("a", 0), vec![])?.len()', 'let kept = big(1, ("a", 0), vec!["b"])?;', "kept"], '["b", "a"]'),
    "a method and a generic function that call it": (
        [BIG + "\nstruct S;\nimpl S { fn go(&self) -> i32 { big(1) } }\nfn twice<T: Into<i32>>(x: T) -> i32 { 2 * big(x.into()) }",
         "S.go()", "twice(1u8)", "(S.go(), twice(2u8))"], "(2, 6)"),
    "unsafe": ([BIG.replace("fn big", "unsafe fn big"), "unsafe { big(1) }", "unsafe { big(2) }"], "3"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_linked_function_is_as_one_that_each_cell_compiles(start, name):
    cells, result = SEEN[name]
    kernel = start()
    kernel.ok("use std::sync::atomic::{AtomicI32, Ordering::Relaxed};")
    for cell in cells[:-1]:
        kernel.ok(cell)
    assert kernel.ok(cells[-1]).result == result


def test_panic_in_a_linked_function_has_its_line(start):
    kernel = start()
    kernel.ok("fn counted() -> i32 {\n    static N: i32 = 3;\n    N\n}\n" + BIG.replace("one(x) + 1", "counted() / x"))
    kernel.ok("big(1)")
    line = BIG.replace("one(x) + 1", "counted() / x").split("\n").index("counted() / x") + 5
    for _ in range(2):
        assert f"attempt to divide by zero (In [1] line {line})" in kernel.fails("big(0)").error
    kernel.ok("fn failing() {\n    static TEXT: &str = \"no\";\n    panic!(\"{TEXT}\");\n}")
    assert re.search(r"no \(In \[\d\] line 3\)", kernel.fails("failing()").error)


def test_backtrace_names_a_linked_function(start):
    kernel = start()
    kernel.ok(BIG.replace("one(x) + 1", 'std::backtrace::Backtrace::force_capture().to_string().contains("big\\n") as i32'))
    kernel.ok("big(1)")
    assert kernel.ok("big(1)").result == "1"


def test_objective_has_the_function_itself(start):
    kernel = start()
    kernel.ok(BIG)
    kernel.ok("big(1)")
    body = "|trial| { let x: i32 = trial.int(\"x\", 1..=1).get()?; Ok(big(x) as f64) }"
    outcome = kernel.ok(f"%%tune --objective loss:min --max-trials 1 --project linked\n{body}")
    assert "best: loss = 2 in trial 0" in outcome.display, outcome.display
    assert kernel.ok("big(2)").result == "3"
