//! Tests of positions: a position leads to the same elements, in another process too.

use super::{all, numbers, rows, value};
use ferrotune_data::{Dataset, Iter, Position};
use ferrotune_state::{Pack, Restore, Save, Shared};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pipelines of every verb, which number their elements.
fn pipelines() -> Vec<(&'static str, Dataset<u32>)> {
    let number = |dataset: Dataset<candle_core::Tensor>| dataset.map(1, |row| Ok(value(&row)));
    let sum =
        |dataset: Dataset<candle_core::Tensor>| dataset.map(1, |batch| Ok(batch.sum_all()?.to_scalar::<u32>()?));
    vec![
        ("rows", number(rows(23))),
        ("shuffled rows", number(rows(23).shuffle(23, 7))),
        ("a small buffer", numbers(23).shuffle(5, 7)),
        ("repeated", numbers(7).shuffle(7, 7).repeat(3)),
        ("without end", numbers(7).shuffle(7, 7).repeat_forever().take(40)),
        ("shard 0 of 3", numbers(23).shard(0, 3)),
        ("shard 2 of 3", numbers(23).shard(2, 3).skip(1)),
        ("shard of one", numbers(23).shard(0, 1)),
        ("parallel", numbers(23).map(3, |number| Ok(number * number))),
        ("prefetched", numbers(23).map(3, |number| Ok(number + 1)).prefetch(2)),
        ("filtered", numbers(50).filter(|number| Ok(number % 3 != 1))),
        ("cached", numbers(23).cache().shuffle(4, 7)),
        ("concatenated", numbers(9).concat(&numbers(14).shuffle(14, 7))),
        ("zipped", numbers(23).zip(&numbers(30).shuffle(30, 7)).map(1, |(a, b)| Ok(100 * a + b))),
        ("interleaved", numbers(6).interleave(2, 2, |ten| Ok(Dataset::from_iter(ten * 10..ten * 10 + ten)))),
        ("batches", sum(rows(23).shuffle(23, 7).batch(4, false))),
        ("whole batches", sum(rows(23).shuffle(23, 7).batch(4, true).prefetch(1))),
        ("batches of made elements", sum(numbers(23).shuffle(6, 7).batch(4, false))),
        ("a part", number(rows(40).split([0.5], 7).unwrap()[0].shuffle(20, 7))),
    ]
}

fn restored(saved: &Iter<u32>, dataset: &Dataset<u32>) -> Iter<u32> {
    let mut pack = Pack::new();
    saved.save("", &mut pack).unwrap();
    let file = File::from(pack.into_memfd().unwrap());
    let shared = Shared::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()).unwrap();
    let mut iter = dataset.epoch(0);
    (&mut iter).restore("", &shared).unwrap();
    iter
}

#[test]
fn a_restored_position_continues_with_the_next_element() {
    for (name, dataset) in pipelines() {
        let pass = all(dataset.epoch(1));
        for taken in 0..=pass.len() {
            let mut iter = dataset.epoch(1);
            assert_eq!(iter.by_ref().take(taken).map(Result::unwrap).collect::<Vec<_>>(), pass[..taken], "{name}");
            assert_eq!(iter.position(), Position { epoch: 1, element: taken as u64 });
            assert_eq!(all(restored(&iter, &dataset)), pass[taken..], "{name} after {taken}");
        }
    }
}

#[test]
fn a_position_after_the_end_of_a_pass_is_the_start_of_the_next_one() {
    for (name, dataset) in pipelines() {
        let mut iter = dataset.epoch(3);
        assert!(iter.by_ref().all(|element| element.is_ok()));
        assert_eq!(iter.position(), Position { epoch: 4, element: 0 });
        assert_eq!(all(restored(&iter, &dataset)), all(dataset.epoch(4)), "{name}");
    }
}

#[test]
fn what_is_left_out_is_not_computed() {
    let computed = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&computed);
    let count = move |number: u32| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    };
    let mut iter = numbers(1000).shuffle(1000, 7).map(2, count).batch(10, false).prefetch(1).epoch(0);
    iter.seek(Position { epoch: 0, element: 99 });
    assert_eq!(all(iter).len(), 1);
    assert_eq!(computed.load(Ordering::Relaxed), 10);
}
