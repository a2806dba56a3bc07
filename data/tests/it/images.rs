//! Tests of datasets of images: a batch has the values of its images, however many they are.

use crate::reader::folder;
use crate::{all, error};
use candle_core::{DType, Device, Tensor};
use ferrotune_data::{Dataset, image_folder};
use std::fs;
use std::path::Path;

/// The pixels of image `number`, row by row.
fn pixels(number: u8) -> Vec<u8> {
    (0..18).map(|at| number * 50 + at * 3).collect()
}

/// Writes five images of 2×3 pixels: three of class `a` and two of class `b`.
fn write_images(folder: &Path) {
    for (number, name) in (0..).zip(["a/0.ppm", "a/1.ppm", "a/2.ppm", "b/3.ppm", "b/4.ppm"]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [b"P6\n3 2\n255\n".as_slice(), &pixels(number)].concat()).unwrap();
    }
}

fn images(folder: &Path) -> Dataset<(Tensor, Tensor)> {
    image_folder(folder, [3, 2, 3]).unwrap().images
}

/// The values of an image by candle's own functions.
fn expected(number: u8) -> Vec<f32> {
    let image = Tensor::from_vec(pixels(number), (2, 3, 3), &Device::Cpu).unwrap().permute((2, 0, 1)).unwrap();
    let values = image.contiguous().unwrap().to_dtype(DType::F32).unwrap().affine(1. / 255., 0.).unwrap();
    values.flatten_all().unwrap().to_vec1().unwrap()
}

/// The shape and values of batches, and their labels.
fn seen(batches: Dataset<(Tensor, Tensor)>) -> Vec<(Vec<usize>, Vec<f32>, Vec<u32>)> {
    let seen = |(images, labels): (Tensor, Tensor)| {
        let values = images.flatten_all().unwrap().to_vec1().unwrap();
        (images.dims().to_vec(), values, labels.flatten_all().unwrap().to_vec1().unwrap())
    };
    all(batches.epoch(0)).into_iter().map(seen).collect()
}

/// The batch of these images.
fn batch(numbers: &[u8]) -> (Vec<usize>, Vec<f32>, Vec<u32>) {
    let labels = numbers.iter().map(|number| u32::from(*number > 2)).collect();
    (vec![numbers.len(), 3, 2, 3], numbers.iter().flat_map(|number| expected(*number)).collect(), labels)
}

#[test]
fn a_batch_has_the_values_of_its_images() {
    let Some(folder) = folder("images::a_batch_has_the_values_of_its_images") else { return };
    write_images(folder.path());
    let images = images(folder.path());
    let one_by_one = seen(images.clone());
    let single = |number| {
        let (_, values, labels) = batch(&[number]);
        (vec![3, 2, 3], values, labels)
    };
    assert_eq!(one_by_one, [0, 1, 2, 3, 4].map(single));
    assert_eq!(seen(images.batch(2, false)), [batch(&[0, 1]), batch(&[2, 3]), batch(&[4])]);
    assert_eq!(seen(images.batch(2, true)), [batch(&[0, 1]), batch(&[2, 3])]);
    assert_eq!(seen(images.batch(5, true)), [batch(&[0, 1, 2, 3, 4])]);
    assert_eq!(seen(images.batch(usize::MAX, false)), [batch(&[0, 1, 2, 3, 4])]);
    assert_eq!(seen(images.batch(6, true)), []);
    assert_eq!(seen(images.batch(2, false).skip(1)), [batch(&[2, 3]), batch(&[4])]);
    assert_eq!(seen(images.batch(2, false).skip(3)), []);
    assert_eq!(seen(images.repeat(2).batch(6, false)), [batch(&[0, 1, 2, 3, 4, 0]), batch(&[1, 2, 3, 4])]);
}

#[test]
fn an_image_that_is_gone_ends_the_pass_with_its_name() {
    let Some(folder) = folder("images::an_image_that_is_gone_ends_the_pass_with_its_name") else { return };
    write_images(folder.path());
    let images = images(folder.path());
    fs::remove_file(folder.path().join("a/2.ppm")).unwrap();
    let mut batches = images.batch(2, false).iter();
    assert_eq!(batches.next().unwrap().unwrap().0.dims(), [2, 3, 2, 3]);
    let error = error(batches).to_string();
    assert!(error.contains("cannot read ") && error.contains("a/2.ppm"), "{error}");
}
