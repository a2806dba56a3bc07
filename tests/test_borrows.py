"""A variable that borrows from another one is kept, stays right, and ends when a cell uses what it borrows in a way that excludes it."""

import re

import pytest

PARSER = (
    "struct Parser<'a> { text: &'a str }\n"
    "impl<'a> Parser<'a> { fn next(&mut self) -> &'a str { let (head, rest) = self.text.split_at(1); self.text = rest; head } }"
)

# Cells, and the result of the last one. No cell says that anything is not kept.
KEPT = {
    "an iterator": (["let a = [1, 2, 3];", "let mut iter = a.iter();", "iter.next();", "iter.next()"], "Some(2)"),
    "an iterator of its own cell": (["let a = vec![1, 2, 3]; let mut iter = a.iter(); iter.next();", "a.len()", "iter.next()"], "Some(2)"),
    "what an iterator gives": (["let a = vec![1, 2]; let mut iter = a.iter();", "let one = iter.next();", "drop(iter);", "one"], "Some(1)"),
    "one element": (["let mut a = vec![1, 2, 3];", "let first = &mut a[0];", "*first = 7;", "*first + 1"], "8"),
    "chunks": (["let mut a = vec![1, 2, 3]; let mut chunks = a.chunks_mut(2);", "chunks.next().unwrap()[0] = 5;", "chunks.next()"], "Some([3])"),
    "both halves": (["let mut a = [1, 2, 3];", "let (left, right) = a.split_at_mut(1);", "left[0] = right[0];", "left[0]"], "2"),
    "a temporary value": (["let x = &mut [0, 1, 2];", "x[0] = 5;", "let y: &mut Vec<u8> = &mut vec![1];", "y.push(2);", "x.len() + y.len()"], "5"),
    "a struct of the user's": ([PARSER, 'let text = String::from("xyz");', "let mut parser = Parser { text: &text };", "parser.next();", "parser.next()"], '"y"'),
    "words": (['let text = String::from("a b c");', "let words: Vec<&str> = text.split(' ').collect();", 'words.join("+")'], '"a+b+c"'),
    "a guard": (["let lock = std::sync::Mutex::new(1);", "let mut guard = lock.lock().unwrap();", "*guard += 1;", "drop(guard);", "*lock.lock().unwrap()"], "2"),
    "an entry of a map": (["let mut map = std::collections::HashMap::from([(1, 2)]);", "let entry = map.entry(1).or_insert(3);", "*entry += 5;", "*entry"], "7"),
    "a closure that reads": (["let a = vec![1, 2]; let len = |n: usize| a.len() + n;", "len(1)", "a.len() + len(2)"], "6"),
    "a closure that changes": (["let mut log = vec![];", "let mut add = |n: i32| { log.push(n); log.len() };", "add(1);", "add(2)"], "2"),
    "an iterator with a closure": (["let a = vec![1, 2];", "let mut doubled = a.iter().map(|x| x * 2);", "doubled.next();", "doubled.next()"], "Some(4)"),
    "a borrow of a borrow": (["let mut a = vec![1, 2, 3];", "let all = &mut a[..];", "let first = &mut all[0];", "*first = 9;", "*first + 1"], "10"),
    "of two variables": (["let a = [1, 2]; let b = [3, 4];", "let mut both = a.iter().zip(b.iter());", "both.next();", "both.next()"], "Some((2, 4))"),
    "one that borrows more later": (["let a = 1;", "let mut list = vec![&a];", "let b = 2;", "list.push(&b);", "list"], "[1, 2]"),
    "what moves into another variable": (["let a = [1, 2];", "let iter = a.iter();", "let mut other = iter;", "other.next();", "other.next()"], "Some(2)"),
    "one that is lent and borrows more": (
        ["let a = 1; let b = 2;", "let mut list = vec![&a];", "let all = &mut list;", "all.push(&b);", "drop(all);", "list"],
        "[1, 2]",
    ),
    "in a macro and a struct": (
        ["#[derive(Debug)] struct S { a: usize }", "let a = 3usize; let r = &a;", "let s = S { a }; assert_eq!(a, s.a); println!(\"{a} {}\", a);", "*r + a"],
        "6",
    ),
    "after a panic": (["let a = [1, 2, 3]; let mut iter = a.iter();", "let _ = std::panic::catch_unwind(|| panic!());", "iter.next();", "iter.next()"], "Some(2)"),
    "across .await": (["let a = vec![1, 2]; let mut iter = a.iter();", "std::future::ready(()).await; iter.next();", "iter.next()"], "Some(2)"),
    "a thread of a scope": (["let a = vec![1, 2]; let r = &a;", "std::thread::scope(|scope| scope.spawn(|| r.len()).join().unwrap())"], "2"),
    "names of other things": (
        ["struct S { v: u8 }", "let mut v = vec![1]; let first = &mut v[0];", 'println!("v first"); S { v: 1 }.v; // v', "*first"],
        "1",
    ),
    "one with the name of its owner": (
        ['let text = String::from(" a b ");', "let text = text.trim();", "let mut text = text.split(' ');", "text.next();", "text.next()"],
        'Some("b")',
    ),
    "a let with else": (['let some = Some(String::from("k"));', "let Some(inner) = &some else { panic!() };", "inner.len()"], "1"),
}

# Cells, the last of which uses the owner of `gone`, and what is said of `gone`.
ENDED = {
    "changed": (["let mut a = vec![3, 1];", "let gone = a.iter().max();", "a.sort();"], "it borrows `a`, which this cell changes or moves"),
    "moved": (["let a = vec![3, 1];", "let gone = &a;", "drop(a);"], "it borrows `a`, which this cell changes or moves"),
    "declared anew": (["let a = vec![3, 1];", "let gone = &a;", "let a = 5;"], "it borrows `a`, which this cell changes or moves"),
    "read": (["let mut a = vec![3, 1];", "let gone = &mut a[0];", "a.len()"], "it borrows `a` for itself alone, and this cell uses `a`"),
    "through another into its owner": (
        ["let a = String::new(); let mut gone = vec![&a];", "let b = String::new();", "let all = &mut gone;", "all.push(&b);", "drop(all);", "drop(b);"],
        "it may borrow `b`, which this cell changes or moves",
    ),
    "of one of two": (
        ["let mut a = vec![3, 1]; let b = 1;", "let gone = &a; let other = &b;", "a.push(1);"],
        "it may borrow `a`, which this cell changes or moves",
    ),
    "through another": (
        ["let mut a = vec![3, 1];", "let part = &mut a[..];", "let gone = &part[0];", "part[1] = 5;"],
        "it borrows `part`, which this cell changes or moves",
    ),
    "with the owner of its owner": (
        ["let mut a = vec![3, 1];", "let _part = &mut a[..];", "let gone = &_part[0];", "a"],
        "it borrows `_part`, which this cell changes or moves",
    ),
}

# Cells that a program may not have either, and the error.
REFUSED = {
    "a static keeps a borrow": "static KEEP: std::sync::Mutex<Option<&'static i32>> = std::sync::Mutex::new(None); *KEEP.lock().unwrap() = Some(&a[0]);",
    "a static keeps what a variable borrows": "static KEEP: std::sync::Mutex<Option<&'static i32>> = std::sync::Mutex::new(None); *KEEP.lock().unwrap() = Some(r);",
    "a thread keeps a borrow": "std::thread::spawn(move || r.abs());",
    "a variable that borrows nothing": "let copy = &strings; strings.borrow_mut().push(&text);",
    "a variable whose type does not write its lifetime": "let copy = &words; words.borrow_mut().0 = &text;",
    "a leak keeps a borrow": "let kept: &'static i32 = r; kept;",
}


@pytest.mark.parametrize("name", KEPT)
def test_variable_that_borrows_is_kept(emptied, name):
    cells, result = KEPT[name]
    kernel = emptied
    outcomes = [kernel.ok(cell) for cell in cells]
    assert outcomes[-1].result == result
    assert "not kept" not in "".join(outcome.stderr for outcome in outcomes)


@pytest.mark.parametrize("name", ENDED)
def test_borrower_ends_when_a_cell_uses_its_owner_otherwise(emptied, name):
    cells, reason = ENDED[name]
    kernel = emptied
    for cell in cells[:-1]:
        assert "gone" not in kernel.ok(cell).stderr
    assert f"`gone` is not kept: {reason}\n" in kernel.ok(cells[-1]).stderr
    assert re.search(rf"`gone` ended with In \[\d+\]: {re.escape(reason)}", kernel.fails("gone;").error)


@pytest.mark.parametrize("name", REFUSED)
def test_borrow_leaves_no_cell_by_another_way_than_a_variable(emptied, name):
    kernel = emptied
    kernel.ok("let a = vec![1, 2];\nlet r = &a[0];")
    kernel.ok('struct Words<\'a>(&\'a str);\nlet words: std::cell::RefCell<Words> = std::cell::RefCell::new(Words("a"));')
    kernel.ok('let strings = std::cell::RefCell::new(vec!["a"]);\nlet text = String::from("b");')
    assert any(word in kernel.fails(REFUSED[name]).error for word in ("lifetime may not live long enough", "does not live long enough"))
    assert kernel.ok("*r").result == "1"


def test_a_mistake_beside_a_borrow_is_where_the_user_wrote_it(start):
    kernel = start()
    kernel.ok("let mut a = vec![1, 2];\nlet mut iter = a.iter();")
    assert "no method named `nexxt`" in kernel.fails("a.len(); iter.nexxt()").error
    assert "(line 1, column 15)" in kernel.fails("a.len(); iter.nexxt()").error
    assert "(line 1, column 3)" in kernel.fails("a.lenn()").error
    # Nothing has run, so that the borrower is there.
    assert kernel.ok("iter.next()").result == "Some(1)"


def test_undo_a_crash_and_a_failing_cell_bring_borrowers_back(start):
    kernel = start()
    kernel.ok("let a = vec![1, 2, 3, 4];\nlet mut iter = a.iter();")
    kernel.ok("iter.next();")
    kernel.ok("let rest: i32 = iter.sum();")
    kernel.ok("%undo")
    assert kernel.ok("iter.next()").result == "Some(2)"
    kernel.fails("std::process::exit(3);")
    assert kernel.ok("iter.next()").result == "Some(3)"
    kernel.fails("iter.next(); let other = vec![1]; let mut iter = other.iter(); Err(\"no\")?;")
    kernel.fails('drop(iter); panic!("no");')
    assert kernel.ok("iter.next()").result == "Some(4)"
    kernel.ok("drop(a);")
    kernel.ok("%undo")
    assert kernel.ok("(a.len(), iter.next())").result == "(4, None)"


def test_whos_reads_no_variable_that_another_borrows_for_itself_alone(start):
    kernel = start()
    kernel.ok("let mut a = vec![1, 2];\nlet b = String::from(\"x\");")
    kernel.ok("let first = &mut a[0];")
    kernel.ok("let text = &b;\nlet bytes = b.bytes();")
    table = kernel.ok("%whos").display
    assert "borrowed by first" in table and "&mut i32" in table and "Bytes<'_>" in table and "'static" not in table
    assert kernel.ok("*first += 1; (*first, text.len())").result == "(2, 1)"
    assert kernel.ok("a").result == "[2, 2]"


def test_type_of_an_owner_that_is_defined_anew_ends_its_borrowers(start):
    kernel = start()
    kernel.ok("struct P(u8);\nlet p = P(1);")
    kernel.ok("let r = &p.0;")
    kernel.ok("struct P(u16);")
    assert "cannot find value `p`" in kernel.fails("p.0 + *r as u16").error
    assert "cannot find value `r`" in kernel.fails("*r").error
    assert kernel.ok("let p = P(2); p.0").result == "2"


def test_failing_cell_leaves_what_it_shadows_beside_borrows(start):
    kernel = start()
    kernel.ok("let a = vec![1, 2]; let n = 7; let mut list = vec![&a[0]];")
    kernel.fails('let n = 8; let first = &a[1]; list.push(first); Err("no")?;')
    assert kernel.ok("(n, list)").result == "(7, [1, 2])"


def test_type_of_a_borrower_that_is_defined_anew_ends_it(start):
    kernel = start()
    kernel.ok(PARSER)
    kernel.ok('let text = String::from("xyz");\nlet mut parser = Parser { text: &text };')
    kernel.ok(PARSER.replace("text: &'a str }", "text: &'a str, at: u8 }"))
    assert "the variable parser was dropped: its type has been defined anew" in kernel.run("parser.text;").stderr
    assert kernel.ok("text").result == '"xyz"'


SLOTS = """struct Slots<'s, 'v> { places: &'s mut [Option<&'v str>] }
impl<'v> Slots<'_, 'v> { fn put(&mut self, text: &'v str) { *self.places.iter_mut().find(|place| place.is_none()).unwrap() = Some(text) } }"""


def test_borrower_with_a_lifetime_of_its_own_behind_an_exclusive_borrow_is_kept(kernel):
    kernel.ok(SLOTS)
    outcome = kernel.ok("let mut places = [None; 3];\nlet mut slots = Slots { places: &mut places };")
    assert outcome.stderr == ""
    kernel.ok('slots.put("a");')
    kernel.ok('slots.put("b");\nlet _ = 1;')
    kernel.ok("%undo")
    assert kernel.ok("slots.places").result == '[Some("a"), None, None]'
    # A text of this cell would be gone in the next one.
    error = kernel.fails('let text = String::from("b");\nslots.put(&text);').error
    assert "`text` does not live long enough" in error
    assert kernel.ok("slots.places.len()").result == "3"
    assert kernel.ok("places[0]").result == 'Some("a")'


def test_variable_stays_where_raw_pointers_point(kernel):
    kernel.ok("let mut list = [1, 2, 3, 4]; let mut n = 5;")
    kernel.ok("let first = list.as_mut_ptr();\nlet at_n = &raw mut n;")
    kernel.ok("let second = unsafe { first.add(1) };")
    kernel.ok("unsafe { *second = 7; *at_n += 1 };")
    # The variable may be read, and changed in place.
    assert kernel.ok("n += 1;\n(list, n)").result == "([1, 7, 3, 4], 7)"
    assert kernel.ok("unsafe { (*first, *second, *at_n, &raw const list[1] == second) }").result == "(1, 7, 7, true)"
    # A variable that is replaced has no pointers to it. All that a cell has used may point to it.
    assert "`at_n` is not kept: it may borrow `n`, which this cell changes or moves" in kernel.ok("let n = 1;").stderr
    assert "`at_n` ended with In" in kernel.fails("unsafe { *at_n }").error


# Cells that make a pointer, the last of which gives what is behind it.
POINTERS = {
    "beside a borrower": ["let mut v = [1, 2];", "let r = &v;", "let p = &raw mut v;", "(unsafe { *p })[1]"],
    "to uninitialised memory": ["let mut v = std::mem::MaybeUninit::<i32>::uninit();", "let p = v.as_mut_ptr();", "unsafe { p.write(2); v.assume_init() }"],
    "into a cell": ["let v = std::cell::UnsafeCell::new(1);", "let p = v.get();", "unsafe { *p += 1; *v.get() }"],
    "by an assignment": ["let mut v = 1; let mut p = std::ptr::null_mut();", "p = &raw mut v;", "unsafe { *p = 2 };", "v"],
    "two at once": ["let mut v = 1; let mut w = 2;", "let (p, q) = (&raw mut v, &raw mut w);", "unsafe { std::ptr::swap(p, q) };", "v"],
}


@pytest.mark.parametrize("cells", POINTERS.values(), ids=POINTERS)
def test_pointer_points_to_its_variable_in_later_cells(kernel, cells):
    for cell in cells[:-1]:
        kernel.ok(cell)
    assert kernel.ok(cells[-1]).result == "2"


def test_pointer_to_a_variable_that_its_cell_declares_twice_is_not_kept(kernel):
    assert "`p` is not kept" in kernel.ok("let mut twice = 1; let p = &raw mut twice; let mut twice = 2;").stderr


def test_borrowers_of_one_cell_keep_the_lifetimes_that_each_needs(kernel):
    kernel.ok(SLOTS)
    cell = 'let text = String::from("a b"); let pair = (&text[..1], &text[2..]);\nlet mut places = [None; 2]; let mut slots = Slots { places: &mut places };'
    assert kernel.ok(cell).stderr == ""
    kernel.ok('slots.put("x");')
    assert kernel.ok("(pair, &slots.places)").result == '(("a", "b"), [Some("x"), None])'


def test_atomic_pointer_and_macro_point_to_a_variable(kernel):
    kernel.ok("use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};\nlet mut pair = (1u8, 2u16);")
    kernel.ok("let atomic = AtomicPtr::new(&raw mut pair.1);")
    kernel.ok("let plain = std::ptr::addr_of!(pair.1);")
    assert kernel.ok("unsafe { *atomic.load(Relaxed) = 9 };\n(atomic.load(Relaxed).cast_const() == plain, pair.1)").result == "(true, 9)"


def test_pointer_to_elements_of_a_vector_lets_the_vector_change(kernel):
    kernel.ok("let mut list = vec![1, 2, 3];\nlet first = list.as_mut_ptr();")
    kernel.ok("unsafe { *first = 7 };\nlist[1] = 8;")
    assert kernel.ok("list.swap(0, 2);\nunsafe { *first }").result == "3"
