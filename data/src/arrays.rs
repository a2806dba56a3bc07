//! Files that are arrays, and the data sets that come as such files.

use crate::dataset::Dataset;
use crate::images::path;
use crate::reader::{Reader, tensor};
use crate::{DataError, Result};
use candle_core::{DType, Tensor};
use ferrotune_reader::{Layout, Request, Source};
use std::path::Path;

/// The array in a file of MNIST's format IDX, which is decompressed if it ends in `.gz`; where there is no such file, the
/// one with `.gz` behind its name is read. Whole numbers become u8 or
/// i64, and others f32 or f64.
///
/// Fails if the file is not there, or damaged.
///
/// Source: <https://yann.lecun.org/exdb/mnist/>.
pub fn idx(file: impl AsRef<Path>) -> Result<Tensor> {
    array(file.as_ref(), Layout::Idx)
}

/// MNIST, and what comes in the same files, such as Fashion-MNIST: the parts for training and for testing, as images of
/// f32 of shape (1, 28, 28) between 0 and 1, and digits of u32. `folder` has the four files `train-images-idx3-ubyte`,
/// `train-labels-idx1-ubyte`, `t10k-…`, compressed (`.gz`) or not.
///
/// Fails if a file is not there, or damaged.
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
/// Fails if a file is not there, or damaged.
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

/// Bytes of pixels and of classes, as rows.
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
    let (mut reader, _) = Reader::start(Source::Array { file: path(file)?, layout })?;
    reader.ask(&Request::Block(0))?;
    let array = reader.take()?.and_then(|block| block.into_iter().next());
    tensor(
        &array
            .ok_or_else(|| DataError::Unread { reason: format!("the reader gave no array of {}", file.display()) })?,
    )
}
