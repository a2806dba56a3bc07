//! Tests of the data sets in the crate, and of encodings for a model.

use candle_core::{DType, Device, Tensor};
use ferrotune_data::{Dataset, StandardScaler, digits, iris, one_hot, wine};

fn shape(dataset: &Dataset<(Tensor, Tensor)>) -> (Vec<usize>, Vec<u32>) {
    let (features, classes) = dataset.to_tensors().unwrap();
    assert_eq!((features.dtype(), classes.dtype()), (DType::F32, DType::U32));
    let classes: Vec<u32> = classes.to_vec1().unwrap();
    let count = |class| classes.iter().filter(|other| **other == class).count() as u32;
    let known = classes.iter().max().unwrap() + 1;
    (features.dims().to_vec(), (0..known).map(count).collect())
}

#[test]
fn the_data_sets_are_whole() {
    let digits = digits().unwrap();
    assert_eq!(shape(&digits), (vec![1797, 64], vec![178, 182, 177, 183, 181, 182, 181, 179, 174, 180]));
    let images = digits.to_tensors().unwrap().0;
    assert_eq!(images.max_all().unwrap().to_scalar::<f32>().unwrap(), 1.);
    assert_eq!(images.min_all().unwrap().to_scalar::<f32>().unwrap(), 0.);
    assert_eq!(shape(&iris().unwrap()), (vec![150, 4], vec![50, 50, 50]));
    assert_eq!(shape(&wine().unwrap()), (vec![178, 13], vec![59, 71, 48]));
}

#[test]
fn features_are_scaled_by_the_examples_for_training_alone() {
    let device = &Device::Cpu;
    let train = Tensor::new(&[[1f32, 5., 1000.], [3., 5., 3000.]], device).unwrap();
    let scaler = StandardScaler::fit(&train).unwrap();
    assert_eq!(scaler.mean.to_vec1::<f32>().unwrap(), [2., 5., 2000.]);
    // A feature that never changes is not divided by zero.
    assert_eq!(scaler.std.to_vec1::<f32>().unwrap(), [1., 1., 1000.]);
    let scaled = scaler.transform(&train).unwrap();
    assert_eq!(scaled.to_vec2::<f32>().unwrap(), [[-1., 0., -1.], [1., 0., 1.]]);
    assert_eq!(scaler.inverse_transform(&scaled).unwrap().to_vec2::<f32>().unwrap(), train.to_vec2::<f32>().unwrap());
    let one = Tensor::new(&[4f32, 6., 2000.], device).unwrap();
    assert_eq!(scaler.transform(&one).unwrap().to_vec1::<f32>().unwrap(), [2., 1., 0.]);
    // The mean is large and the deviation is small.
    let far = Tensor::new(&[[16_777_216f32], [16_777_218.]], device).unwrap();
    assert_eq!(StandardScaler::fit(&far).unwrap().std.to_vec1::<f32>().unwrap(), [1.]);
    for wrong in [Tensor::new(&[1u32, 2], device).unwrap(), Tensor::zeros((0, 3), DType::F32, device).unwrap()] {
        let message = StandardScaler::fit(&wrong).unwrap_err().to_string();
        assert!(message.contains("has no examples of floats in its first dimension"), "{message}");
    }
}

#[test]
fn classes_become_vectors() {
    let device = &Device::Cpu;
    let labels = Tensor::new(&[[0i64, 2], [1, 1]], device).unwrap();
    let vectors = one_hot(&labels, 3).unwrap();
    assert_eq!(vectors.dims(), [2, 2, 3]);
    assert_eq!(vectors.argmax(2).unwrap().to_vec2::<u32>().unwrap(), [[0, 2], [1, 1]]);
    assert_eq!(vectors.sum(2).unwrap().to_vec2::<f32>().unwrap(), [[1., 1.], [1., 1.]]);
    let message = |labels: &[i64]| one_hot(&Tensor::new(labels, device).unwrap(), 3).unwrap_err().to_string();
    assert!(message(&[0, 3]).starts_with("one_hot: label 1 is 3; 3 classes are numbered from 0"));
    assert!(message(&[-1]).starts_with("one_hot: label 0 is -1"));
    let floats = one_hot(&Tensor::new(&[0.5f32], device).unwrap(), 3).unwrap_err().to_string();
    assert!(floats.contains("labels of F32 are no classes"), "{floats}");
}
