//! Tests that sample the threads of this process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ferrotune_sampler::{Place, Sampler, Samples, Symbols};
use std::hint::black_box;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A lock that a test holds while it samples, because a process has at most one sampler.
static ONE: Mutex<()> = Mutex::new(());

const PERIOD: Duration = Duration::from_millis(10);

#[inline(never)]
fn heavy(time: Duration) {
    spin(time);
    black_box(());
}

#[inline(never)]
fn light(time: Duration) {
    spin(time);
    black_box(());
}

/// Spins for CPU time, so that a busy machine changes nothing.
#[inline(never)]
fn spin(time: Duration) {
    let used = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let begin = used();
    while used() - begin < time {
        black_box((0..1_000_000u32).fold(0u32, |sum, number| black_box(sum ^ number)));
    }
}

fn sampled(work: impl FnOnce()) -> Samples {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let sampler = Sampler::start(PERIOD).unwrap();
    work();
    sampler.finish().unwrap()
}

/// The functions on the way to a node, from the outermost one, and the name of its thread.
fn path(samples: &Samples, symbols: &Symbols, node: usize) -> (String, Vec<String>) {
    let mut functions = Vec::new();
    let mut at = Some(node);
    while let Some(node) = at.map(|at| &samples.nodes[at]) {
        match &node.place {
            Place::Thread { name } => return (name.clone(), functions.into_iter().rev().collect()),
            Place::Code { module, address } => {
                functions.extend(symbols.frames(*module, *address).iter().rev().map(|frame| frame.function.clone()));
            }
            Place::Unknown => functions.push("?".to_owned()),
        }
        at = node.parent.map(|parent| parent as usize);
    }
    panic!("node {node} has no thread");
}

/// The CPU time in milliseconds of the stacks that contain a function.
fn time_in(samples: &Samples, function: &str) -> u64 {
    let symbols = Symbols::of(samples);
    let within = (0..samples.nodes.len())
        .filter(|node| path(samples, &symbols, *node).1.iter().any(|name| name.ends_with(function)));
    within.map(|node| samples.nodes[node].own_us).sum::<u64>() / 1000
}

#[test]
fn time_is_counted_where_it_is_used() {
    let samples = sampled(|| {
        // QEMU copies nothing of a stack that is shorter than the 64 KiB of a copy.
        let room = std::hint::black_box([0_u8; 1 << 17]);
        heavy(Duration::from_millis(600));
        light(Duration::from_millis(200));
        std::hint::black_box(&room);
    });
    let (heavy, light) = (time_in(&samples, "::heavy"), time_in(&samples, "::light"));
    assert!((540..=660).contains(&heavy) && (140..=260).contains(&light), "{heavy} ms and {light} ms of 600 and 200");
    assert!(samples.count >= 40, "{} samples of 800 ms", samples.count);
}

#[test]
fn stacks_reach_the_beginning_of_their_thread() {
    let samples = sampled(|| {
        let worker = thread::Builder::new().name("worker".to_owned());
        worker.spawn(|| heavy(Duration::from_millis(400))).unwrap().join().unwrap();
    });
    let symbols = Symbols::of(&samples);
    let mut whole = 0;
    for node in 0..samples.nodes.len() {
        let own_us = samples.nodes[node].own_us;
        let (thread, functions) = path(&samples, &symbols, node);
        if thread == "worker" && own_us > 0 {
            let at = functions.iter().position(|name| name.ends_with("::heavy"));
            let begins = functions.iter().position(|name| name.contains("__rust_begin_short_backtrace"));
            if at.is_some() && begins < at && !functions.contains(&"?".to_owned()) {
                whole += own_us;
            }
        }
    }
    assert!(whole > 300_000, "{whole} us of 400,000 have their whole stack");
}

#[test]
fn a_thread_that_waits_is_neither_sampled_nor_interrupted() {
    let samples = sampled(|| {
        let begin = Instant::now();
        let slept = thread::spawn(|| {
            // poll(2) is never started again after a signal's handler.
            rustix::event::poll(&mut [], Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 300_000_000 }))
        });
        heavy(Duration::from_millis(300));
        assert_eq!(slept.join().unwrap(), Ok(0));
        assert!(begin.elapsed() >= Duration::from_millis(300));
    });
    assert!(time_in(&samples, "poll") < 20);
}

#[test]
fn functions_of_the_standard_library_have_names() {
    let samples = sampled(|| {
        let begin = Instant::now();
        let mut numbers: Vec<u64> = Vec::new();
        while begin.elapsed() < Duration::from_millis(300) {
            numbers = (0..200_000u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            numbers.sort();
        }
        black_box(&numbers);
    });
    let symbols = Symbols::of(&samples);
    let names: Vec<String> = (0..samples.nodes.len()).flat_map(|node| path(&samples, &symbols, node).1).collect();
    assert!(names.iter().any(|name| name.contains("sort::")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("_ZN") || name.starts_with("_R")), "{names:?}");
}

#[test]
fn many_short_runs_leave_nothing_behind() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    sampled(|| ());
    let before = descriptors();
    for _ in 0..50 {
        sampled(|| heavy(Duration::from_millis(12)));
    }
    assert!(descriptors() <= before + 4, "{before} descriptors have become {}", descriptors());
    // A late signal must not end the process.
    heavy(Duration::from_millis(50));
}

/// The CPU time of this process, in the system's ticks of 10 ms.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A fixed amount of work, on two threads.
fn fixed_work() {
    let work = || black_box((0..5_000_000_000u64).fold(1u64, |state, number| state.rotate_left(7) ^ black_box(number)));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
}

#[test]
#[ignore = "a measurement of some seconds: cargo test --release -p ferrotune-sampler -- --ignored --nocapture"]
fn sampling_costs_at_most_two_percent() {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..6 {
        let before = ticks();
        if round % 2 == 0 {
            fixed_work();
        } else {
            sampled(fixed_work);
        }
        times[round % 2].push(ticks() - before);
    }
    // Other programs can only add time, so the least time is compared.
    let [without, with] = times.map(|times| times.into_iter().min().unwrap() as f64 / 100.0);
    eprintln!("{without:.2} s of CPU time without the sampler, {with:.2} s with it");
    assert!(with <= 1.02 * without, "{with} s with the sampler, {without} s without");
}
