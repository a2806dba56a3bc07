//! Compares computations on XLA:CPU with the same ones on candle's CPU.

use candle_core::{DType, Device, Result, Shape, Tensor, Var};

/// A computation that makes the same tensor on every device.
type Compute = Box<dyn Fn(&Device) -> Result<Tensor>>;

/// Computations that are compiled as one program.
#[derive(Default)]
pub(crate) struct Cases(Vec<(String, Compute)>);

impl Cases {
    pub(crate) fn add(&mut self, name: impl Into<String>, compute: impl Fn(&Device) -> Result<Tensor> + 'static) {
        self.0.push((name.into(), Box::new(compute)));
    }

    /// Fails with a list of all cases whose results differ.
    pub(crate) fn check(self, device: &Device) -> Result<()> {
        let results = self.0.iter().map(|(name, compute)| named(name, compute(device))).collect::<Result<Vec<_>>>()?;
        let found = values(&results, device)?;
        let mut failures = Vec::new();
        for (((name, compute), result), found) in self.0.iter().zip(&results).zip(found) {
            let expected = named(name, compute(&Device::Cpu))?;
            if (result.shape(), result.dtype()) != (expected.shape(), expected.dtype()) {
                failures.push(format!("{name}: {result:?} instead of {expected:?}"));
            } else if let Some(difference) = difference(&found, &wide(&expected)?, tolerance(expected.dtype())) {
                failures.push(format!("{name}: {difference}"));
            }
        }
        assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), self.0.len(), failures.join("\n"));
        Ok(())
    }
}

fn named<T>(name: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| candle_core::Error::Msg(format!("{name}: {error}")))
}

/// The elements of each tensor. One program computes all tensors; it is compiled when the first variable is read.
fn values(tensors: &[Tensor], device: &Device) -> Result<Vec<Vec<f64>>> {
    let kept = |tensor: &Tensor| {
        let var = Var::zeros(tensor.shape(), tensor.dtype(), device)?;
        var.set(tensor)?;
        Ok(var)
    };
    let vars = tensors.iter().map(kept).collect::<Result<Vec<Var>>>()?;
    vars.iter().map(|var| wide(var)).collect()
}

/// The elements of a tensor, converted on the CPU.
pub(crate) fn wide(tensor: &Tensor) -> Result<Vec<f64>> {
    let tensor = tensor.to_device(&Device::Cpu)?.flatten_all()?;
    match tensor.dtype() {
        DType::I64 => Ok(tensor.to_vec1::<i64>()?.into_iter().map(|number| number as f64).collect()),
        _ => tensor.to_dtype(DType::F64)?.to_vec1(),
    }
}

/// The greatest relative difference of two results: zero for integers, and some roundings for floats.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    }
}

fn difference(found: &[f64], expected: &[f64], tolerance: f64) -> Option<String> {
    let is_close = |found: f64, expected: f64| {
        found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
    };
    let place = (0..expected.len()).find(|place| !is_close(found[*place], expected[*place]))?;
    Some(format!("element {place} is {} instead of {}", found[place], expected[place]))
}

/// A generator of pseudo-random numbers (SplitMix64), which are the same on every machine.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A random number from -2 to 2.
    fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 51) as f64 - 2.0
    }

    /// A random tensor of floats from -2 to 2, or of small integers.
    pub(crate) fn tensor(&mut self, shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = shape.into();
        let scale = if dtype.is_float() { 1.0 } else { 10.0 };
        let bias = if matches!(dtype, DType::U8 | DType::U32) { 20.0 } else { 0.0 };
        let numbers: Vec<f64> = (0..shape.elem_count()).map(|_| self.float() * scale + bias).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
    }

    /// Random indices below `end`.
    pub(crate) fn indices(
        &mut self,
        shape: impl Into<Shape>,
        end: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let shape = shape.into();
        let numbers: Vec<u32> = (0..shape.elem_count()).map(|_| self.below(end) as u32).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
    }

    /// A random view of a tensor, by narrowing, transposing, broadcasting and reshaping.
    pub(crate) fn view(&mut self, tensor: &Tensor) -> Result<Tensor> {
        let mut view = tensor.clone();
        for _ in 0..1 + self.below(5) {
            let (rank, dim) = (view.rank(), self.below(view.rank()));
            view = match self.below(4) {
                0 => {
                    let size = view.dim(dim)?;
                    let start = self.below(size);
                    view.narrow(dim, start, 1 + self.below(size - start))?
                }
                1 => view.transpose(dim, self.below(rank))?,
                2 if rank < 5 => {
                    let shape = [&[1 + self.below(3)], view.dims()].concat();
                    view.broadcast_as(shape)?
                }
                3 if rank < 5 => view.unsqueeze(dim)?,
                _ if rank > 1 => view.flatten(dim.min(rank - 2), dim.min(rank - 2) + 1)?,
                _ => view,
            };
        }
        Ok(view)
    }
}

pub(crate) const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
pub(crate) const INTEGERS: [DType; 5] = [DType::U8, DType::U32, DType::I16, DType::I32, DType::I64];
