"""Cells are Rust: what compiles as a program runs, whatever evcxr can keep of it, and what later cells have is said."""

import re

import pytest

CLOSURE = "`double` is kept as `fn(f32) -> f32`\n"

# Cells, the result of the last one, and what the cells say on the standard error.
KEPT = {
    "a closure without captures": (["let double = |x: f32| x * 2.0;", "1", "double(3.0)"], "6.0", CLOSURE),
    "a closure with copies": (
        ["let total = 10; let add = |x: i32| x + total; add(1)", "total + add(2)"],
        "22",
        "`add` is kept as `Box<dyn Fn(i32) -> i32>`\n",
    ),
    "a closure that owns": (
        ['let name = "ab".to_string(); let longer = move |n: usize| name.len() + n;', "longer(3)"],
        "5",
        "`longer` is kept as `Box<dyn Fn(usize) -> usize>`\n",
    ),
    "a closure that counts": (
        ["let mut count = { let mut n = 0; move || { n += 1; n } };", "count()", "count()"],
        "2",
        "`count` is kept as `Box<dyn FnMut() -> i32>`\n",
    ),
    "an iterator": (
        ["let mut later = vec![1, 2, 3].into_iter().map(|x| x + 1);", "later.next()", "later.sum::<i32>()"],
        "7",
        "`later` is kept as `Box<dyn Iterator<Item = i32>>`\n",
    ),
    "a vector of functions": (
        ["fn square(x: i32) -> i32 { x * x }\nlet all = vec![square];", "all[0](4)"],
        "16",
        "`all` is kept as `Vec<fn(i32) -> i32>`\n",
    ),
    "a value that a closure makes once": (
        ["let lazy = std::sync::LazyLock::new(|| 92);", "*lazy + 1"],
        "93",
        "`lazy` is kept as `std::sync::LazyLock<i32, fn() -> i32>`\n",
    ),
    "an array of closures": (["let both = [|x: i32| x + 1, |x: i32| x - 1];", "both[1](4)"], "3", None),
    "what a function returns as `impl Fn`": (
        ["fn adder(n: i32) -> impl Fn(i32) -> i32 { move |x| x + n }", "let plus = adder(5);", "plus(1)"],
        "6",
        None,
    ),
    "a function": (["fn square(x: i32) -> i32 { x * x }\nlet same = square;", "same(4)"], "16", None),
    "a trait object of a path that is not imported": (
        ["let error = Box::new(std::fmt::Error) as Box<dyn std::error::Error>;", "error.to_string().len() > 0"],
        "true",
        "",
    ),
}

# Cells whose second variable ends with them, the reason, and an expression of the first variable with its value.
UNKEPT = {
    "what borrows one of two variables of a name": (
        "let a = vec![1, 2]; let mut gone = a.iter(); let a = 3; assert_eq!(gone.next(), Some(&1));",
        "it borrows `a`",
        "a",
        "3",
    ),
    "the type of a private trait": (
        "trait Own {} impl Own for u8 {} fn own() -> impl Own { 3u8 }\nlet a = 2; let gone = own();",
        "no later cell can write its type",
        "a",
        "2",
    ),
}

# Cells of which the last decides the type, and its result.
UNDECIDED = {
    "a map": (["let mut open = std::collections::BTreeMap::new();", 'open.insert(1, "a"); open[&1]'], '"a"'),
    "a vector": (["let mut open = Vec::new();", "1", "open.push(1.5); open.len()"], "1"),
    "nothing": (["let mut open = None;", "open = Some(3u8); open"], "Some(3)"),
    "both ends of a channel": (["let (send, open) = std::sync::mpsc::channel();", "send.send(3u8).unwrap(); open.recv().unwrap()"], "3"),
    "a text": (['let open = "5".parse().unwrap();', "let n: u8 = open; n"], "5"),
    "a variable without a value": (["let open;", "open = 3; open + 1"], "4"),
    "several": (["let mut open = vec![]; let none = None; let n = 2;", "open.push(none.unwrap_or(1)); open[0] + n"], "3"),
    "another variable with the name": (["let mut open = Vec::new();", "let open = 3; open + 1"], "4"),
}

# Cells whose last one needs another type than the compiler has assumed, and its result.
ASSUMED = {
    "a whole number": (["let n = 5;", "n + 1", "let small: u8 = n; small"], "5"),
    "a number with a fraction": (["let rate = 1e-3;", "let single: f32 = rate * 2.0; single"], "0.002"),
    "a row": (["let row = [1, 2, 3];", "row.len()", "row.iter().map(|x: &u64| x * 2).sum::<u64>()"], "12"),
    "a vector": (["let row = vec![10, 20];", "row.iter().copied().collect::<std::collections::HashSet<u16>>().len()"], "2"),
    "a pair": (["let (a, b) = (7, 1.5);", "let c: i8 = a; let d: f32 = b; (c, d)"], "(7, 1.5)"),
    "one that may change, before anything has used it": (["let mut n = 5;", "n += 1u64; n"], "6"),
    "a type that is decided stays": (["let n = 5;", "let a: u8 = n;", "let b: u8 = n; b"], "5"),
}

# Cells before one that needs another type, which is an error, since another cell may have changed the value.
CHANGED = {
    "a variable": ["let mut n = 5;", "n += 1;"],
    "a variable in a cell that ended early": ["let mut n = 5;", "n += 1; if n > 0 { Err(\"no\")? }"],
    "the inside of a cell": ["let n = std::cell::Cell::new(5);", "n.set(6);"],
    "another variable of the name": ["let n = 5;", "let n = 6i32;"],
    "a function's value": ["fn make() -> i32 { 5 }", "let n = make();"],
}

# Cells with macros that declare something, and the result of the last one.
MADE = {
    "a static": (
        [
            "macro_rules! counter { ($n:ident) => { static $n: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0); } }",
            "counter!(MADE);",
            "MADE.fetch_add(1, std::sync::atomic::Ordering::SeqCst);",
            "MADE.load(std::sync::atomic::Ordering::SeqCst)",
        ],
        "1",
    ),
    "a type with a method, which comes again": (
        [
            "macro_rules! point { ($name:ident { $($field:ident),* }) => { struct $name { $($field: i32),* } "
            "impl $name { fn sum(&self) -> i32 { 0 $(+ self.$field)* } } } }",
            "point! { P { x } }",
            "point!(P { x, y });",
            "P { x: 1, y: 2 }.sum()",
        ],
        "3",
    ),
    "a type that is defined without the macro later": (
        ["macro_rules! two { () => { struct A; struct B(i32); } }\ntwo!();", "struct B(u8);", "B(4).0"],
        "4",
    ),
    "functions and a constant, by a macro of the same cell": (
        [
            "macro_rules! functions { ($($n:ident = $v:expr;)*) => { $(fn $n() -> i32 { $v })* const COUNT: usize = [$($v),*].len(); } }\n"
            "functions! { one = 1; two = 2; }\none() + two()",
            "(one(), two(), COUNT)",
        ],
        "(1, 2, 2)",
    ),
    "what a macro in a macro defines": (
        ["macro_rules! inner { ($n:ident) => { const $n: i32 = 5; } }\nmacro_rules! outer { ($n:ident) => { inner!($n); } }", "outer!(DEEP);", "DEEP"],
        "5",
    ),
    "variables": (
        ["macro_rules! make { ($a:ident, $b:ident) => { let $a = 5; let mut $b = vec![1.5]; } }", "make!(first, second);", "second.push(2.0); (first, second.len())"],
        "(5, 2)",
    ),
    "a static of a thread, alone": (["thread_local!(static DEPTH: std::cell::Cell<u8> = std::cell::Cell::new(2))", "DEPTH.get()"], "2"),
    "nothing": (["macro_rules! show { ($x:expr) => { println!(\"{}\", $x); } }\nshow!(1);", "macro_rules! value { () => { 42 } }", "value!()"], "42"),
}

# Cells that end early or cannot be compiled, and the beginning of their errors.
WRONG = [
    ("10 / 0", "error[unconditional_panic]: this operation will panic at runtime (line 1, column 1)"),
    ("let a = std::", "error: the cell ends within a statement: "),
    ("vec![1].", "error: the cell ends within a statement: "),
    ("if true { 1 } else", "error: the cell ends within a statement: "),
    ("fn", "error: the cell ends within a statement: "),
    ("use", "error: the cell ends within a statement: "),
    ("let", "error: the cell ends within a statement: "),
    ("use std::", "error: the cell ends within a statement: "),
    ("break", "error[E0267]: `break` outside of a loop (line 1, column 1)"),
    ("continue;", "error[E0267]: `continue` outside of a loop (line 1, column 1)"),
    ("return 5;", "error[E0308]: a cell returns no value: write it as the last expression, or end the cell with `return Ok(());` (line 1, column 8)"),
]

# Definitions with the names that generated code uses.
NAMES = [
    "enum Status { Ok, Failed }\nuse Status::*;",
    "macro_rules! format { () => { 1 } }\nmacro_rules! println { () => { 1 } }\nmacro_rules! stringify { () => { 1 } }",
    "trait From {}\ntrait Into {}\ntrait Drop {}\ntrait Iterator {}",
    "mod std { pub fn own() {} }",
    "mod core {}\nmod ferrotune {}",
    "fn drop() {}\nfn panic() {}",
]

OURS = re.compile(r"evcxr|Evcxr|found `#`|catch_unwind|the end of the cell")


@pytest.mark.parametrize("name", KEPT)
def test_value_whose_type_has_no_name_is_kept(emptied, name):
    cells, result, said = KEPT[name]
    kernel = emptied
    outcomes = [kernel.ok(cell) for cell in cells]
    assert outcomes[-1].result == result
    if said is not None:
        assert "".join(outcome.stderr for outcome in outcomes) == said


@pytest.mark.parametrize("name", UNKEPT)
def test_variable_that_cannot_be_kept_lives_to_the_end_of_its_cell(emptied, name):
    cell, reason, expression, value = UNKEPT[name]
    kernel = emptied
    assert kernel.ok(cell).stderr == f"`gone` is not kept: {reason}\n"
    assert kernel.ok(expression).result == value
    assert re.search(rf"`gone` ended with In \[\d+\]: {re.escape(reason)}", kernel.fails("gone;").error)


def test_values_that_are_not_kept_are_dropped_in_the_order_of_a_program(start):
    kernel = start()
    kernel.ok(
        "struct Loud(&'static str);\nimpl Drop for Loud { fn drop(&mut self) { println!(\"{}\", self.0) } }\n"
        "trait Own {}\nimpl Own for Loud {}\nfn loud(name: &'static str) -> impl Own { Loud(name) }"
    )
    outcome = kernel.ok('let first = loud("first"); let second = loud("second"); println!("end");')
    assert outcome.stdout == "end\nsecond\nfirst\n"


@pytest.mark.parametrize("name", UNDECIDED)
def test_type_that_is_open_is_decided_by_a_later_cell(emptied, name):
    cells, result = UNDECIDED[name]
    kernel = emptied
    assert kernel.ok(cells[0]).stderr == ""
    assert kernel.ok("%who").display.startswith(("undecided, until a cell uses them: ", "n\n"))
    outcomes = [kernel.ok(cell) for cell in cells[1:]]
    assert outcomes[-1].result == result
    assert "undecided" not in kernel.ok("%who").display


def test_cell_that_decides_no_type_leaves_it_open_and_undo_takes_the_decision_back(start):
    kernel = start()
    kernel.ok("let mut open = Vec::new();")
    assert "type annotations needed" in kernel.fails("std::mem::size_of_val(&open)").error
    assert "type annotations needed" in kernel.fails("open.clear();").error
    assert kernel.ok("(open.len(), open.iter().next().is_some())").result == "(0, false)"
    assert "undecided, until a cell uses them: open" in kernel.ok("%who").display
    kernel.ok("open.push(1u8);")
    kernel.ok("%undo")
    assert "undecided, until a cell uses them: open" in kernel.ok("%who").display
    kernel.ok('open.push("text");')
    assert kernel.ok("open").result == '["text"]'
    kernel.ok(":opt 1\nlet mut below = Vec::new(); let number = 0;")
    kernel.ok("below.push(1u8); let wide: u64 = number;")
    assert kernel.ok("(below, number)").result == "([1], 0)"


@pytest.mark.parametrize("name", ASSUMED)
def test_number_gets_the_type_that_a_later_cell_needs(emptied, name):
    cells, result = ASSUMED[name]
    kernel = emptied
    outcomes = [kernel.ok(cell) for cell in cells]
    assert outcomes[-1].result == result
    assert [outcome.stderr for outcome in outcomes] == [""] * len(cells)


@pytest.mark.parametrize("name", CHANGED)
def test_value_that_a_cell_may_have_changed_is_not_made_again(emptied, name):
    kernel = emptied
    for cell in CHANGED[name]:
        kernel.run(cell)
    needs = "let other: std::cell::Cell<u8> = n;" if "inside" in name else "let other: u8 = n;"
    assert "mismatched types" in kernel.fails(needs).error


@pytest.mark.parametrize("name", MADE)
def test_what_a_macro_declares_stays(emptied, name):
    cells, result = MADE[name]
    kernel = emptied
    outcomes = [kernel.ok(cell) for cell in cells]
    assert outcomes[-1].result == result


def test_variable_of_a_macro_that_the_caller_does_not_name_ends_with_the_call(start):
    kernel = start()
    kernel.ok("macro_rules! make { ($a:ident) => { let hidden = 3; let $a = hidden; } }\nmake!(seen);")
    assert kernel.ok("seen").result == "3"
    assert "cannot find value `hidden`" in kernel.fails("hidden").error


@pytest.mark.parametrize(("cell", "error"), WRONG)
def test_error_has_its_place_and_no_name_of_ours(kernel, cell, error):
    outcome = kernel.fails(cell)
    assert outcome.error.startswith(f"CompilationError: {error}"), outcome.error
    assert "(line 1, column " in outcome.error
    assert not OURS.search(outcome.error + outcome.traceback)


@pytest.mark.parametrize("definition", NAMES)
def test_no_name_of_the_users_breaks_a_later_cell(emptied, definition):
    kernel = emptied
    kernel.ok("let mut seen = vec![1];")
    kernel.ok(definition)
    kernel.ok("let more: usize = 5; seen.push(2);")
    assert kernel.ok("seen.len() + more").result == "7"
    assert kernel.fails('"x".parse::<i32>()?;').error.startswith("Error: invalid digit")
    assert kernel.fails("vec![1, 2][seen.len() + 7];").error.startswith("Panic: index out of bounds")


def test_panic_is_reported_whatever_hook_the_user_sets(start):
    kernel = start()
    outcome = kernel.fails('std::panic::set_hook(Box::new(|_| println!("own hook"))); panic!("first");')
    assert outcome.error.startswith("Panic: first") and outcome.stdout == "own hook\n"
    outcome = kernel.fails('panic!("second");')
    assert outcome.error == "Panic: second (line 1 of the cell)" and outcome.stdout == "own hook\n"
    kernel.ok("let _ = std::panic::take_hook();")
    assert kernel.fails('panic!("third");').error == "Panic: third (line 1 of the cell)"
    assert kernel.fails("std::panic::resume_unwind(Box::new(String::from(\"fourth\")));").error == "Panic: fourth"


def test_panic_of_a_destructor_is_an_error_with_its_text(start):
    kernel = start()
    kernel.ok('struct Bomb;\nimpl Drop for Bomb { fn drop(&mut self) { panic!("dropped") } }\nlet other = 3; let bomb = Bomb;')
    outcome = kernel.fails("let bomb = 5;")
    assert outcome.error.startswith("Panic: dropped")
    assert kernel.ok("other").result == "3"


def test_byte_order_mark_is_no_rust(kernel):
    assert kernel.ok("\ufefflet marked = 1; marked").result == "1"
