"""A static has one place in memory: all cells and their threads see it, and %undo and a crash bring its value back."""

import pytest

ATOMIC = "std::sync::atomic::AtomicUsize"
ORDER = "std::sync::atomic::Ordering::SeqCst"
COUNTER = f"fn next() -> usize {{ static LAST: {ATOMIC} = {ATOMIC}::new(0); LAST.fetch_add(1, {ORDER}) + 1 }}"

# Cells, and the result of the last one.
SEEN = {
    "a counter in a function": ([COUNTER, "next()", "next()"], "2"),
    "a counter in a generic function": (
        [COUNTER.replace("next()", "next<T>()"), "next::<u8>()", "next::<String>()"],
        "2",
    ),
    "a counter in a method and one in a trait": (
        [
            f"struct W;\nimpl W {{ {COUNTER} }}\ntrait T {{ fn go(&self) -> u32 {{ static mut K: u32 = 0; unsafe {{ K += 1; K }} }} }}\n"
            "impl T for W {}\nimpl T for i32 {}",
            "W::next(); W.go(); 5.go()",
            "(W::next(), W.go())",
        ],
        "(2, 3)",
    ),
    "a mutex with texts": (
        [
            "static LOG: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());",
            'LOG.lock().unwrap().push("a");',
            'std::thread::spawn(|| LOG.lock().unwrap().push("b")).join().unwrap();',
            "LOG.lock().unwrap().join(\"\")",
        ],
        '"ab"',
    ),
    "once in a module": (
        [
            "mod m { pub static CELL: std::sync::OnceLock<String> = std::sync::OnceLock::new(); }",
            'm::CELL.set("x".into()).unwrap();',
            "m::CELL.get()",
        ],
        'Some("x")',
    ),
    "a lazy table of functions": (
        [
            "use std::{collections::HashMap, sync::{LazyLock, Mutex}};\n"
            "static TABLE: LazyLock<Mutex<HashMap<&str, fn(&str) -> usize>>> = LazyLock::new(Default::default);",
            'TABLE.lock().unwrap().insert("len", |text| text.len());',
            'TABLE.lock().unwrap()["len"]("four")',
        ],
        "4",
    ),
    "static mut": (["static mut RAW: i32 = 3;", "unsafe { RAW += 1; }", "unsafe { RAW }"], "4"),
    "a static of a thread": (
        [
            "thread_local! {\n    // how deep\n    static DEPTH: std::cell::Cell<u32> = std::cell::Cell::new({\n        // not deep\n        3\n    });\n}",
            "DEPTH.set(DEPTH.get() + 1);",
            "(DEPTH.get(), std::thread::spawn(|| DEPTH.get()).join().unwrap())",
        ],
        "(4, 3)",
    ),
    "two statics of a thread": (
        [
            "thread_local!(static A: std::cell::Cell<i32> = const { std::cell::Cell::new(1) };\n"
            "pub static B: std::cell::RefCell<Vec<String>> = std::cell::RefCell::new(Vec::new()));",
            'A.set(2); B.with_borrow_mut(|b| b.push("q".into()));',
            "(A.get(), B.take())",
        ],
        '(2, ["q"])',
    ),
    "a static that ends a thread": (
        [
            "let handle = std::thread::spawn(|| { while !STOP.load(std::sync::atomic::Ordering::SeqCst) { std::thread::yield_now(); } 7 });\n"
            "static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);",
            f"STOP.store(true, {ORDER});",
            "handle.join().unwrap()",
        ],
        "7",
    ),
    "a static that a constant and another static read": (
        [
            "static ROW: [i32; 3] = [1, 2, 3];\nstatic FIRST: &i32 = &ROW[0];",
            "const COPY: i32 = ROW[1];\nstatic SUM: i32 = COPY + ROW[2];",
            "(*FIRST, COPY, SUM)",
        ],
        "(1, 2, 5)",
    ),
    "a static in a static": (["fn f() -> i32 { static X: i32 = { static Y: i32 = 3; Y + 1 }; X }", "f()"], "4"),
    "a static that is defined again": (
        [
            f"static N: {ATOMIC} = {ATOMIC}::new(0);",
            f"N.fetch_add(5, {ORDER});",
            f"static N: {ATOMIC} = {ATOMIC}::new(1);",
            f"N.load({ORDER})",
        ],
        "1",
    ),
    "a name that C has": (
        [
            '#[unsafe(no_mangle)] pub extern "C" fn plain() -> i32 { 1 }',
            '#[unsafe(no_mangle)] pub extern "C" fn plain() -> i32 { 2 }',
            "plain()",
        ],
        "2",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_static_is_the_same_in_all_cells(start, name):
    cells, result = SEEN[name]
    kernel = start()
    outcomes = [kernel.ok(cell) for cell in cells]
    assert outcomes[-1].result == result
    assert [outcome.stderr for outcome in outcomes] == [""] * len(cells)


def test_undo_restore_and_a_crash_bring_the_value_back(start):
    kernel = start()
    kernel.ok(COUNTER)
    kernel.ok("next()")
    kernel.ok("%checkpoint one")
    assert kernel.ok("next()").result == "2"
    kernel.ok("%undo")
    assert kernel.ok("next()").result == "2"
    assert "CellDied" in kernel.fails("next(); std::process::abort()").error
    assert kernel.ok("next()").result == "3"
    kernel.ok("%restore one")
    assert kernel.ok("next()").result == "2"


def test_static_of_a_cell_that_failed_is_not_that_of_the_next(start):
    kernel = start()
    kernel.fails(f"static N: {ATOMIC} = {ATOMIC}::new(0); N.fetch_add(1, {ORDER}); panic!(\"no\");")
    kernel.ok(f"static N: {ATOMIC} = {ATOMIC}::new(10);")
    assert kernel.ok(f"N.load({ORDER})").result == "10"


def test_new_process_begins_anew(start):
    kernel = start()
    kernel.ok(COUNTER)
    kernel.ok("next()")
    kernel.ok(":restart")
    assert kernel.ok("next()").result == "1"
    assert kernel.ok("next()").result == "2"


def test_static_of_a_type_that_is_defined_anew_begins_anew(start):
    kernel = start()
    kernel.ok("struct P { x: i32 }\ntype Points = Vec<P>;\nstatic ALL: std::sync::Mutex<Points> = std::sync::Mutex::new(Vec::new());")
    kernel.ok("ALL.lock().unwrap().push(P { x: 1 });")
    # The same definition changes nothing.
    assert kernel.ok("struct P { x: i32 }").stderr == ""
    assert kernel.ok("ALL.lock().unwrap()[0].x").result == "1"
    assert kernel.ok("struct P { name: String, x: i32 }").stderr == "`ALL` begins anew: its type is defined anew\n"
    assert kernel.ok("ALL.lock().unwrap().len()").result == "0"


def test_static_whose_type_no_other_cell_can_write_is_copied_and_says_so(start):
    kernel = start()
    said = "`SHORT` begins anew in each cell: write the lifetimes in its type, as in `Cow<'static, str>`\n"
    assert kernel.ok('static SHORT: std::borrow::Cow<str> = std::borrow::Cow::Borrowed("x");').stderr == said
    assert kernel.ok("SHORT.len()").result == "1"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("static BAD: Vec<Unknown> = Vec::new();", "cannot find type `Unknown` in this scope (line 1, column 17)"),
        ('fn broken() -> u32 { static N: u32 = "a"; N }', "mismatched types (line 1, column 38)"),
        ('thread_local! { static N: u32 = "a"; }', "mismatched types (line 1, column 33)"),
        ("static CELL: std::cell::Cell<u8> = std::cell::Cell::new(1);", "cannot be shared between threads safely (line 1, column 14)"),
    ],
)
def test_error_in_a_static_has_its_place(kernel, cell, error):
    assert error in kernel.fails(cell).error


def test_objective_has_statics_of_its_own(start):
    kernel = start()
    kernel.ok(COUNTER + "\nfor _ in 0..5 { next(); }")
    body = "|trial| { let x: f64 = trial.float(\"x\", 0.0..=1.0).get()?; Ok(next() as f64 + 0.0 * x) }"
    outcome = kernel.ok(f"%%tune --objective loss:min --max-trials 1 --project own\n{body}")
    assert "best: loss = 1 in trial 0" in outcome.display, outcome.display
    assert kernel.ok("next()").result == "6"
