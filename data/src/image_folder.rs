//! Datasets of the images in a folder that has one folder for each class.

use crate::dataset::Dataset;
use crate::images::{Description, Images};
use crate::reader::{Reader, is_object, path};
use crate::rows::{Origin, Rows};
use crate::{DataError, Result};
use candle_core::Tensor;
use ferrotune_reader::Source;
use std::path::{Path, PathBuf};

/// The images of a folder, with their classes.
pub struct ImageFolder {
    /// Images as f32 of shape (channels, height, width) between 0 and 1, and classes of u32, in the order of the paths.
    pub images: Dataset<(Tensor, Tensor)>,
    /// The names of the classes, which are the names of the folders, sorted.
    pub classes: Vec<String>,
}

/// Opens the images in a folder, or below an address such as `s3://bucket/flowers`, which has a folder for each class, like
/// Keras' `image_dataset_from_directory` and torchvision's `ImageFolder`. Subfolders belong to the class, too.
/// BMP, GIF (the first image), JPEG, PNG, PNM and WebP are read, and turned as their EXIF data say. Names that begin with a
/// dot, and macOS' `__MACOSX`, are skipped.
///
/// `shape` is `[channels, height, width]`, with 3 channels for red, green and blue or 1 for grey. Images of another
/// size are resized, bilinearly and with antialiasing, without keeping their proportions. A JPEG is decoded at its full size first,
/// because decoding at a reduced scale changes the values.
///
/// As many processes as candle has threads decode images, in the order of the requests, and some in
/// advance. Shuffle and split before any other verb: both need only the numbers of the images. A `%%tune` body may
/// capture such a dataset; only paths are sent to the trial.
///
/// Fails if there is no such folder, or if a folder in it has no images. An image that cannot be decoded is an error that
/// names its file.
///
/// ```no_run
/// let folder = ferrotune_data::image_folder("flowers", [3, 64, 64])?;
/// let [train, valid] = folder.images.split([0.8, 0.2], 7)?;
/// let train = train.shuffle(10_000, 7).batch(32, true).prefetch(2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn image_folder(folder: impl AsRef<Path>, shape: [usize; 3]) -> Result<ImageFolder> {
    let folder = path(folder.as_ref())?;
    let (_, contents) = Reader::start(Source::Folder { folder })?;
    let [channels, height, width] = shape;
    let source = Source::Images { channels, height, width };
    Reader::start(source.clone())?;
    let (files, labels) = contents.files.into_iter().unzip::<_, _, Vec<PathBuf>, Vec<u32>>();
    let files = absolute(files)?;
    let images = Images::described(Description { source, files, labels });
    Ok(ImageFolder { images: Dataset::of_rows(Rows::all(Origin::Images(images))), classes: contents.classes })
}

/// Makes paths absolute, because trials have other working folders.
fn absolute(files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let unread = |error| DataError::Unread { reason: format!("the working folder is not known: {error}") };
    let absolute = |file: PathBuf| if is_object(&file) { Ok(file) } else { std::path::absolute(file).map_err(unread) };
    files.into_iter().map(absolute).collect()
}
