//! Tests of candle's custom operations, and of operations without a lowering.

use crate::compare::{Cases, Draws, FLOATS};
use crate::plugin;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Device, Layout, Result, Shape, Tensor, bail};
use candle_nn::{ops, rotary_emb};

#[test]
fn fused_functions_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for dtype in FLOATS {
        let input = move |device: &Device| Draws(1).tensor((3, 4, 6), dtype, device);
        cases.add(format!("sigmoid of {dtype:?}"), move |device| ops::sigmoid(&input(device)?.transpose(0, 2)?));
        cases.add(format!("softmax of {dtype:?}"), move |device| ops::softmax_last_dim(&input(device)?));
    }
    cases.check(&plugin::open()?)
}

#[test]
fn norms_have_the_epsilon_that_they_were_made_with() -> Result<()> {
    let mut cases = Cases::default();
    for (seed, dtype) in [DType::F32, DType::BF16, DType::F16].into_iter().enumerate() {
        for epsilon in [1e-5, 0.5] {
            let input = move |device: &Device| -> Result<[Tensor; 3]> {
                let mut draws = Draws(seed as u64);
                let x = draws.tensor((3, 4, 6), dtype, device)?;
                Ok([x, draws.tensor(6, dtype, device)?, draws.tensor(6, dtype, device)?])
            };
            cases.add(format!("rms_norm {epsilon} of {dtype:?}"), move |device| {
                let [x, scale, _] = input(device)?;
                ops::rms_norm(&x, &scale, epsilon)
            });
            cases.add(format!("layer_norm {epsilon} of {dtype:?}"), move |device| {
                let [x, scale, shift] = input(device)?;
                ops::layer_norm(&x, &scale, &shift, epsilon)
            });
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn rotary_embeddings_are_candles() -> Result<()> {
    type Rotary = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let mut cases = Cases::default();
    let kinds: [(&str, Rotary); 3] =
        [("rope", rotary_emb::rope), ("rope_i", rotary_emb::rope_i), ("rope_thd", rotary_emb::rope_thd)];
    for (name, rotary) in kinds {
        // There are as many heads as times, so that the shape does not tell them apart; and angles for each batch.
        for (dims, angles) in [((2, 4, 4, 6), vec![4, 3]), ((2, 3, 3, 8), vec![5, 4]), ((2, 4, 4, 6), vec![2, 4, 3])] {
            cases.add(format!("{name} {dims:?} {angles:?}"), move |device| {
                let mut draws = Draws(7);
                let x = draws.tensor(dims, DType::F32, device)?;
                let cos = draws.tensor(angles.as_slice(), DType::F32, device)?;
                rotary(&x, &cos, &draws.tensor(angles.as_slice(), DType::F32, device)?)
            });
        }
    }
    cases.check(&plugin::open()?)
}

/// An operation of this name that adds one on the CPU.
struct Named(&'static str);

impl CustomOp1 for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let CpuStorage::F32(values) = storage else { bail!("only f32") };
        Ok((CpuStorage::F32(values.iter().map(|value| value + 1.).collect()), layout.shape().clone()))
    }
}

#[test]
fn an_operation_without_lowering_is_an_error_that_names_it() -> Result<()> {
    let x = Tensor::new(&[1f32, 2.], &plugin::open()?)?;
    let error = x.apply_op1_no_bwd(&Named("add-one")).expect_err("no device knows it").to_string();
    let expected =
        "add-one has no lowering to XLA; compute it on the CPU with to_device, or write it with candle's operations";
    assert!(error.contains(expected), "{error}");
    let whole = Tensor::new(&[1u8, 2], x.device())?;
    let error = whole.apply_op1_no_bwd(&Named("sigmoid")).expect_err("integers have none").to_string();
    assert!(error.contains("sigmoid of u8 elements has no lowering to XLA"), "{error}");
    Ok(())
}

/// The gradient of a pooling as a custom operation, as in candle's `backward`.
struct PoolGradient {
    name: &'static str,
    windows: [usize; 4],
}

impl CustomOp2 for PoolGradient {
    fn name(&self) -> &'static str {
        self.name
    }

    fn attributes(&self) -> Result<Vec<f64>> {
        Ok(self.windows.iter().map(|number| *number as f64).collect())
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        windows: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (CpuStorage::F32(x), CpuStorage::F32(gradient)) = (x, gradient) else { bail!("only f32") };
        let (_, _, height, width) = layout.shape().dims4()?;
        let (_, _, rows, columns) = windows.shape().dims4()?;
        let mut sums = vec![0.; x.len()];
        for (place, gradient) in gradient.iter().enumerate() {
            let (plane, row, column) = (place / (rows * columns), place / columns % rows, place % columns);
            let start = plane * height * width + row * self.windows[2] * width + column * self.windows[3];
            let elements = (0..self.windows[0]).flat_map(|m| (0..self.windows[1]).map(move |n| start + m * width + n));
            match self.name {
                "avg-pool2d-grad" => {
                    let part = gradient / (self.windows[0] * self.windows[1]) as f32;
                    elements.for_each(|element| sums[element] += part);
                }
                _ => {
                    let greatest = elements.reduce(|best, element| if x[best] < x[element] { element } else { best });
                    sums[greatest.expect("a window has elements")] += gradient;
                }
            }
        }
        Ok((CpuStorage::F32(sums), layout.shape().clone()))
    }
}

#[test]
fn gradients_of_pooling_go_where_the_windows_are() -> Result<()> {
    let mut cases = Cases::default();
    for windows in [[2, 2, 2, 2], [3, 2, 1, 2], [2, 3, 3, 1], [1, 1, 2, 2]] {
        for name in ["max-pool2d-grad", "avg-pool2d-grad"] {
            cases.add(format!("{name} {windows:?}"), move |device| {
                let mut draws = Draws(3);
                // The input has few different numbers, so that windows have several greatest elements.
                let x = draws.indices((2, 3, 8, 7), 4, DType::F32, device)?;
                let pooled = x.max_pool2d_with_stride((windows[0], windows[1]), (windows[2], windows[3]))?;
                let gradient = draws.tensor(pooled.shape(), DType::F32, device)?;
                x.apply_op2_no_bwd(&gradient, &PoolGradient { name, windows })
            });
        }
    }
    cases.check(&plugin::open()?)
}
