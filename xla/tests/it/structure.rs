//! Tests of views, copies, reductions, products and sorting.

use crate::compare::{Cases, Draws, FLOATS, INTEGERS};
use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_xla::backend_of;

#[test]
fn views_of_every_layout_have_the_elements_that_candle_reads() -> Result<()> {
    let mut cases = Cases::default();
    for seed in 0..120 {
        cases.add(format!("view {seed}"), move |device| {
            let mut draws = Draws(seed);
            let dims: Vec<usize> = (0..1 + draws.below(4)).map(|_| 1 + draws.below(5)).collect();
            let dtype = [DType::F32, DType::U8, DType::I64][seed as usize % 3];
            let tensor = draws.tensor(dims, dtype, device)?;
            // A computed tensor has another kind of storage than an uploaded one.
            let tensor = if seed % 2 == 0 { tensor.affine(2.0, 1.0)? } else { tensor };
            draws.view(&tensor)?.force_contiguous()
        });
    }
    for (rows, start) in [(5, 1), (4, 3), (7, 0)] {
        // The rows begin at any element of a flat array.
        cases.add(format!("{rows} rows from {start}"), move |device| {
            let flat = Draws(8).tensor(40, DType::F32, device)?.narrow(0, start, rows * 5)?;
            flat.reshape((rows, 5))?.narrow(1, 1, 3)?.t()?.force_contiguous()
        });
    }
    cases.check(&plugin::open()?)
}

#[test]
fn joined_and_changed_tensors_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for dim in 0..3 {
        for dtype in [DType::F32, DType::U8, DType::BF16] {
            cases.add(format!("cat {dim} of {dtype:?}"), move |device| {
                let mut draws = Draws(dim as u64);
                let mut part = |size: usize| {
                    let mut dims = [2, 3, 4];
                    dims[dim] = size;
                    draws.tensor(&dims[..], dtype, device)
                };
                let parts = [part(1)?, part(3)?, part(2)?];
                Tensor::cat(&parts, dim)?.affine(2.0, 0.0)
            });
            cases.add(format!("slice_set {dim} of {dtype:?}"), move |device| {
                let mut draws = Draws(20 + dim as u64);
                let whole = draws.tensor((4, 5, 6), dtype, device)?.affine(1.0, 1.0)?;
                let mut dims = [4, 5, 6];
                dims[dim] = 2;
                whole.slice_set(&draws.tensor(&dims[..], dtype, device)?, dim, 1)?;
                dims[dim] = 1;
                whole.slice_set(&draws.tensor(&dims[..], dtype, device)?, dim, 2)?;
                Ok(whole)
            });
            cases.add(format!("slice_scatter {dim} of {dtype:?}"), move |device| {
                let mut draws = Draws(40 + dim as u64);
                let whole = draws.tensor((4, 5, 6), dtype, device)?;
                let mut dims = [4, 5, 6];
                dims[dim] = 2;
                whole.slice_scatter(&draws.tensor(&dims[..], dtype, device)?, dim, 1)
            });
        }
        cases.add(format!("cat of views {dim}"), move |device| {
            let x = Draws(60).tensor((3, 3, 3), DType::F32, device)?;
            Tensor::cat(&[&x.transpose(0, 2)?, &x.narrow(dim, 1, 2)?, &x.narrow(dim, 0, 1)?], dim)
        });
        cases.add(format!("stack and pad {dim}"), move |device| {
            let x = Draws(61).tensor((3, 4, 2), DType::F64, device)?;
            Tensor::stack(&[&x, &x.affine(2.0, 0.0)?], dim)?.pad_with_zeros(dim, 1, 2)?.pad_with_same(dim, 2, 1)
        });
    }
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        cases.add(format!("ones {dtype:?}"), move |device| Tensor::ones((2, 3), dtype, device));
        cases.add(format!("zeros {dtype:?}"), move |device| Tensor::zeros((2, 3), dtype, device));
    }
    cases.add("full", |device| Tensor::full(2.5f32, (2, 3), device));
    cases.add("full of integers", |device| Tensor::full(-7i64, (2, 3), device));
    cases.add("numbers put into a column", |device| {
        let x = Draws(62).tensor((4, 5), DType::F32, device)?.affine(2.0, 0.0)?;
        x.narrow(1, 2, 2)?.const_set(3.5f32.into())?;
        x.narrow(0, 0, 1)?.const_set(0f32.into())?;
        Ok(x)
    });
    cases.check(&plugin::open()?)
}

#[test]
fn reductions_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        let input = move |device: &Device| Draws(1).tensor((3, 4, 5), dtype, device)?.transpose(0, 2);
        for dims in [vec![0], vec![2], vec![0, 2], vec![0, 1, 2]] {
            let name = format!("sum {dims:?} of {dtype:?}");
            cases.add(name, move |device| input(device)?.sum(dims.as_slice()));
        }
        for dim in 0..3 {
            cases.add(format!("max {dim} of {dtype:?}"), move |device| input(device)?.max(dim));
            cases.add(format!("min {dim} of {dtype:?}"), move |device| input(device)?.min_keepdim(dim));
            cases.add(format!("argmax {dim} of {dtype:?}"), move |device| input(device)?.argmax(dim));
            cases.add(format!("argmin {dim} of {dtype:?}"), move |device| input(device)?.argmin_keepdim(dim));
        }
    }
    let odd = |device: &Device| {
        let (nan, least) = (f32::NAN, f32::NEG_INFINITY);
        Tensor::new(&[[nan, 1.0, 2.0], [1.0, nan, 1.0], [least, nan, least], [2.0, 2.0, nan]], device)
    };
    cases.add("max of NaN", move |device| odd(device)?.max(1));
    cases.add("min of NaN", move |device| odd(device)?.min(1));
    cases.add("argmax of NaN", move |device| odd(device)?.argmax(1));
    cases.add("argmin of NaN", move |device| odd(device)?.argmin(0));
    cases.add("sum of nothing", |device| Tensor::zeros((0, 3), DType::F32, device)?.sum(0));
    cases.add("mean", |device| Draws(2).tensor((3, 4), DType::F32, device)?.mean(0));
    cases.add("logarithm of a sum", |device| Draws(3).tensor((3, 4), DType::F32, device)?.log_sum_exp(1));
    for (place, dtype) in FLOATS.into_iter().chain(INTEGERS).enumerate() {
        cases.add(format!("cumulative sum of {dtype:?}"), move |device| {
            Draws(4).tensor((3, 5, 4), dtype, device)?.t()?.cumsum(place % 3)
        });
    }
    cases.add("cumulative sum with an infinity", |device| Tensor::new(&[1f32, f32::INFINITY, 2.0], device)?.cumsum(0));
    cases.check(&plugin::open()?)
}

#[test]
fn the_greatest_of_no_elements_is_an_error() -> Result<()> {
    let nothing = Tensor::zeros((0, 3), DType::F32, &plugin::open()?)?;
    let error = nothing.max(0).expect_err("there is none").to_string();
    assert!(error.contains("max of a tensor without elements has no value"), "{error}");
    Ok(())
}

#[test]
fn products_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for dtype in FLOATS {
        cases.add(format!("matrices of {dtype:?}"), move |device| {
            let mut draws = Draws(1);
            draws.tensor((3, 4), dtype, device)?.matmul(&draws.tensor((4, 5), dtype, device)?)
        });
        cases.add(format!("transposed batches of {dtype:?}"), move |device| {
            let mut draws = Draws(2);
            let x = draws.tensor((2, 3, 4, 5), dtype, device)?.transpose(2, 3)?;
            x.matmul(&draws.tensor((2, 3, 6, 4), dtype, device)?.t()?)
        });
        cases.add(format!("a broadcast matrix of {dtype:?}"), move |device| {
            let mut draws = Draws(3);
            draws.tensor((2, 3, 4), dtype, device)?.broadcast_matmul(&draws.tensor((4, 2), dtype, device)?)
        });
    }
    cases.check(&plugin::open()?)
}

#[test]
fn sorting_is_candles_and_stable() -> Result<()> {
    let mut cases = Cases::default();
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        for ascending in [true, false] {
            cases.add(format!("{ascending} places of {dtype:?}"), move |device| {
                let x = Draws(1).tensor((3, 17), dtype, device)?;
                // The conversion to integers makes some elements equal.
                x.to_dtype(DType::I32)?.to_dtype(dtype)?.arg_sort_last_dim(ascending)
            });
        }
    }
    cases.add("sorted", |device| Ok(Draws(2).tensor((2, 3, 9), DType::F32, device)?.sort_last_dim(false)?.0));
    cases.add("zeros are equal", |device| Tensor::new(&[0f32, -0.0, 0.0, -1.0], device)?.arg_sort_last_dim(true));
    cases.check(&plugin::open()?)?;
    let places = Tensor::new(&[f32::NAN, 1.0, f32::INFINITY], &plugin::open()?)?.arg_sort_last_dim(true)?;
    assert_eq!(places.to_vec1::<u32>()?, [1, 2, 0]);
    Ok(())
}

#[test]
fn a_part_of_a_tensor_goes_to_a_device_without_the_rest() -> Result<()> {
    let device = plugin::open()?;
    let backend = backend_of(&device).expect("a device of a plugin");
    let all = Var::from_tensor(&Draws(1).tensor(&[64, 8], DType::F32, &Device::Cpu)?)?;
    let squares = |start: usize, device: &Device| all.narrow(0, start, 4)?.to_device(device)?.sqr();
    let mut compiled = Vec::new();
    for start in [0, 8, 60] {
        let expected = squares(start, &Device::Cpu)?.to_vec2::<f32>()?;
        assert_eq!(squares(start, &device)?.to_vec2::<f32>()?, expected);
        compiled.push(backend.compilations());
    }
    assert_eq!(compiled, [1; 3], "each part is another program");
    let traffic = backend.traffic().to_string();
    assert!(traffic.starts_with("copied to the device: 3 arrays, 384 bytes\n"), "{traffic}");
    let gradient = |device: &Device| -> Result<Vec<Vec<f32>>> {
        let gradients = squares(8, device)?.sum_all()?.backward()?;
        gradients.get(&all).expect("it is a variable").to_vec2()
    };
    assert_eq!(gradient(&device)?, gradient(&Device::Cpu)?);
    Ok(())
}
