//! Tests of random numbers: they follow the seed, and depend on no thread.

use super::{all, numbers, rows, value, values};
use candle_core::{Device, Tensor};
use ferrotune_data::Dataset;
use ferrotune_state::{Pack, Result, Share as _, Shared, seed};
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sets the seed of the whole process, for one test at a time.
fn with_seed(seed: u64) -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    seed_all(seed);
    guard
}

/// Sets the seed as `ferrotune::seed` does, which also seeds devices.
fn seed_all(number: u64) {
    seed::give(number);
    Device::Cpu.set_seed(number).unwrap();
}

fn noise() -> Result<f32> {
    Ok(Tensor::rand(0f32, 1., (), &Device::Cpu)?.to_scalar()?)
}

#[test]
fn functions_draw_the_same_on_any_number_of_threads_and_after_a_resume() {
    let _one = with_seed(7);
    let noisy = |parallelism| numbers(60).map(parallelism, |number| Ok((number, noise()?))).prefetch(2);
    let alone = all(noisy(1).epoch(0));
    for parallelism in [2, 3, 8] {
        assert_eq!(all(noisy(parallelism).epoch(0)), alone);
    }
    let mut resumed = noisy(3).epoch(0);
    resumed.seek(ferrotune_data::Position { epoch: 0, element: 41 });
    assert_eq!(all(resumed), alone[41..]);
    assert_ne!(all(noisy(2).epoch(1)), alone, "each pass has its own numbers");
    seed_all(8);
    assert_ne!(all(noisy(2).epoch(0)), alone);
}

#[test]
fn functions_of_one_pipeline_draw_different_numbers() {
    let _one = with_seed(7);
    let twice = numbers(9).map(1, |_| noise()).map(1, |first| Ok((first, noise()?)));
    assert!(all(twice.iter()).iter().all(|(first, second)| first != second));
    let sides = numbers(9).map(1, |_| noise()).zip(&numbers(9).map(1, |_| noise()));
    assert!(all(sides.iter()).iter().all(|(left, right)| left != right));
    let parts = numbers(9).interleave(3, 1, |number| Ok(numbers(2 + number).map(1, |_| noise())));
    let mut parts = all(parts.iter());
    let count = parts.len();
    parts.sort_by(f32::total_cmp);
    parts.dedup();
    assert_eq!(parts.len(), count);
}

#[test]
fn what_functions_draw_changes_nothing_outside_of_them() {
    let _one = with_seed(7);
    let [first, second] = [noise().unwrap(), noise().unwrap()];
    seed_all(7);
    assert_eq!(noise().unwrap(), first);
    assert_eq!(all(numbers(5).map(1, |_| noise()).iter()).len(), 5);
    assert_eq!(noise().unwrap(), second);
}

#[test]
fn a_shuffle_without_a_seed_has_that_of_the_process() {
    let _one = with_seed(7);
    let order = || values(rows(50).shuffle(50, None).epoch(0));
    let part = || rows(50).split([0.5], None).map(|[half]| values(half.epoch(0))).unwrap();
    let (shuffled, half) = (order(), part());
    assert_eq!((order(), part()), (shuffled.clone(), half.clone()));
    assert_eq!(values(rows(50).shuffle(50, 7).epoch(0)), shuffled);
    seed_all(8);
    assert_ne!(order(), shuffled);
    assert_ne!(part(), half);
    // Two datasets with the same shuffle stay in step.
    let pairs = numbers(50).shuffle(50, None).zip(&rows(50).shuffle(50, None).map(2, |row| Ok(value(&row))));
    assert!(all(pairs.iter()).iter().all(|(left, right)| left == right));
}

#[test]
fn rows_travel_to_a_trial_and_what_is_made_does_not() {
    let tensors =
        (Tensor::arange(0u32, 40, &Device::Cpu).unwrap(), Tensor::rand(0f32, 1., (40, 3), &Device::Cpu).unwrap());
    let whole = Dataset::from_tensors(tensors).unwrap();
    let [part, _] = whole.split([0.7, 0.3], 7).unwrap();
    for dataset in
        [whole.clone(), whole.skip(3).shuffle(10, 7).repeat(2).shard(1, 3).take(20), part.shuffle(28, 7), part]
    {
        let mut pack = Pack::new();
        dataset.pack("train", &mut pack).unwrap();
        let file = std::fs::File::from(pack.into_memfd().unwrap());
        let shared = Shared::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()).unwrap();
        let other: Dataset<(Tensor, Tensor)> = Dataset::unpack("train", &shared).unwrap();
        assert_eq!(other.len(), dataset.len());
        let read = |dataset: &Dataset<(Tensor, Tensor)>| {
            let row = |(number, row): &(Tensor, Tensor)| (value(number), row.to_vec1::<f32>().unwrap());
            all(dataset.epoch(1)).iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(read(&other), read(&dataset));
    }
    let made = rows(4).map(1, Ok);
    let message = made.pack("train", &mut Pack::new()).unwrap_err().to_string();
    assert_eq!(
        message,
        "`train` cannot be shared: only rows of tensors and images travel to a trial; call map, batch and what follows in the objective, and read in place of stream"
    );
}

#[test]
fn a_later_seed_does_not_change_the_order_of_what_is_shuffled_once() {
    let _one = with_seed(7);
    let shuffled = rows(50).shuffle_once(50, None);
    let before = values(shuffled.iter());
    seed_all(8);
    assert_eq!(values(shuffled.iter()), before);
}
