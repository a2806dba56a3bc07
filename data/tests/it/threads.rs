//! Tests of threads: they do not change the order, they run at the same time, and they end.

use super::{all, numbers};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

#[test]
fn the_same_seed_gives_the_same_batches_on_any_number_of_threads() {
    let batches = |parallelism| {
        let shuffled = numbers(200).shuffle(64, 7);
        let mapped = shuffled.map(parallelism, |number| {
            // The later elements are ready first.
            std::thread::sleep(Duration::from_micros(u64::from(7 - number % 8) * 100));
            Ok(number * 3)
        });
        let batches = all(mapped.batch(7, false).prefetch(3).epoch(2));
        batches.iter().map(|batch| batch.to_vec1::<u32>().unwrap()).collect::<Vec<_>>()
    };
    let alone = batches(1);
    for parallelism in [2, 3, 8] {
        assert_eq!(batches(parallelism), alone);
    }
}

#[test]
fn functions_run_at_the_same_time() {
    // The barrier opens only if three threads wait at it.
    let barrier = Arc::new(Barrier::new(3));
    let mapped = numbers(3).map(3, move |number| {
        barrier.wait();
        Ok(number)
    });
    assert_eq!(all(mapped.iter()), [0, 1, 2]);
}

#[test]
fn threads_end_when_the_iterator_is_dropped_and_start_with_the_first_element() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let made = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&made);
    let slow = numbers(1_000_000).map(4, move |number| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        Ok(number)
    });
    let dropped = slow.prefetch(3);
    let mut iter = dropped.iter();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(made.load(Ordering::Relaxed), 0, "nothing has been asked for");
    assert_eq!(iter.next().unwrap().unwrap(), 0);
    let started = Instant::now();
    while made.load(Ordering::Relaxed) < 4 {
        assert!(started.elapsed() < Duration::from_secs(60), "nobody makes elements before they are asked for");
        std::thread::yield_now();
    }
    let started = Instant::now();
    drop(iter);
    assert!(started.elapsed() < Duration::from_secs(5), "no element beyond the prefetched ones is waited for");
    let at_the_end = made.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(made.load(Ordering::Relaxed), at_the_end, "the threads go on");
}

#[test]
fn no_more_than_twice_as_many_elements_as_threads_are_made_ahead() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let made = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&made);
    let mut iter = numbers(1000)
        .map(2, move |number| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(number)
        })
        .iter();
    assert_eq!(iter.next().unwrap().unwrap(), 0);
    std::thread::sleep(Duration::from_millis(50));
    let ahead = made.load(Ordering::Relaxed);
    assert!((1..=1 + 2 * 2).contains(&ahead), "{ahead}");
}

#[test]
fn prefetch_hides_the_pipeline_behind_the_step() {
    let input = numbers(20).map(1, |number| {
        std::thread::sleep(Duration::from_millis(9));
        Ok(number)
    });
    let started = Instant::now();
    for element in &input.prefetch(2) {
        element.unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let elapsed = started.elapsed();
    // In one thread the work would take 380 ms.
    assert!(elapsed < Duration::from_millis(300), "{elapsed:?}");
}
