//! What became of a case: values, an error or a panic; and the file in which the suite reads it.

use anyhow::Result;
use bytemuck::NoUninit;
use candle_core::{DType, Tensor, WithDType};
use serde::Serialize;
use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Why there are no values.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Failure {
    Error(String),
    Panic(String),
}

/// Tensors, or why there are none.
pub(crate) type Outcome<T> = std::result::Result<T, Failure>;

/// The results of a case, and its gradients: `None` where an input is no variable or has no gradient.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) results: Vec<Tensor>,
    pub(crate) gradients: Option<Outcome<Vec<Option<Tensor>>>>,
}

thread_local! {
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the place of a panic in place of printing it.
pub(crate) fn keep_places_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PLACE.with(|kept| *kept.borrow_mut() = place);
    }));
}

/// Computes something that may panic.
pub(crate) fn caught<T>(compute: impl FnOnce() -> candle_core::Result<T>) -> Outcome<T> {
    match catch_unwind(AssertUnwindSafe(compute)) {
        Ok(Ok(value)) => Ok(value),
        // A backtrace follows the message where candle was asked for one.
        Ok(Err(error)) => Err(Failure::Error(error.to_string())),
        Err(panic) => {
            Err(Failure::Panic(format!("{} at {}", message(&*panic), PLACE.with(|place| place.borrow().clone()))))
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    }
}

/// Where a tensor of the CPU is in `results.bin`.
#[derive(Debug, Serialize)]
struct Place {
    dtype: &'static str,
    shape: Vec<usize>,
    offset: usize,
}

/// The files of outcomes: `results.json` has a line when a case begins and one when it ends, `results.bin` the values.
#[derive(Debug)]
pub(crate) struct Writer {
    lines: File,
    bytes: File,
    written: usize,
}

impl Writer {
    pub(crate) fn create(folder: &Path) -> Result<Writer> {
        let create = |name: &str| File::create(folder.join(name));
        Ok(Writer { lines: create("results.json")?, bytes: create("results.bin")?, written: 0 })
    }

    /// Notes that a case begins, so that the suite knows which one a process did not survive.
    pub(crate) fn begin(&mut self, id: usize) -> Result<()> {
        Ok(writeln!(self.lines, "{{\"begin\":{id}}}")?)
    }

    pub(crate) fn end(&mut self, id: usize, outcome: Outcome<Computed>) -> Result<()> {
        let line = match outcome {
            Err(failure) => serde_json::json!({ "id": id, "failure": failure }),
            Ok(Computed { results, gradients }) => {
                let results = results.iter().map(|tensor| self.place(tensor)).collect::<Result<Vec<_>>>()?;
                match gradients {
                    None => serde_json::json!({ "id": id, "results": results }),
                    Some(Err(failure)) => {
                        serde_json::json!({ "id": id, "results": results, "gradient_failure": failure })
                    }
                    Some(Ok(gradients)) => {
                        let place =
                            |tensor: &Option<Tensor>| tensor.as_ref().map(|tensor| self.place(tensor)).transpose();
                        let gradients = gradients.iter().map(place).collect::<Result<Vec<_>>>()?;
                        serde_json::json!({ "id": id, "results": results, "gradients": gradients })
                    }
                }
            }
        };
        Ok(writeln!(self.lines, "{line}")?)
    }

    fn place(&mut self, tensor: &Tensor) -> Result<Place> {
        let bytes = bytes(tensor)?;
        self.bytes.write_all(&bytes)?;
        let offset = self.written;
        self.written += bytes.len();
        Ok(Place { dtype: tensor.dtype().as_str(), shape: tensor.dims().to_vec(), offset })
    }
}

/// The elements of a tensor of the CPU, row after row.
fn bytes(tensor: &Tensor) -> candle_core::Result<Vec<u8>> {
    fn of<T: WithDType + NoUninit>(tensor: &Tensor) -> candle_core::Result<Vec<u8>> {
        Ok(bytemuck::cast_slice(&tensor.flatten_all()?.to_vec1::<T>()?).to_vec())
    }
    match tensor.dtype() {
        DType::U8 => of::<u8>(tensor),
        DType::U32 => of::<u32>(tensor),
        DType::I16 => of::<i16>(tensor),
        DType::I32 => of::<i32>(tensor),
        DType::I64 => of::<i64>(tensor),
        DType::BF16 => of::<half::bf16>(tensor),
        DType::F16 => of::<half::f16>(tensor),
        DType::F32 => of::<f32>(tensor),
        DType::F64 => of::<f64>(tensor),
        dtype => candle_core::bail!("the suite has no {dtype:?}"),
    }
}
