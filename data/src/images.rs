//! Images in one folder for each class. Readers decode an image when it is requested.

use crate::dataset::Dataset;
use crate::reader::{self, Files, Reader, Readers, tensor};
use crate::rows::{Origin, Rows};
use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use candle_core::{DType, Device, Tensor};
use ferrotune_reader::{Request, Source, is_remote};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of images that each reader decodes ahead.
const AHEAD: usize = 4;

/// The number of images that each reader fetches ahead from a store or a web server, where each fetch takes time.
const AHEAD_OF_STORES: usize = 16;

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
/// size are resized, bilinearly and with antialiasing, without keeping their proportions.
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
    Ok(ImageFolder { images: Dataset::of_columns(Rows::of(Origin::Images(images))), classes: contents.classes })
}

/// A path as text, because requests are text.
pub(crate) fn path(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| DataError::Unread { reason: format!("the path {} is not UTF-8", path.display()) })
}

/// Makes paths absolute, because trials have other working folders.
fn absolute(files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let unread = |error| DataError::Unread { reason: format!("the working folder is not known: {error}") };
    let absolute = |file: PathBuf| if is_object(&file) { Ok(file) } else { std::path::absolute(file).map_err(unread) };
    files.into_iter().map(absolute).collect()
}

fn is_object(file: &Path) -> bool {
    file.to_str().is_some_and(is_remote)
}

/// The description of a dataset of images, for another process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Description {
    source: Source,
    files: Vec<PathBuf>,
    labels: Vec<u32>,
}

/// Files of images, with the class of each file.
#[derive(Clone)]
pub(crate) struct Images {
    source: Source,
    files: Arc<[PathBuf]>,
    labels: Arc<[u32]>,
}

impl Images {
    pub(crate) fn described(description: Description) -> Images {
        let Description { source, files, labels } = description;
        Images { source, files: files.into(), labels: labels.into() }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Describes the images with these numbers, or all images.
    pub(crate) fn describe(&self, chosen: Option<&[usize]>) -> Description {
        let source = Source::clone(&self.source);
        match chosen {
            None => Description { source, files: self.files.to_vec(), labels: self.labels.to_vec() },
            Some(chosen) => Description {
                source,
                files: chosen.iter().map(|number| self.files[*number].clone()).collect(),
                labels: chosen.iter().map(|number| self.labels[*number]).collect(),
            },
        }
    }

    /// Opens a stream of the images with these numbers.
    pub(crate) fn open(&self, numbers: BoxStream<usize>) -> ImageStream {
        let cores = reader::cores();
        let files = Files { source: self.source.clone(), folder: None, rows: None };
        let readers = Readers::new(Arc::new(files), cores);
        let is_fetched = self.files.first().is_some_and(|file| is_object(file));
        let ahead = cores * if is_fetched { AHEAD_OF_STORES } else { AHEAD };
        ImageStream { images: self.clone(), numbers, readers, ahead, waiting: VecDeque::new() }
    }
}

pub(crate) struct ImageStream {
    images: Images,
    numbers: BoxStream<usize>,
    readers: Readers,
    /// The number of images that may be requested in advance.
    ahead: usize,
    /// The numbers of the images that have been requested and have not arrived.
    waiting: VecDeque<usize>,
}

impl ImageStream {
    fn ask_ahead(&mut self) -> Result<()> {
        while self.waiting.len() < self.ahead
            && let Some(number) = self.numbers.next()
        {
            let number = number?;
            self.readers.ask(&Request::Image(self.images.files[number].clone()))?;
            self.waiting.push_back(number);
        }
        Ok(())
    }

    fn image(&mut self, number: usize) -> Result<Vec<Tensor>> {
        let file = || self.images.files[number].display();
        let unread = |error| DataError::Unread { reason: format!("cannot use {}: {error}", file()) };
        let named = |error| match error {
            DataError::Unread { reason } if !reason.contains(&file().to_string()) => {
                DataError::Unread { reason: format!("{}: {reason}", file()) }
            }
            error => error,
        };
        let Some([pixels]) = self.readers.take().map_err(named)?.and_then(|block| <[_; 1]>::try_from(block).ok())
        else {
            return Err(DataError::Unread { reason: format!("the reader gave no pixels of {}", file()) });
        };
        let pixels = tensor(&pixels)?.to_dtype(DType::F32).and_then(|pixels| pixels.affine(1. / 255., 0.));
        let label = Tensor::new(self.images.labels[number], &Device::Cpu);
        Ok(vec![pixels.map_err(unread)?, label.map_err(unread)?])
    }
}

impl Stream<Vec<Tensor>> for ImageStream {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        if let Err(error) = self.ask_ahead() {
            return Some(Err(error));
        }
        let number = self.waiting.pop_front()?;
        Some(self.image(number))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        if self.waiting.is_empty() { self.numbers.skip(count) } else { skip_one_by_one(self, count) }
    }
}
