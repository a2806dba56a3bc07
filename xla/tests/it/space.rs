//! Tests of convolutions, pooling, upsampling and indexing.

use crate::compare::{Cases, Draws, FLOATS, INTEGERS};
use crate::plugin;
use candle_core::{DType, Device, Result, Tensor};

#[test]
fn convolutions_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for seed in 0..16_u64 {
        let dtype = if seed == 0 { DType::F64 } else { DType::F32 };
        let mut draws = Draws(seed);
        let groups = 1 + draws.below(2);
        let (stride, padding, dilation) = (1 + draws.below(3), draws.below(3), 1 + draws.below(2));
        let (height, width) = (1 + draws.below(3), 1 + draws.below(3));
        let name = format!("stride {stride}, padding {padding}, dilation {dilation}, kernel {height} x {width}");
        cases.add(format!("conv1d: {name}"), move |device| {
            let mut draws = Draws(seed);
            let x = draws.tensor((2, 9, 4), dtype, device)?.transpose(1, 2)?;
            x.conv1d(&draws.tensor((6, 4 / groups, width), dtype, device)?, padding, stride, dilation, groups)
        });
        cases.add(format!("conv2d: {name}"), move |device| {
            let mut draws = Draws(seed);
            let x = draws.tensor((2, 4, 8, 9), dtype, device)?;
            x.conv2d(&draws.tensor((6, 4 / groups, height, width), dtype, device)?, padding, stride, dilation, groups)
        });
        let (padding, output_padding) = (padding.min(1), draws.below(stride));
        cases.add(format!("conv_transpose1d: {name}, {output_padding}"), move |device| {
            let mut draws = Draws(seed);
            let kernel = draws.tensor((4, 6 / groups, width + 1), dtype, device)?;
            let x = draws.tensor((2, 4, 7), dtype, device)?;
            // The reference takes one image at a time, since candle's CPU is wrong from the second image on.
            let images = [x.narrow(0, 0, 1)?, x.narrow(0, 1, 1)?];
            let of = |x: &Tensor| x.conv_transpose1d(&kernel, padding, output_padding, stride, dilation, groups);
            Tensor::cat(&[of(&images[0])?, of(&images[1].contiguous()?)?], 0)
        });
        cases.add(format!("conv_transpose2d: {name}, {output_padding}"), move |device| {
            let mut draws = Draws(seed);
            let kernel = draws.tensor((4, 6, height + 1, width + 1), dtype, device)?;
            let x = draws.tensor((2, 4, 5, 4), dtype, device)?;
            x.conv_transpose2d(&kernel, padding, output_padding, stride, dilation)
        });
    }
    cases.check(&plugin::open()?)
}

#[test]
fn pooling_is_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, dtype) in FLOATS.into_iter().chain(INTEGERS).enumerate() {
        for (size, stride) in [((2, 2), (2, 2)), [((3, 2), (1, 2)), ((1, 1), (2, 3))][place % 2]] {
            let input = move |device: &Device| Draws(1).tensor((2, 3, 7, 5), dtype, device)?.transpose(2, 3);
            let name = format!("{size:?} by {stride:?} of {dtype:?}");
            if dtype.is_float() {
                cases.add(format!("average {name}"), move |device| input(device)?.avg_pool2d_with_stride(size, stride));
            }
            cases.add(format!("greatest {name}"), move |device| input(device)?.max_pool2d_with_stride(size, stride));
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn upsampling_is_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, dtype) in FLOATS.into_iter().chain(INTEGERS).enumerate() {
        let input = move |device: &Device| Draws(1).tensor((2, 3, 4, 5), dtype, device);
        let (height, width) = [(8, 10), (7, 11), (3, 2), (4, 9)][place % 4];
        let name = format!("{height} x {width} of {dtype:?}");
        cases.add(format!("nearest {name}"), move |device| {
            input(device)?.transpose(0, 1)?.upsample_nearest2d(height, width)
        });
        cases.add(format!("line of {dtype:?}"), move |device| input(device)?.flatten(0, 1)?.upsample_nearest1d(13));
        for corners in [true, false].into_iter().filter(|_| dtype.is_float()) {
            cases.add(format!("bilinear, {corners}, {name}"), move |device| {
                input(device)?.upsample_bilinear2d(height, width, corners)
            });
        }
        // The weights are exact, since a rounding could change an integer.
        cases.add(format!("bilinear of {dtype:?}"), move |device| input(device)?.upsample_bilinear2d(8, 10, false));
    }
    cases.add("bilinear by factors", |device| {
        Draws(2).tensor((1, 2, 4, 5), DType::F32, device)?.upsample_bilinear2d_with_scale(2.0, 1.5, false)
    });
    cases.check(&plugin::open()?)
}

#[test]
fn elements_at_indices_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, dtype) in FLOATS.into_iter().chain(INTEGERS).enumerate() {
        let pairs = [(0, DType::U8), (1, DType::U32), (2, DType::I64), (0, DType::U32), (1, DType::I64)];
        for (dim, of) in [pairs[place % 5]] {
            let name = format!("{dim} of {dtype:?} by {of:?}");
            let sizes = [4, 5, 3];
            let input = move |device: &Device| Draws(1).tensor((4, 5, 3), dtype, device);
            let indices = move |size: usize, device: &Device| {
                let mut dims = sizes;
                dims[dim] = size;
                Draws(2).indices(&dims[..], sizes[dim], of, device)
            };
            let some = move |device: &Device| Draws(3).indices(6, sizes[dim], of, device);
            let source = move |size: usize, device: &Device| {
                let mut dims = sizes;
                dims[dim] = size;
                Draws(4).tensor(&dims[..], dtype, device)
            };
            cases.add(format!("select {name}"), move |device| input(device)?.index_select(&some(device)?, dim));
            cases.add(format!("add at {name}"), move |device| {
                input(device)?.index_add(&some(device)?, &source(6, device)?, dim)
            });
            for size in [1, 2] {
                cases.add(format!("gather {size} {name}"), move |device| {
                    input(device)?.gather(&indices(size, device)?, dim)
                });
                cases.add(format!("scatter_add {size} {name}"), move |device| {
                    input(device)?.scatter_add(&indices(size, device)?, &source(size, device)?, dim)
                });
            }
            cases.add(format!("scatter {name}"), move |device| {
                input(device)?.scatter(&indices(1, device)?, &source(1, device)?, dim)
            });
        }
    }
    for dtype in [DType::U8, DType::U32, DType::I64] {
        // The greatest index of a type selects no element.
        let greatest = move |device: &Device| match dtype {
            DType::U8 => Tensor::new(&[[1u8, 255], [255, 0]], device),
            DType::U32 => Tensor::new(&[[1u32, u32::MAX], [u32::MAX, 0]], device),
            _ => Tensor::new(&[[1i64, i64::MAX], [i64::MAX, 0]], device),
        };
        let input = |device: &Device| Draws(5).tensor((2, 2), DType::F32, device);
        cases.add(format!("gather of none by {dtype:?}"), move |device| input(device)?.gather(&greatest(device)?, 1));
        cases.add(format!("select of none by {dtype:?}"), move |device| {
            input(device)?.index_select(&greatest(device)?.flatten_all()?, 0)
        });
        cases.add(format!("scatter_add of none by {dtype:?}"), move |device| {
            input(device)?.scatter_add(&greatest(device)?, &input(device)?, 0)
        });
    }
    cases.check(&plugin::open()?)
}
