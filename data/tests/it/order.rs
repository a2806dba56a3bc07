//! Tests of the elements and their order, which are the same for rows of tensors and for elements that are made.

use super::{all, numbers, rows, values};
use ferrotune_data::Dataset;

#[test]
fn verbs_choose_what_those_of_iterators_choose() {
    assert_eq!(values(rows(7).take(3).iter()), [0, 1, 2]);
    assert_eq!(values(rows(7).skip(5).iter()), [5, 6]);
    assert_eq!(values(rows(7).shard(1, 3).iter()), [1, 4]);
    assert_eq!(values(rows(3).repeat(2).iter()), [0, 1, 2, 0, 1, 2]);
    assert_eq!(all(numbers(3).repeat_forever().take(7).iter()), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(all(numbers(2).concat(&numbers(3)).iter()), [0, 1, 0, 1, 2]);
    assert_eq!(all(numbers(2).zip(&numbers(3).skip(1)).iter()), [(0, 1), (1, 2)]);
    assert_eq!(all(numbers(6).filter(|number| Ok(number % 3 == 0)).iter()), [0, 3]);
    assert_eq!(all(numbers(3).map(1, |number| Ok(number * 10)).iter()), [0, 10, 20]);
}

#[test]
fn interleave_takes_blocks_in_turn_and_opens_the_next_where_one_ends() {
    let tens = numbers(3).interleave(2, 2, |ten| Ok(Dataset::from_iter(ten * 10..ten * 10 + 3 - ten)));
    assert_eq!(all(tens.iter()), [0, 1, 10, 11, 2, 20]);
}

#[test]
fn the_length_is_that_of_a_pass() {
    let datasets = [
        numbers(7),
        numbers(7).take(9),
        numbers(7).skip(9),
        numbers(7).shard(2, 3),
        numbers(7).shard(6, 7),
        numbers(7).repeat(3),
        numbers(7).concat(&numbers(2)),
        numbers(7).shuffle(3, 1),
        numbers(7).cache(),
        numbers(7).prefetch(2),
        numbers(0).repeat_forever(),
    ];
    for dataset in datasets {
        assert_eq!(dataset.len(), Some(all(dataset.iter()).len() as u64), "{dataset:?}");
    }
    for (size, drops_remainder) in [(3, false), (3, true), (7, false), (7, true), (9, false), (9, true)] {
        let batches = numbers(7).batch(size, drops_remainder);
        assert_eq!(batches.len(), Some(all(batches.iter()).len() as u64), "{size} {drops_remainder}");
    }
    assert_eq!(numbers(7).filter(|_| Ok(true)).len(), None);
    assert_eq!(numbers(7).repeat_forever().len(), None);
}

#[test]
fn a_shuffle_has_all_elements_in_an_order_that_seed_and_pass_decide() {
    let shuffled = rows(100).shuffle(100, 7);
    let [first, second] = [shuffled.iter(), shuffled.iter()].map(values);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    assert_ne!(first, sorted);
    assert_ne!(first, second, "each pass has an order of its own");
    assert_eq!(first, values(shuffled.epoch(0)));
    assert_eq!(second, values(shuffled.epoch(1)));
    assert_ne!(first, values(rows(100).shuffle(100, 8).iter()));
    assert_eq!(first, all(numbers(100).shuffle(100, 7).iter()), "rows and made elements have the same order");
}

#[test]
fn an_element_comes_at_most_one_buffer_early() {
    let order = values(rows(1000).shuffle(10, 3).iter());
    assert_ne!(order, (0..1000).collect::<Vec<_>>());
    assert!(order.iter().enumerate().all(|(place, number)| (*number as usize) < place + 10));
}

#[test]
fn a_buffer_as_large_as_the_dataset_makes_every_order_equally_likely() {
    let shuffled = rows(4).shuffle(4, 1);
    let mut counts = std::collections::BTreeMap::<Vec<u32>, u32>::new();
    for _ in 0..24_000 {
        *counts.entry(values(shuffled.iter())).or_default() += 1;
    }
    assert_eq!(counts.len(), 24);
    // Each count has the expected value 1000 and a standard deviation of 31.
    assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn a_repetition_is_shuffled_anew() {
    let twice = all(numbers(50).shuffle(50, 7).repeat(2).iter());
    assert_ne!(twice[..50], twice[50..]);
    assert_eq!(twice[..50], all(numbers(50).shuffle(50, 7).iter()), "the first one is as without repeat");
}

#[test]
fn every_iteration_of_a_dataset_is_a_new_pass_and_a_clone_counts_its_own() {
    let shuffled = numbers(20).shuffle(20, 7);
    let copy = shuffled.clone();
    let passes: Vec<Vec<u32>> = (0..3).map(|_| all((&shuffled).into_iter())).collect();
    assert_eq!(passes, (0..3).map(|_| all(copy.iter())).collect::<Vec<_>>());
    let mut iter = copy.epoch(0);
    let again: Vec<Vec<u32>> = (0..3).map(|_| iter.by_ref().map(Result::unwrap).collect()).collect();
    assert_eq!(passes, again, "after the end of a pass an iterator goes on with the next one");
}

#[test]
fn a_cache_makes_each_element_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let made = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&made);
    let cached = numbers(5).map(1, move |number| Ok(number + counter.fetch_add(1, Ordering::Relaxed))).cache();
    assert_eq!(all(cached.take(2).iter()), [0, 2], "a pass that does not come to the end keeps nothing");
    let whole = all(cached.iter());
    assert_eq!(made.load(Ordering::Relaxed), 7);
    assert_eq!(all(cached.iter()), whole);
    assert_eq!(all(cached.shuffle(5, 1).iter()).iter().sum::<u32>(), whole.iter().sum::<u32>());
    assert_eq!(made.load(Ordering::Relaxed), 7);
}

#[test]
fn parts_of_a_split_have_every_row_once() {
    let parts = rows(101).split([0.7, 0.2, 0.1], 7).unwrap();
    let lengths: Vec<_> = parts.iter().map(|part| part.len().unwrap()).collect();
    assert_eq!(lengths, [71, 20, 10]);
    let mut numbers: Vec<u32> = parts.iter().flat_map(|part| values(part.iter())).collect();
    assert_ne!(numbers, (0..101).collect::<Vec<_>>());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..101).collect::<Vec<_>>());
    let [again] = rows(101).split([0.7], 7).unwrap();
    assert_eq!(values(again.iter()), values(parts[0].iter()));
}

#[test]
fn what_is_shuffled_once_has_disjoint_parts_in_every_pass() {
    for dataset in [rows(50).map(1, |row| Ok(row.to_scalar::<u32>()?)), numbers(50)] {
        let shuffled = dataset.shuffle_once(50, 7);
        let (valid, train) = (shuffled.take(10), shuffled.skip(10));
        let held_out = all(valid.epoch(0));
        assert_ne!(held_out, (0..10).collect::<Vec<u32>>());
        for pass in [0, 1, 5] {
            assert_eq!(all(valid.epoch(pass)), held_out);
            assert!(all(train.epoch(pass)).iter().all(|number| !held_out.contains(number)));
        }
        assert_eq!(all(shuffled.repeat(2).take(60).skip(50).iter()), held_out, "a repetition has the same order");
    }
    assert_eq!(values(rows(50).shuffle_once(50, 7).epoch(3)), values(rows(50).shuffle(50, 7).epoch(0)));
    let error = rows(5).shuffle_once(0, 7).iter().find_map(Result::err).map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("Dataset::shuffle_once: the buffer needs at least one element"));
}

#[test]
fn a_loop_by_value_is_the_next_pass() {
    let dataset = rows(20).shuffle(20, 7);
    let expected = [0, 1].map(|pass| values(dataset.epoch(pass)));
    let mut passes = [Vec::new(), Vec::new()];
    for row in &dataset {
        passes[0].push(super::value(&row.unwrap()));
    }
    for row in dataset {
        passes[1].push(super::value(&row.unwrap()));
    }
    assert_eq!(passes, expected);
}
