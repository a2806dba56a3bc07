//! The exchange of variables between a Python notebook and the cells that it runs with `%%rust`. The Python package generates the
//! calls; both sides use memory files of the Python process. Refuses types without a counterpart in Python.

use candle_core::{Device, Tensor, WithDType};
use ferrotune_trial::{BoxError, Pack, ShareError, shared};
use std::fs::File;
use std::path::Path;

/// The name of the tensor, or of the text, in the file.
const VALUE: &str = "value";

/// Reads the NumPy array in the memory file at `path`. See [`shared::adopt`] for when it is a copy.
pub fn take(path: &str) -> Result<Tensor, BoxError> {
    Ok(shared::adopt(Path::new(path), VALUE)?)
}

/// Writes a variable into the empty memory file at `path`.
pub fn give(variable: &(impl Give + ?Sized), path: &str) -> Result<(), BoxError> {
    let mut pack = Pack::new();
    variable.pack(&mut pack)?;
    let mut file = File::options().write(true).open(path)?;
    Ok(pack.write_to(&mut file)?)
}

/// A variable that Rust can give to Python.
#[diagnostic::on_unimplemented(
    message = "the variable of type `{Self}` has no counterpart in Python",
    label = "asked for with -o",
    note = "tensors, numbers, bools, strings, and `Vec`s of numbers that tensors have can travel"
)]
pub trait Give {
    /// Adds the variable, and its Python type.
    fn pack(&self, pack: &mut Pack) -> Result<(), ShareError>;
}

impl Give for Tensor {
    fn pack(&self, pack: &mut Pack) -> Result<(), ShareError> {
        pack.text("kind", "array".to_owned());
        pack.tensor(VALUE, self)
    }
}

impl Give for candle_core::Var {
    fn pack(&self, pack: &mut Pack) -> Result<(), ShareError> {
        self.as_tensor().pack(pack)
    }
}

impl<T: WithDType> Give for Vec<T> {
    fn pack(&self, pack: &mut Pack) -> Result<(), ShareError> {
        let tensor = Tensor::from_slice(self, self.len(), &Device::Cpu);
        tensor.map_err(|source| ShareError::Tensor { name: VALUE.to_owned(), source })?.pack(pack)
    }
}

/// Implements `Give` for values that are stored as text.
macro_rules! texts {
    ($($kind:literal: $($rust:ty)+;)*) => {$($(
        impl Give for $rust {
            fn pack(&self, pack: &mut Pack) -> Result<(), ShareError> {
                pack.text("kind", $kind.to_owned());
                pack.text(VALUE, self.to_string());
                Ok(())
            }
        }
    )+)*};
}

texts! {
    "bool": bool;
    "int": i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize;
    "float": f32 f64;
    "str": &str String char;
}
