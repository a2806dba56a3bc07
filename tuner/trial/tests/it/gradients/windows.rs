//! Tests of convolutions, pooling and upsampling: strides with a remainder, dilation, padding, groups.

use super::difference::{Draws, check};
use super::views::check_views;
use candle_core::{Result, Tensor, Var};

const RANGE: (f64, f64) = (-1., 1.);

#[test]
fn convolutions_of_one_dimension() {
    // The columns: length, kernel, padding, stride, dilation, groups.
    let cases = [
        [7, 3, 0, 1, 1, 1],
        [8, 3, 1, 2, 1, 1],
        [9, 3, 2, 3, 2, 1],
        [6, 2, 0, 4, 1, 1],
        [2, 2, 2, 5, 1, 1],
        [7, 3, 1, 2, 1, 2],
        [7, 1, 0, 3, 1, 2],
    ];
    for case in cases {
        let [length, kernel, padding, stride, dilation, groups] = case;
        check_views(&format!("conv1d {case:?}"), &[&[2, 4, length], &[2, 4 / groups, kernel]], RANGE, |arguments| {
            arguments[0].conv1d(&arguments[1], padding, stride, dilation, groups)
        });
    }
}

#[test]
fn convolutions_of_two_dimensions() {
    // The columns: height, width, kernel's height, kernel's width, padding, stride, dilation, groups.
    let cases = [
        [5, 6, 3, 3, 0, 1, 1, 1],
        [6, 5, 3, 2, 1, 2, 1, 1],
        [6, 7, 2, 3, 0, 3, 1, 1],
        [7, 6, 3, 2, 2, 2, 2, 1],
        [5, 5, 3, 3, 1, 2, 1, 2],
        [4, 5, 1, 1, 0, 2, 1, 1],
    ];
    for case in cases {
        let [height, width, kernel_height, kernel_width, padding, stride, dilation, groups] = case;
        let shapes: [&[usize]; 2] = [&[2, 2, height, width], &[2, 2 / groups, kernel_height, kernel_width]];
        check_views(&format!("conv2d {case:?}"), &shapes, RANGE, |arguments| {
            arguments[0].conv2d(&arguments[1], padding, stride, dilation, groups)
        });
    }
}

#[test]
fn transposed_convolutions() {
    // The columns: size, kernel, padding, output padding, stride, dilation.
    let cases = [
        [4, 3, 0, 0, 1, 1],
        [4, 3, 1, 1, 2, 1],
        [3, 2, 0, 2, 3, 1],
        [3, 3, 2, 0, 2, 2],
        [3, 2, 0, 2, 2, 2],
        [3, 2, 0, 1, 1, 3],
    ];
    for case in cases {
        let [size, kernel, padding, output_padding, stride, dilation] = case;
        check_views(&format!("conv_transpose1d {case:?}"), &[&[2, 4, size], &[4, 1, kernel]], RANGE, |arguments| {
            arguments[0].conv_transpose1d(&arguments[1], padding, output_padding, stride, dilation, 2)
        });
        let shapes: [&[usize]; 2] = [&[1, 2, size, size + 1], &[2, 2, kernel, kernel + 1]];
        check_views(&format!("conv_transpose2d {case:?}"), &shapes, RANGE, |arguments| {
            arguments[0].conv_transpose2d(&arguments[1], padding, output_padding, stride, dilation)
        });
    }
}

#[test]
fn pooling() {
    // The columns: height, width, kernel's height, kernel's width, stride's height, stride's width.
    let cases = [
        [4, 6, 2, 2, 2, 2],
        [5, 7, 2, 2, 2, 2],
        [5, 6, 3, 3, 1, 1],
        [7, 6, 3, 2, 2, 1],
        [7, 5, 2, 1, 3, 2],
        [3, 4, 3, 4, 1, 1],
    ];
    for case in cases {
        let [height, width, kernel_height, kernel_width, stride_height, stride_width] = case;
        let (kernel, stride) = ((kernel_height, kernel_width), (stride_height, stride_width));
        check_views(&format!("avg_pool2d {case:?}"), &[&[2, 2, height, width]], RANGE, |arguments| {
            arguments[0].avg_pool2d_with_stride(kernel, stride)?.sqr()
        });
        check_views(&format!("max_pool2d {case:?}"), &[&[2, 2, height, width]], RANGE, |arguments| {
            arguments[0].max_pool2d_with_stride(kernel, stride)?.sqr()
        });
    }
}

#[test]
fn upsampling_to_the_nearest() {
    for (size, target) in [(3, 6), (3, 7), (4, 4), (5, 3)] {
        let name = format!("upsample_nearest1d from {size} to {target}");
        check_views(&name, &[&[2, 3, size]], RANGE, |arguments| {
            arguments[0].upsample_nearest1d(target)?.sqr()?.sum_all()?.add(&arguments[0].sum_all()?)
        });
        let name = format!("upsample_nearest2d from {size} to {target}");
        check_views(&name, &[&[2, 2, size, 3]], RANGE, |arguments| {
            arguments[0].upsample_nearest2d(target, 5)?.sqr()?.sum_all()?.add(&arguments[0].sum_all()?)
        });
    }
}

#[test]
fn a_network_of_convolution_and_pooling() {
    let mut draws = Draws::new(11);
    let inputs = [
        draws.tensor(&[2, 1, 7, 7], RANGE),
        draws.tensor(&[3, 1, 3, 3], RANGE),
        draws.tensor(&[3], RANGE),
        draws.tensor(&[4, 12], RANGE),
    ];
    check("a convolutional network", &inputs, |inputs| {
        let bias = inputs[2].reshape((1, 3, 1, 1))?;
        let features = inputs[0].conv2d(&inputs[1], 0, 1, 1, 1)?.broadcast_add(&bias)?.gelu()?;
        let pooled: Tensor = features.max_pool2d(2)?.flatten_from(1)?;
        candle_nn::ops::log_softmax(&pooled.matmul(&inputs[3].t()?)?, 1)
    });
}

/// What [`convolved`] computes with: padding, stride and dilation.
type Numbers = [usize; 3];

/// The convolution by its definition: for each place of the kernel, the values of the image there times the kernel's.
fn convolved(images: &Tensor, kernel: &Tensor, [padding, stride, dilation]: Numbers) -> Result<Tensor> {
    let (_, _, k_h, k_w) = kernel.dims4()?;
    let padded = images.pad_with_zeros(2, padding, padding)?.pad_with_zeros(3, padding, padding)?;
    let (_, _, height, width) = padded.dims4()?;
    let places = |size: usize, k: usize| (size - dilation * (k - 1) - 1) / stride + 1;
    let at = |k: usize, count: usize| {
        let numbers = (0..count).map(|n| (n * stride + k * dilation) as u32);
        Tensor::from_iter(numbers, images.device())
    };
    let mut sum = None;
    for (y, x) in (0..k_h).flat_map(|y| (0..k_w).map(move |x| (y, x))) {
        let rows = padded.index_select(&at(y, places(height, k_h))?, 2)?;
        let values = rows.index_select(&at(x, places(width, k_w))?, 3)?;
        let (b, c, h, w) = values.dims4()?;
        let factors = kernel.narrow(2, y, 1)?.narrow(3, x, 1)?.flatten_from(1)?.contiguous()?;
        let product = factors.broadcast_matmul(&values.reshape((b, c, h * w))?)?.reshape((b, (), h, w))?;
        sum = Some(match sum {
            Some(sum) => (sum + product)?,
            None => product,
        });
    }
    Ok(sum.unwrap())
}

fn greatest_difference(a: &Tensor, b: &Tensor) -> Result<f64> {
    assert_eq!(a.dims(), b.dims());
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}

/// Images that make more than one part of a product, and products of more than one image.
#[test]
fn large_convolutions_and_their_gradients_are_the_sums_of_their_definition() -> Result<()> {
    // The columns: images, channels, height, width, channels of the output, kernel, padding, stride, dilation.
    let cases = [
        [3, 16, 40, 33, 5, 3, 1, 1, 1],
        [2, 3, 300, 250, 2, 3, 0, 2, 1],
        [37, 6, 14, 11, 4, 3, 2, 1, 2],
        [20, 8, 9, 9, 3, 1, 0, 2, 1],
        [5, 64, 7, 7, 40, 5, 2, 1, 1],
        [1, 2, 70, 90, 3, 7, 3, 3, 1],
    ];
    for case in cases {
        let [images, channels, height, width, outputs, k, padding, stride, dilation] = case;
        let numbers = [padding, stride, dilation];
        let mut draws = Draws::new(7);
        let images = Var::from_tensor(&draws.tensor(&[images, channels, height, width], RANGE))?;
        let kernel = Var::from_tensor(&draws.tensor(&[outputs, channels, k, k], RANGE))?;
        let ours = images.conv2d(&kernel, padding, stride, dilation, 1)?;
        let theirs = convolved(&images, &kernel, numbers)?;
        assert!(greatest_difference(&ours, &theirs)? < 1e-11, "{case:?}");
        let weights = draws.tensor(ours.dims(), RANGE);
        let [ours, theirs] = [ours, theirs].map(|result| (result * &weights)?.sum_all()?.backward());
        let (ours, theirs) = (ours?, theirs?);
        for (name, variable) in [("images", &images), ("kernel", &kernel)] {
            let difference = greatest_difference(ours.get(variable).unwrap(), theirs.get(variable).unwrap())?;
            assert!(difference < 1e-10, "{case:?}: {name}: {difference}");
        }
    }
    Ok(())
}

/// A sum over dimensions that are no neighbours, as in the gradient of a convolution's bias.
#[test]
fn sums_over_dimensions_apart_are_sums_one_after_another() -> Result<()> {
    let values = Draws::new(3).tensor(&[3, 4, 5, 2, 6], RANGE);
    for dims in [vec![0, 2, 3, 4], vec![0, 2], vec![1, 3, 4], vec![0, 4], vec![1, 3], vec![0, 2, 4]] {
        let ours = values.sum_keepdim(dims.clone())?;
        let theirs = dims.iter().try_fold(values.clone(), |values, dim| values.sum_keepdim(*dim))?;
        assert!(greatest_difference(&ours, &theirs)? < 1e-13, "{dims:?}");
    }
    Ok(())
}
