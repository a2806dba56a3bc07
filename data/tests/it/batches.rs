//! Tests of batches.

use super::{all, error, numbers, rows};
use candle_core::{Device, Tensor};
use ferrotune_data::Dataset;

fn lists(batches: &Dataset<Tensor>) -> Vec<Vec<u32>> {
    all(batches.iter()).iter().map(|batch| batch.to_vec1().unwrap()).collect()
}

#[test]
fn the_last_batch_is_short_or_dropped() {
    for dataset in [rows(7), rows(7).map(1, Ok)] {
        assert_eq!(lists(&dataset.batch(3, false)), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
        assert_eq!(lists(&dataset.batch(3, true)), [[0, 1, 2], [3, 4, 5]]);
    }
    assert_eq!(lists(&numbers(3).batch(usize::MAX, false)), [[0, 1, 2]]);
}

#[test]
fn batches_of_shuffled_rows_have_those_rows() {
    let inputs = Tensor::arange(0f32, 20., &Device::Cpu).unwrap().reshape((10, 2)).unwrap();
    let labels = Tensor::arange(0u32, 10, &Device::Cpu).unwrap();
    let dataset = Dataset::from_tensors((inputs, labels)).unwrap().shuffle(10, 7);
    let gathered = all(dataset.batch(4, false).epoch(0));
    let stacked = all(dataset.map(1, Ok).batch(4, false).epoch(0));
    let lists = |batches: &[(Tensor, Tensor)]| {
        let list = |(inputs, labels): &(Tensor, Tensor)| (inputs.to_vec2::<f32>().unwrap(), labels.to_vec1().unwrap());
        batches.iter().map(list).collect::<Vec<(Vec<Vec<f32>>, Vec<u32>)>>()
    };
    assert_eq!(lists(&gathered), lists(&stacked));
    let (inputs, labels) = &lists(&gathered)[0];
    assert!(inputs.iter().zip(labels).all(|(input, label)| *input == [2. * *label as f32, 2. * *label as f32 + 1.]));
}

#[test]
fn numbers_strings_and_tuples_have_batches() {
    let dataset = Dataset::from_iter(vec![(1u8, "one".to_owned(), 1.0f64), (2, "two".to_owned(), 2.0)]);
    let (bytes, words, numbers) = all(dataset.batch(2, true).iter()).remove(0);
    assert_eq!(bytes.to_vec1::<u8>().unwrap(), [1, 2]);
    assert_eq!(words, ["one", "two"]);
    assert_eq!(numbers.to_vec1::<f64>().unwrap(), [1., 2.]);
}

#[test]
fn padding_fills_up_to_the_greatest_size_of_the_batch() {
    let ones = |sizes: (usize, usize)| Tensor::ones(sizes, candle_core::DType::U32, &Device::Cpu).unwrap();
    let dataset = Dataset::from_iter(vec![ones((1, 3)), ones((2, 1)), ones((1, 1))]);
    let batches = all(dataset.padded_batch(2, false).iter());
    assert_eq!(batches[0].to_vec3::<u32>().unwrap(), [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0]]]);
    assert_eq!(batches[1].dims(), [1, 1, 1]);
    let message = error(dataset.batch(2, false).iter()).to_string();
    assert!(message.starts_with("batch 0: shape mismatch"), "{message}");
    assert!(message.contains("padded_batch"), "{message}");
}

#[test]
fn rows_in_their_order_are_not_copied() {
    let inputs = Tensor::zeros((10, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
    let batch = all(Dataset::from_tensors(inputs.clone()).unwrap().batch(4, false).iter()).remove(1);
    let (storage, layout) = batch.storage_and_layout();
    assert_eq!(layout.start_offset(), 8);
    assert!(std::ptr::eq(&*storage, &*inputs.storage_and_layout().0));
}

#[test]
fn a_batch_of_variables_has_no_history() {
    let variable = candle_core::Var::zeros((4, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
    let batches = Dataset::from_tensors(variable.as_tensor().clone()).unwrap().shuffle(4, 1).batch(4, true);
    assert!(!all(batches.iter())[0].track_op());
}
