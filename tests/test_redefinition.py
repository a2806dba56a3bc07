"""Types that are redefined: a variable of the old type is dropped by name, and never read as the new type.

Plain evcxr takes a struct for the same one as long as its fields have the same names, since all its cells are crates of
one name. `test_variable_is_not_read_as_another_type` ends its process with a segmentation fault: a number is taken for
the address of a string.
"""

import pytest


def dropped(outcome):
    """Names of the variables that a cell has lost, sorted."""
    lines = [line for line in outcome.stderr.splitlines() if "was dropped: its type has been defined anew" in line]
    return sorted(line.split()[2] for line in lines)


def redefine(kernel, before, make, after):
    """Makes variables of a type, redefines it, and returns the names of the lost variables."""
    kernel.ok(before)
    kernel.ok(make)
    return sorted(dropped(kernel.ok(after)) + dropped(kernel.ok("1 + 1")))


def test_variable_is_not_read_as_another_type(kernel):
    kernel.ok("struct P { x: u64, y: u64, z: u64 }\nlet p = P { x: 8, y: 8, z: 8 }; let kept = 7;")
    redefined = kernel.ok("struct P { x: String, y: u64, z: u64 }")
    used = kernel.fails('println!("{}", p.x)')
    assert "cannot find value `p`" in used.error
    assert dropped(redefined) + dropped(used) == ["p"]
    assert kernel.ok("kept").result == "7"
    kernel.ok('let p = P { x: "new".into(), y: 1, z: 2 };')
    assert kernel.ok("p.x.len()").result == "3"


def test_cell_that_defines_and_uses_is_told_which_variable_is_lost(kernel):
    kernel.ok("struct Same { x: u64 }\nlet same = Same { x: 8 };")
    outcome = kernel.fails("struct Same { x: String }\nsame.x.len()")
    assert dropped(outcome) == ["same"]
    assert "cannot find value `same`" in outcome.error


@pytest.mark.parametrize(
    ("before", "make", "after", "lost"),
    [
        (
            "use std::{cell::RefCell, rc::Rc};\nstruct A(u64);",
            "let a = vec![A(1)]; let b = Some(Box::new(A(2))); let c = (1u8, A(3)); let d = Rc::new(RefCell::new(A(4)));"
            "let e: fn(A) -> u64 = |a| a.0; let kept = 5;",
            "struct A(f64);",
            ["a", "b", "c", "d", "e"],
        ),
        ("struct In(u64); struct Out { inner: In }", "let o = Out { inner: In(1) };", "struct In(f64);", ["o"]),
        ("type Unit = f32; struct Len(Unit);", "let l = Len(1.0);", "type Unit = u32;", ["l"]),
        ("const SIZE: usize = 2; struct Row([u8; SIZE]);", "let r = Row([1; 2]);", "const SIZE: usize = 64;", ["r"]),
        ("enum Kind { One(u64), Two }", "let k = Kind::One(1);", "enum Kind { One(String), Two }", ["k"]),
        (
            "trait Area { fn area(&self) -> f64; fn size(&self) -> u64; } impl Area for u64 { fn area(&self) -> f64 { 1.5 } fn size(&self) -> u64 { 2 } }",
            "let s: Box<dyn Area> = Box::new(3u64);",
            "trait Area { fn size(&self) -> u64; fn area(&self) -> f64; } impl Area for u64 { fn area(&self) -> f64 { 1.5 } fn size(&self) -> u64 { 2 } }",
            ["s"],
        ),
    ],
)
def test_variable_of_a_changed_type_is_dropped(start, before, make, after, lost):
    assert redefine(start(), before, make, after) == lost


def test_variable_of_an_unchanged_type_is_kept(kernel):
    before = "struct Kept { x: u64 }\nimpl Kept { fn twice(&self) -> u64 { 2 * self.x } }"
    after = "/// Documented.\n#[derive(Debug, Clone)]\nstruct Kept {\n    x: u64,\n}\nimpl Kept { fn thrice(&self) -> u64 { 3 * self.x } }"
    assert redefine(kernel, before, "let survivor = vec![Kept { x: 4 }];", after) == []
    assert kernel.ok("survivor[0].thrice()").result == "12"


def test_value_that_is_dropped_runs_its_own_drop(kernel):
    kernel.ok(
        "struct Loud { x: u64 }\n"
        'impl Drop for Loud { fn drop(&mut self) { eprintln!("dropped {}", self.x); panic!("in drop") } }\n'
        "let loud = Loud { x: 5 };"
    )
    outcome = kernel.ok("struct Loud { x: String }\nimpl Drop for Loud { fn drop(&mut self) {} }")
    again = kernel.ok("40 + 2")
    assert "dropped 5" in outcome.stderr + again.stderr
    assert again.result == "42"


def test_any_tells_a_type_from_an_earlier_one_of_its_name(start):
    kernel = start()
    kernel.ok("use std::any::Any; use std::error::Error;\n#[derive(Debug)] struct P { x: u8 }\nstruct Out { inner: Vec<P> }\nstruct Other(u8);")
    kernel.ok("impl std::fmt::Display for P { fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { write!(f, \"P\") } }\nimpl Error for P {}")
    kernel.ok(
        "let all: Vec<Box<dyn Any>> = vec![Box::new(P { x: 1 }), Box::new(Out { inner: vec![P { x: 2 }] }), Box::new(Other(3))];\n"
        "let error: Box<dyn Error> = Box::new(P { x: 4 }); let other = Other(5);"
    )
    seen = "(all[0].is::<P>(), all[1].is::<Out>(), all[2].is::<Other>(), error.downcast_ref::<P>().map(|p| p.x))"
    assert kernel.ok(seen).result == "(true, true, true, Some(4))"
    # What changes no value changes no type.
    kernel.ok("/// Text.\n#[derive(Debug, Clone)] struct P { x: u8, }")
    assert kernel.ok(seen).result == "(true, true, true, Some(4))"
    kernel.ok("#[derive(Debug)] struct P { x: u64, y: [u64; 8] }")
    assert kernel.ok(seen).result == "(false, false, true, None)"
    assert kernel.ok("other.0").result == "5"
    kernel.ok("let p = P { x: 1, y: [7; 8] }; let any: Box<dyn Any> = Box::new(P { x: 2, y: [9; 8] });")
    assert kernel.ok("(p.y[7], any.downcast_ref::<P>().map(|p| p.y[7]))").result == "(7, Some(9))"
    kernel.ok("#[derive(Debug)] struct P(u8, pub u8);")
    assert kernel.ok("(P(1, 2).0, any.is::<P>())").result == "(1, false)"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("struct P { x: i23 }", "cannot find type `i23` in this scope (line 1, column 15)"),
        ("trait P { fn f() -> u8 { \"\" } }", "mismatched types (line 1, column 26)"),
    ],
)
def test_error_in_a_type_that_is_defined_anew_has_its_place(start, cell, error):
    kernel = start()
    kernel.ok("struct P { x: u8 }")
    assert error in kernel.fails(cell).error


def test_type_that_is_defined_anew_is_used_as_before(start):
    kernel = start()
    kernel.ok("#[derive(Debug, Clone, Default)] struct P { x: u8 }\nenum E { A }\nunion U { x: u8 }\ntrait T { fn go(&self) -> u8; }")
    kernel.ok(
        "#[derive(Debug, Clone, Default, PartialEq)] struct P { x: u16, next: Option<Box<P>> }\n#[derive(Debug)] enum E { A, B(P), C { p: P } }\n"
        "union U { x: u8, y: u16 }\npub trait T { const N: u16; type P; fn go(&self) -> u16 { self.own() + Self::N } fn own(&self) -> u16; }"
    )
    kernel.ok("impl P { fn new(x: u16) -> Self { Self { x, ..Default::default() } } }\nimpl T for P { const N: u16 = 1; type P = P; fn own(&self) -> u16 { self.x } }")
    kernel.ok("mod m { use super::P; pub fn x(p: &P) -> u16 { p.x } pub fn y(p: &crate::P) -> u16 { super::P::clone(p).x } }")
    kernel.ok("let p = P::new(3); let e = [E::A, E::B(p.clone()), E::C { p: p.clone() }];")
    kernel.ok("use E::*;\nlet P { x, .. } = p.clone(); let u = U { y: 5 };")
    assert kernel.ok("(m::x(&p), m::y(&p), p.go(), x, unsafe { u.y }, matches!(e[1], B(_)), p == P::new(3))").result == "(3, 3, 4, 3, 5, true, true)"
    assert kernel.ok("p").result.startswith("P { x: 3")


def test_items_of_one_cell_with_one_name_do_not_replace_each_other(start):
    kernel = start()
    kernel.ok("#[cfg(unix)]\nfn system() -> u8 { 1 }\n#[cfg(not(unix))]\nfn system() -> u8 { 2 }\n")
    kernel.ok("macro_rules! twice { ($x:expr) => { 2 * $x } }\nfn twice(x: u8) -> u8 { x + x }\nmod shape { pub struct S; }\nfn shape() -> shape::S { shape::S }")
    assert kernel.ok("let s = shape(); (system(), twice!(3), twice(4))").result == "(1, 6, 8)"
    assert "defined multiple times" in kernel.fails("fn f() {}\nfn f() {}").error
    kernel.ok("fn system() -> u8 { 3 }")
    assert kernel.ok("system()").result == "3"
