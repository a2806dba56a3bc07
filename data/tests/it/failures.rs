//! Tests of errors: they name the verb and the element, and end the pass.

use super::{all, error, numbers, rows};
use candle_core::{Device, Tensor};
use ferrotune_data::Dataset;

#[test]
fn errors_and_panics_name_the_verb_and_the_element() {
    for parallelism in [1, 3] {
        let failing = numbers(9).map(parallelism, |number| match number {
            4 => Err("no image".into()),
            number => Ok(number),
        });
        assert_eq!(error(failing.iter()).to_string(), "element 4 of map: no image");
        let panicking = numbers(9).map(parallelism, |number| {
            assert!(number != 5, "five");
            Ok(number)
        });
        assert_eq!(error(panicking.iter()).to_string(), "element 5 of map: panicked: five");
        assert_eq!(panicking.iter().take_while(Result::is_ok).count(), 5, "all elements before it come");
        assert_eq!(error(panicking.prefetch(2).batch(2, false).iter()).to_string(), "element 5 of map: panicked: five");
    }
    let failing = numbers(3).filter(|_| Err("broken".into()));
    assert_eq!(error(failing.iter()).to_string(), "element 0 of filter: broken");
    let failing = numbers(3).interleave(2, 1, |_| -> Result<Dataset<u32>, _> { Err("gone".into()) });
    assert_eq!(error(failing.iter()).to_string(), "element 0 of interleave: gone");
    let items = vec![1, 2].into_iter().inspect(|number: &u32| assert!(*number != 2, "two"));
    for dataset in [Dataset::from_iter(items.clone()), Dataset::from_iter(items).prefetch(1)] {
        assert_eq!(error(dataset.iter()).to_string(), "element 1 of from_iter: panicked: two");
    }
}

#[test]
fn the_pass_after_a_failed_one_begins_at_its_start() {
    let mut iter = numbers(3).map(1, |number| if number == 1 { Err("odd".into()) } else { Ok(number) }).epoch(0);
    for epoch in 0..2 {
        assert_eq!(iter.position().epoch, epoch);
        assert_eq!(iter.next().unwrap().unwrap(), 0);
        assert!(iter.next().unwrap().is_err());
        assert_eq!(iter.position().element, 1, "the failed element is tried again after a restore");
        assert!(iter.next().is_none());
    }
}

#[test]
fn arguments_that_cannot_be_are_the_first_elements_error() {
    let expected = "Dataset::batch: 0 is too few; give at least 1";
    assert_eq!(error(numbers(3).batch(0, false).iter()).to_string(), expected);
    assert_eq!(error(rows(3).batch(0, false).iter()).to_string(), expected);
    assert!(error(rows(3).padded_batch(0, false).iter()).to_string().starts_with("Dataset::padded_batch: 0"));
    assert!(error(numbers(3).map(0, Ok).iter()).to_string().starts_with("Dataset::map: 0"));
    assert!(error(numbers(3).prefetch(0).iter()).to_string().starts_with("Dataset::prefetch: 0"));
    assert!(error(numbers(3).shuffle(0, 1).iter()).to_string().starts_with("Dataset::shuffle: the buffer"));
    let expected = "Dataset::shard: shard 3 of 3 does not exist; the first one is shard 0";
    assert_eq!(error(numbers(3).shard(3, 3).iter()).to_string(), expected);
    assert_eq!(numbers(3).shard(0, 0).len(), Some(3));
    assert!(error(numbers(3).shard(0, 0).iter()).to_string().starts_with("Dataset::shard: shard 0 of 0"));
    for (cycle, block) in [(0, 1), (1, 0)] {
        let dataset = numbers(3).interleave(cycle, block, |_| Ok(numbers(1)));
        assert!(error(dataset.iter()).to_string().starts_with("Dataset::interleave: 0"));
    }
}

#[test]
fn tensors_need_equally_many_rows() {
    let [four, five] = [4, 5].map(|rows| Tensor::zeros(rows, candle_core::DType::F32, &Device::Cpu).unwrap());
    let message = Dataset::from_tensors((four, five.clone())).unwrap_err().to_string();
    assert_eq!(message, "Dataset::from_tensors: tensor 0 has 4 rows and tensor 1 has 5; they need equally many");
    let scalar = five.sum_all().unwrap();
    let message = Dataset::from_tensors(scalar).unwrap_err().to_string();
    assert_eq!(message, "Dataset::from_tensors: tensor 0 has no dimensions, and so no rows");
}

#[test]
fn a_split_needs_rows_and_fractions_of_a_whole() {
    for fractions in [[0.6, 0.6], [-0.1, 0.5], [f64::NAN, 0.5]] {
        let message = rows(10).split(fractions, 1).unwrap_err().to_string();
        assert!(message.starts_with("Dataset::split: the fractions"), "{message}");
    }
    let message = rows(10).batch(2, false).split([0.5], 1).unwrap_err().to_string();
    assert_eq!(
        message,
        "Dataset::split: only rows of tensors and images can be split; split before map and batch, and read a table with read"
    );
    assert!(rows(10).repeat_forever().split([0.5], 1).is_err());
}

#[test]
fn an_empty_dataset_has_no_elements_however_often_it_is_repeated() {
    assert!(all(rows(0).repeat_forever().batch(2, false).iter()).is_empty());
    assert!(all(numbers(5).filter(|_| Ok(false)).repeat_forever().prefetch(1).iter()).is_empty());
}

#[test]
fn the_error_of_a_batch_passes_through_candles_result() {
    fn total(dataset: &Dataset<u32>) -> candle_core::Result<u32> {
        dataset.iter().try_fold(0, |total, number| Ok(total + number?))
    }
    assert_eq!(total(&numbers(4)).unwrap(), 6);
    let failing = numbers(3).map(1, |_| -> Result<u32, _> { Err("no image".into()) });
    assert!(total(&failing).unwrap_err().to_string().starts_with("element 0 of map: no image"));
}
