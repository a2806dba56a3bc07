//! Tests of changes of a notebook's definitions that drop a variable, and of changes that do not.

use super::Definitions;
use crate::compile::dependencies::Extern;

/// The definitions before, the variable's type, and the definitions after.
type Case = (&'static str, &'static str, &'static str);

fn fingerprint(source: &str, type_name: &str) -> Option<u64> {
    Definitions::parse(source, &[]).unwrap().fingerprint(type_name).unwrap()
}

fn is_kept((before, type_name, after): &Case) -> bool {
    let (before, after) = (fingerprint(before, type_name), fingerprint(after, type_name));
    assert!(before.is_some(), "nothing was found");
    before == after
}

#[test]
fn what_a_layout_or_a_table_of_methods_rests_on_costs_the_variable() {
    let cases: [Case; 36] = [
        ("struct P { x: u32 }", "P", "struct P { x: f32 }"),
        ("struct P(u8, u16);", "P", "struct P(u16, u8);"),
        ("struct P { x: u32 }", "Vec<P>", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "Option<Box<P>>", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "std::sync::Arc<std::sync::Mutex<P>>", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "(u8, P)", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "[P; 3]", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "fn(&P) -> u8", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "Box<dyn Fn(u64) -> P>", "struct P { x: f32 }"),
        ("struct P { x: u32 }", "shapes::P", "struct P { x: f32 }"),
        ("struct Q(u8); struct P { q: Vec<Q> }", "P", "struct Q(u16); struct P { q: Vec<Q> }"),
        ("type Q = u8; struct P(Q);", "P", "type Q = i8; struct P(Q);"),
        ("const N: usize = 3; struct P([u8; N]);", "P", "const N: usize = 4; struct P([u8; N]);"),
        ("const fn n() -> usize { 3 } struct P([u8; n()]);", "P", "const fn n() -> usize { 4 } struct P([u8; n()]);"),
        (
            "struct S; impl S { const N: usize = 3; } struct P([u8; S::N]);",
            "P",
            "struct S; impl S { const N: usize = 4; } struct P([u8; S::N]);",
        ),
        (
            "struct S; impl S { const fn n<const K: usize>() -> usize { K } } struct P([u8; S::n::<3>()]);",
            "P",
            "struct S; impl S { const fn n<const K: usize>() -> usize { 2 * K } } struct P([u8; S::n::<3>()]);",
        ),
        ("enum P { A(u8), B }", "P", "enum P { A(i8), B }"),
        ("enum P { A = 1, B = 2 }", "P", "enum P { A = 1, B = 3 }"),
        ("union P { a: u32, b: f32 }", "P", "union P { a: u32, b: i32 }"),
        ("struct P(u8, u32);", "P", "#[repr(C)] struct P(u8, u32);"),
        ("struct P(#[cfg(unix)] u8);", "P", "struct P(#[cfg(windows)] u8);"),
        ("use bits::field; #[field(u32)] struct P;", "P", "use bits::field; #[field(u64)] struct P;"),
        ("struct P((u8,));", "P", "struct P((u16,));"),
        ("trait T { fn a(&self); fn b(&self); }", "Box<dyn T>", "trait T { fn b(&self); fn a(&self); }"),
        ("trait T { fn a(&self, x: Foo<{ 3 }>); }", "Box<dyn T>", "trait T { fn a(&self, x: Foo<{ 4 }>); }"),
        ("trait S { fn a(&self); } trait T: S {}", "Box<dyn T>", "trait S { fn a(&self); fn b(&self); } trait T: S {}"),
        ("struct Q(u8); trait T { fn a(&self) -> Q; }", "Box<dyn T>", "struct Q(u16); trait T { fn a(&self) -> Q; }"),
        (
            "struct P; impl Iterator for P { type Item = u8; }",
            "std::iter::Peekable<P>",
            "struct P; impl Iterator for P { type Item = u16; }",
        ),
        (
            "struct V; impl Mul<V> for f32 { type Output = u8; }",
            "Product<f32, V>",
            "struct V; impl Mul<V> for f32 { type Output = u16; }",
        ),
        (
            "mod m { pub struct P; } use m::P as Q; impl Iterator for Q { type Item = u8; }",
            "Peekable<Q>",
            "mod m { pub struct P; } use m::P as Q; impl Iterator for Q { type Item = u16; }",
        ),
        (
            "trait T { type A; } impl<X> T for X { type A = u8; } struct P<X: T>(X::A);",
            "P<u8>",
            "trait T { type A; } impl<X> T for X { type A = u16; } struct P<X: T>(X::A);",
        ),
        ("mod m { pub struct P(u8); }", "m::P", "mod m { pub struct P(u16); }"),
        ("mod m { pub struct P(u8); } use m::P as Q;", "Q", "mod m { pub struct P(u16); } use m::P as Q;"),
        ("use a::Q; struct P(Q);", "P", "use b::Q; struct P(Q);"),
        ("macro_rules! t { () => { u8 } } struct P(t!());", "P", "macro_rules! t { () => { u16 } } struct P(t!());"),
        ("mod m { make! { P, u8 } }", "m::P", "mod m { make! { P, u16 } }"),
    ];
    for case in &cases {
        assert!(!is_kept(case), "{case:?}");
    }
}

#[test]
fn what_changes_no_layout_costs_nothing() {
    let cases: [Case; 12] = [
        ("struct P { x: u32 }", "P", "struct P {\n    x: u32,\n}"),
        (
            "struct P { x: u32 }",
            "P",
            "/// A point.\n#[derive(Clone, Debug)] pub struct P { /** Left. */ pub(crate) x: u32 }",
        ),
        ("struct P(pub (u8, u8));", "P", "struct P((u8, u8,));"),
        ("#[derive(S)] struct P(u8);", "P", "#[derive(S)] #[serde(default)] struct P(#[serde(skip)] u8);"),
        ("struct P(u8); impl P { fn a(&self) {} }", "P", "struct P(u8); impl P { fn b(&self) {} const fn c() {} }"),
        ("struct P { x: u8 } impl P { const fn x() {} }", "P", "struct P { x: u8 } impl P { const fn x() { 1; } }"),
        ("struct P(u8);", "P", "struct P(u8); impl Drop for P { fn drop(&mut self) {} }"),
        ("struct P(u8); struct Q(u8);", "P", "struct P(u8); struct Q(u16);"),
        ("struct P(Tensor); use c::Tensor;", "P", "use c::{Device, Tensor}; use d::*; struct P(Tensor);"),
        ("trait T { fn a(&self) { b(); } }", "Box<dyn T>", "trait T { fn a(&self) { let c = 1; } }"),
        (
            "trait T { fn a(&self); } struct P(u8);",
            "Box<dyn T>",
            "trait T { fn a(&self); } struct P(u16); impl T for P {}",
        ),
        ("const N: usize = 3; static S: u8 = 1; struct P(u8);", "P", "const N: usize = 4; struct P(u8);"),
    ];
    for case in &cases {
        assert!(is_kept(case), "{case:?}");
    }
}

#[test]
fn a_type_without_the_notebooks_own_definitions_has_no_fingerprint() {
    let source = "use candle_core::Tensor; use std::collections::HashMap; struct P(u8); mod m { make! { u8, Vec } }
        impl Mul<P> for f32 { type Output = P; }";
    for type_name in ["Tensor", "candle_core::Tensor", "Vec<f32>", "HashMap<String, [u8; 4]>", "Box<dyn Fn(u8) -> u8>"]
    {
        assert_eq!(fingerprint(source, type_name), None, "{type_name}");
    }
}

#[test]
fn a_crate_that_was_built_anew_costs_what_its_types_are_part_of() {
    let cases = [
        ("", "mine::P", true),
        ("use mine::P;", "P", true),
        ("use mine::*;", "Vec<P>", true),
        ("use mine::P; struct Q(P);", "Q", true),
        ("use mine::*;", "Vec<f32>", false),
        ("struct Q(u8);", "Q", false),
    ];
    let prints = |build: &str| {
        let mine = [Extern {
            name: "mine".to_owned(),
            file: "libmine.rlib".into(),
            build: build.to_owned(),
            runs_futures: false,
        }];
        cases.map(|(source, type_name, _)| Definitions::parse(source, &mine).unwrap().fingerprint(type_name).unwrap())
    };
    for ((case, before), after) in cases.iter().zip(prints("first")).zip(prints("second")) {
        assert_eq!(before != after, case.2, "{case:?}");
    }
}
