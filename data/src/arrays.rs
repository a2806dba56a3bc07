//! Functions that read files of arrays, and data sets in such files.

use crate::dataset::Dataset;
use crate::reader::{Reader, path, tensor};
use crate::{DataError, Result};
use candle_core::{DType, Tensor};
use ferrotune_reader::{Block, Layout, NPY_HEADER_BYTES, NpyHeader, Request, Source};
use ferrotune_state::{ShareError, Shared, map_array};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr as _;

/// The array in a file of MNIST's format IDX, which is decompressed if its name ends in `.gz`. If there is no such file, the
/// file with `.gz` after its name is read. Whole numbers become u8 or i64, and others f32 or f64.
///
/// Fails if the file does not exist or is damaged.
///
/// Source: <https://yann.lecun.org/exdb/mnist/>.
pub fn idx(file: impl AsRef<Path>) -> Result<Tensor> {
    array(file.as_ref(), Layout::Idx)
}

/// The array in a file of NumPy's format NPY, which is decompressed if its name ends in `.gz` or `.zst`. `file` may be an
/// address, such as `s3://bucket/x.npy`. Booleans become u8.
///
/// A file on a disk of this machine that is not compressed is mapped: it is read only when its numbers are used, and the
/// system may take their memory back. A change of the tensor does not change the file. The mapping stays until the
/// process ends; do not shorten the file before that, as `numpy.save` under the same name does. The tensor of a mapped array in
/// Fortran's order is a transposed view.
///
/// Fails if the file does not exist or is damaged, or if candle does not have its type: complex and big-endian numbers, objects
/// and strings.
///
/// ```no_run
/// let rows = ferrotune_data::npy("rows.npy")?;
/// let rows = ferrotune_data::Dataset::from_tensors(rows)?.shuffle(1000, 7).batch(32, false);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
pub fn npy(file: impl AsRef<Path>) -> Result<Tensor> {
    let file = file.as_ref();
    if !is_mapped(file) {
        return array(file, Layout::Npy);
    }
    let header = npy_header(file).map_err(|reason| unread(file, reason))?;
    let dtype = DType::from_str(&header.shape.dtype).map_err(|error| unread(file, error))?;
    if !header.data.is_multiple_of(dtype.size_in_bytes()) {
        return array(file, Layout::Npy);
    }
    let tensor = map_array(file, header.data, dtype, &header.stored_dims()).map_err(|error| unmapped(file, error))?;
    if !header.is_fortran || tensor.rank() < 2 {
        return Ok(tensor);
    }
    let turned: Vec<usize> = (0..tensor.rank()).rev().collect();
    tensor.permute(turned).map_err(|error| unread(file, error))
}

/// The tensors in a file of safetensors, by their names. The file is decompressed if its name ends in `.gz` or `.zst`. `file`
/// may be an address, such as `gs://bucket/weights.safetensors`. Booleans become u8.
///
/// A file on a disk of this machine that is not compressed is mapped, as [`npy`] does, if its numbers are aligned, as they are
/// in files of Python's `safetensors`, and if it has no booleans.
///
/// Fails if the file does not exist or is damaged, or if candle does not have the type of one of its tensors.
///
/// ```no_run
/// use ferrotune_data::Dataset;
/// let tensors = ferrotune_data::safetensors("digits.safetensors")?;
/// let train = Dataset::from_tensors((tensors["images"].clone(), tensors["labels"].clone()))?.shuffle(1000, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: <https://huggingface.co/docs/safetensors>.
pub fn safetensors(file: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    let file = file.as_ref();
    if is_mapped(file)
        && let Some(tensors) = mapped(file)?
    {
        return Ok(tensors);
    }
    let (names, arrays) = arrays(file, Layout::Safetensors)?;
    names.into_iter().zip(&arrays).map(|(name, array)| Ok((name, tensor(array)?))).collect()
}

/// The tensors over a mapped file; `None` if some of them cannot lie over it.
fn mapped(file: &Path) -> Result<Option<BTreeMap<String, Tensor>>> {
    let shared = Shared::open(file).map_err(|error| unmapped(file, error))?;
    let mut tensors = BTreeMap::new();
    for name in shared.names() {
        match shared.tensor(&name) {
            Ok(tensor) => tensors.insert(name, tensor),
            // The reader copies tensors that are not aligned, and reports types that candle does not have.
            Err(ShareError::Tensor { .. } | ShareError::Dtype { .. }) => return Ok(None),
            Err(error) => return Err(unmapped(file, error)),
        };
    }
    Ok(Some(tensors))
}

/// Whether a file is mapped: it is on a disk of this machine, and not compressed.
fn is_mapped(file: &Path) -> bool {
    let is_compressed = file.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
    !is_compressed && !file.to_string_lossy().contains("://") && file.is_file()
}

/// The header of a file. Fails unless the file has exactly the numbers that the header declares.
fn npy_header(file: &Path) -> std::result::Result<NpyHeader, String> {
    let mut bytes = Vec::new();
    let length = File::open(file).and_then(|file| {
        let length = file.metadata()?.len();
        file.take(NPY_HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        Ok(length)
    });
    let length = length.map_err(|error| error.to_string())?;
    let header = NpyHeader::read(&bytes)?;
    header.check(length.saturating_sub(header.data as u64))?;
    Ok(header)
}

/// The error of a file that cannot be mapped, without the advice that concerns only data that trials share.
fn unmapped(file: &Path, error: ShareError) -> DataError {
    match error {
        ShareError::Layout { source, .. } => {
            unread(file, format!("it is no whole safetensors file ({source}); copy or save it again"))
        }
        ShareError::File { source, .. } => unread(file, source),
        ShareError::Tensor { source, .. } => unread(file, source),
        other => unread(file, other),
    }
}

fn unread(file: &Path, error: impl Display) -> DataError {
    DataError::Unread { reason: format!("cannot read {}: {error}", file.display()) }
}

/// MNIST, or a data set in the same files, such as Fashion-MNIST: the parts for training and for testing, as images of
/// f32 of shape (1, 28, 28) between 0 and 1, and digits of u32. `folder` has the four files `train-images-idx3-ubyte`,
/// `train-labels-idx1-ubyte`, `t10k-…`, compressed (`.gz`) or not.
///
/// Fails if a file does not exist or is damaged.
pub fn mnist(folder: impl AsRef<Path>) -> Result<[Dataset<(Tensor, Tensor)>; 2]> {
    let folder = folder.as_ref();
    let part = |name: &str| {
        let images = idx(folder.join(format!("{name}-images-idx3-ubyte")))?;
        let labels = idx(folder.join(format!("{name}-labels-idx1-ubyte")))?;
        let images = images.unsqueeze(1);
        labelled(folder, images, Ok(labels))
    };
    Ok([part("train")?, part("t10k")?])
}

/// CIFAR-10: the parts for training and for testing, as images of f32 of shape (3, 32, 32) between 0 and 1, and classes
/// of u32. `folder` has the files of its binary version, `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.
///
/// Fails if a file does not exist or is damaged.
///
/// Source: <https://www.cs.toronto.edu/~kriz/cifar.html>.
pub fn cifar10(folder: impl AsRef<Path>) -> Result<[Dataset<(Tensor, Tensor)>; 2]> {
    const BYTES: usize = 1 + 3 * 32 * 32;
    let folder = folder.as_ref();
    let part = |files: &[&str]| {
        let rows = |file: &&str| {
            let file = folder.join(file);
            let rows = array(&file, Layout::Bytes)?.reshape(((), BYTES));
            let reason =
                || format!("{} has no whole number of images of {BYTES} bytes with their class", file.display());
            rows.map_err(|_| DataError::Unread { reason: reason() })
        };
        let rows = files.iter().map(rows).collect::<Result<Vec<_>>>()?;
        let rows = Tensor::cat(&rows, 0).map_err(|error| damaged(folder, &error))?;
        let images = rows.narrow(1, 1, BYTES - 1).and_then(|pixels| pixels.reshape(((), 3, 32, 32)));
        labelled(folder, images, rows.narrow(1, 0, 1).and_then(|labels| labels.squeeze(1)))
    };
    let train = ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
    Ok([part(&train)?, part(&["test_batch.bin"])?])
}

/// A dataset of rows from the bytes of pixels and of classes.
fn labelled(
    folder: &Path,
    images: candle_core::Result<Tensor>,
    labels: candle_core::Result<Tensor>,
) -> Result<Dataset<(Tensor, Tensor)>> {
    let images = images.and_then(|images| images.to_dtype(DType::F32)?.affine(1. / 255., 0.));
    let labels = labels.and_then(|labels| labels.to_dtype(DType::U32));
    let damaged = |error| damaged(folder, &error);
    Dataset::from_tensors((images.map_err(damaged)?, labels.map_err(damaged)?))
}

fn damaged(folder: &Path, error: &candle_core::Error) -> DataError {
    DataError::Unread { reason: format!("the files in {} do not belong together: {error}", folder.display()) }
}

fn array(file: &Path, layout: Layout) -> Result<Tensor> {
    let (_, arrays) = arrays(file, layout)?;
    tensor(arrays.first().ok_or_else(|| incomplete(file))?)
}

/// The content of a file: the names of arrays, if the layout has them, and the arrays.
fn arrays(file: &Path, layout: Layout) -> Result<(Vec<String>, Block)> {
    let (mut reader, contents) = Reader::start(Source::Array { file: path(file)?, layout })?;
    reader.ask(&Request::Block(0))?;
    let arrays = reader.take()?.ok_or_else(|| incomplete(file))?;
    let names = contents.columns;
    if layout == Layout::Safetensors && names.len() != arrays.len() {
        return Err(incomplete(file));
    }
    Ok((names, arrays))
}

fn incomplete(file: &Path) -> DataError {
    DataError::Unread { reason: format!("the reader gave not all arrays of {}", file.display()) }
}
