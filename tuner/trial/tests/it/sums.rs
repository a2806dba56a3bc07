//! Tests of sums in our candle-core: they are right to the last digits, over any dimensions.

use candle_core::{Device, Tensor};

/// The right sum over `dims`, computed in double precision.
fn right(values: &[f32], shape: &[usize], dims: &[usize]) -> Vec<f64> {
    let kept = |dim: usize| if dims.contains(&dim) { 1 } else { shape[dim] };
    let mut sums = vec![0_f64; (0..shape.len()).map(kept).product()];
    for (index, value) in values.iter().enumerate() {
        let (mut rest, mut at, mut stride) = (index, 0, 1);
        for dim in (0..shape.len()).rev() {
            at += rest % shape[dim] % kept(dim) * stride;
            stride *= kept(dim);
            rest /= shape[dim];
        }
        sums[at] += f64::from(*value);
    }
    sums
}

#[test]
fn sums_over_any_dimensions_are_right() {
    for shape in [vec![5, 7, 3], vec![4, 1, 6], vec![2, 3, 4, 5], vec![9, 16], vec![0, 3], vec![3, 0]] {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 0.7).sin() * 1e3).collect();
        let tensor = Tensor::from_vec(values.clone(), shape.as_slice(), &Device::Cpu).unwrap();
        let rank = shape.len();
        for subset in 1..1_usize << rank {
            let dims: Vec<usize> = (0..rank).filter(|dim| subset >> dim & 1 == 1).collect();
            let sums = tensor.sum_keepdim(dims.as_slice()).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            // Each number is below 1,000, so the rounding errors of the number and of a partial sum are below this tolerance.
            let is_close = |(sum, right): (&f32, &f64)| (f64::from(*sum) - right).abs() <= 1e-3;
            let right = right(&values, &shape, &dims);
            assert_eq!(sums.len(), right.len());
            assert!(sums.iter().zip(&right).all(is_close), "{shape:?} over {dims:?}: {sums:?} and {right:?}");
        }
    }
}
