//! Tests of the call tree, with samples whose functions are those of this test program.

use super::*;
use crate::samples::Node;
use std::hint::black_box;

#[inline(never)]
fn run_user_code_7() -> u64 {
    black_box(u64::from(std::process::id()))
}

#[inline(never)]
fn helper() -> u64 {
    black_box(u64::from(std::process::id()) + 1)
}

/// A thread's name, its stack of functions with the outermost first, and the CPU time of the innermost function.
type Called<'a> = (&'a str, &'a [fn() -> u64], u64);

/// Samples of threads that have called functions of this program.
fn samples(threads: &[Called<'_>]) -> Samples {
    let mut modules = crate::modules::Modules::default();
    modules.update();
    let mut tree = crate::samples::Tree::default();
    for (name, functions, own_us) in threads {
        let thread = Place::Thread { name: (*name).to_owned() };
        let code = functions.iter().map(|function| {
            let (module, address) = modules.find(*function as usize as u64).unwrap();
            Place::Code { module, address }
        });
        tree.add([thread].into_iter().chain(code), *own_us);
    }
    let nodes: Vec<Node> = tree.nodes;
    Samples { wall_us: 1_000_000, count: 3, modules: modules.paths, nodes, threads_missed: 0 }
}

fn flame(samples: &Samples) -> Flame {
    let mut flame = Flame::default();
    flame.add(samples, |_| None);
    flame
}

fn names(flame: &Flame) -> Vec<(String, u64)> {
    let short = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
    flame.boxes.iter().map(|call| (short(&call.name), call.total_us)).collect()
}

#[test]
fn what_runs_a_cell_is_cut_away() {
    let samples = samples(&[("exe", &[helper, run_user_code_7, helper], 700), ("ferrotune-3", &[helper], 300)]);
    let flame = flame(&samples);
    let expected =
        [("thread exe", 0), ("helper", 0), ("cell", 700), ("helper", 700), ("rayon's threads", 300), ("helper", 300)];
    assert_eq!(names(&flame), expected.map(|(name, time)| (name.to_owned(), time)));
    assert_eq!(flame.cpu_us(), 1000);
    let [(name, time)] = &flame.hottest_functions(5)[..] else { panic!("one function") };
    assert!(name.ends_with("::helper") && *time == 1000);
}

#[test]
fn threads_of_one_kind_are_one() {
    assert_eq!(
        ["ferrotune-12", "reader-4", "main"].map(thread),
        ["rayon's threads", "threads reader-…", "thread main"]
    );
}

#[test]
fn boxes_are_as_wide_as_their_share() {
    let samples = samples(&[("a<b", &[helper], 750), ("c", &[run_user_code_7], 250)]);
    let svg = flame(&samples).svg("a & b");
    assert!(svg.contains("width=\"750.0\"") && svg.contains("width=\"250.0\""), "{svg}");
    assert!(
        svg.contains("<title>a &amp; b</title>") && svg.contains("thread a&lt;b\n75.0 %, 0.8 ms of CPU time"),
        "{svg}"
    );
}

#[test]
fn samples_of_two_runs_add_up() {
    let once = samples(&[("exe", &[run_user_code_7, helper], 500)]);
    let mut flame = flame(&once);
    flame.add(&once, |_| None);
    assert_eq!(flame.cpu_us(), 1000);
    assert_eq!(names(&flame)[1..], [("cell".to_owned(), 1000), ("helper".to_owned(), 1000)]);
    assert_eq!((flame.samples, flame.wall_us), (6, 2_000_000));
}
