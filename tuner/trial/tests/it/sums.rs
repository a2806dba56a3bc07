//! Sums in our candle-core have the bits of candle's own, also where they are added up row by row.

use candle_core::{Device, Tensor};

/// The sum over `dims`, one element after the other.
fn one_by_one(values: &[f32], shape: &[usize], dims: &[usize]) -> Vec<f32> {
    let kept = |dim: usize| if dims.contains(&dim) { 1 } else { shape[dim] };
    let mut sums = vec![0_f32; (0..shape.len()).map(kept).product()];
    for (index, value) in values.iter().enumerate() {
        let (mut rest, mut at, mut stride) = (index, 0, 1);
        for dim in (0..shape.len()).rev() {
            at += rest % shape[dim] % kept(dim) * stride;
            stride *= kept(dim);
            rest /= shape[dim];
        }
        sums[at] += value;
    }
    sums
}

#[test]
fn sums_over_all_but_the_last_dimensions_are_added_in_order() {
    for shape in [vec![5, 7, 3], vec![4, 1, 6], vec![2, 3, 4, 5], vec![9, 16], vec![0, 3], vec![3, 0]] {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 0.7).sin() * 1e3).collect();
        let tensor = Tensor::from_vec(values.clone(), shape.as_slice(), &Device::Cpu).unwrap();
        let before_last = shape.len() - 1;
        for subset in 1..1_usize << before_last {
            let dims: Vec<usize> = (0..before_last).filter(|dim| subset >> dim & 1 == 1).collect();
            let sums = tensor.sum_keepdim(dims.as_slice()).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(sums, one_by_one(&values, &shape, &dims), "{shape:?} over {dims:?}");
        }
    }
}
