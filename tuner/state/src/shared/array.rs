//! The bytes of a file as one tensor, for formats whose header is not that of safetensors.

use super::ShareError;
use super::foreign::Mapping;
use candle_core::{DType, Tensor};
use std::fs::File;
use std::path::Path;

/// A tensor over the bytes of a file from `offset` on, without a copy. `shape` has the innermost dimension last.
///
/// The mapping is private and never unmapped: a change of the tensor stays in this process. Nobody may shorten the file while
/// the tensor is used.
///
/// Fails if the file cannot be mapped or has too few bytes, or if the numbers are not aligned.
pub fn map_array(path: &Path, offset: usize, dtype: DType, shape: &[usize]) -> Result<Tensor, ShareError> {
    let mapping = File::open(path).and_then(|file| Mapping::new(&file));
    let mapping = mapping.map_err(|source| ShareError::File { what: format!("map {}:", path.display()), source })?;
    mapping.tensor_at(&path.display().to_string(), offset, dtype, shape)
}
