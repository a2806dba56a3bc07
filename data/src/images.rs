//! Images in files, by their numbers. Readers decode an image when it is requested. A batch is made in its own memory, not from
//! tensors of single images.

use crate::batch::Size;
use crate::reader::{self, Files, Readers, is_object};
use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use ferrotune_reader::{Array, Request, Source};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of images that each reader decodes ahead.
const AHEAD: usize = 4;

/// The number of images that each reader fetches ahead from a store or a web server, where each fetch takes time.
const AHEAD_OF_STORES: usize = 16;

/// The description of a dataset of images, for another process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) source: Source,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) labels: Vec<u32>,
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

    /// The channels, rows and columns of each image.
    fn dims(&self) -> [usize; 3] {
        match self.source {
            Source::Images { channels, height, width } => [channels, height, width],
            _ => unreachable!("the source of images is made by image_folder alone"),
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

    /// Appends the values of the next image, and returns its number.
    fn append_next(&mut self, values: &mut Vec<f32>) -> Option<Result<usize>> {
        if let Err(error) = self.ask_ahead() {
            return Some(Err(error));
        }
        let number = self.waiting.pop_front()?;
        Some(self.append(number, values).map(|()| number))
    }

    fn append(&mut self, number: usize, values: &mut Vec<f32>) -> Result<()> {
        let file = || self.images.files[number].display();
        let named = |error| match error {
            DataError::Unread { reason } if !reason.contains(&file().to_string()) => {
                DataError::Unread { reason: format!("{}: {reason}", file()) }
            }
            error => error,
        };
        let block = self.readers.take().map_err(named)?;
        let pixels = block.and_then(|block| <[_; 1]>::try_from(block).ok()).map(|[pixels]| pixels);
        let Some(pixels) = pixels.filter(|pixels| is_u8_of(self.images.dims(), pixels)) else {
            return Err(DataError::Unread { reason: format!("the reader gave no pixels of {}", file()) });
        };
        values.extend(pixels.bytes.iter().map(|byte| f32::from(*byte) * (1. / 255.)));
        Ok(())
    }
}

/// Whether an array has these dimensions, and one byte for each element.
fn is_u8_of(dims: [usize; 3], array: &Array) -> bool {
    array.shape.dtype == "u8" && array.shape.dims == dims && array.bytes.len() == dims.iter().product::<usize>()
}

impl Stream<Vec<Tensor>> for ImageStream {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        let mut values = Vec::new();
        let number = match self.append_next(&mut values)? {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        let pixels = Tensor::from_vec(values, &self.images.dims(), &Device::Cpu);
        let label = Tensor::new(self.images.labels[number], &Device::Cpu);
        let unread = |error| {
            let file = self.images.files[number].display();
            DataError::Unread { reason: format!("cannot use {file}: {error}") }
        };
        Some(pixels.and_then(|pixels| Ok(vec![pixels, label?])).map_err(unread))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        if self.waiting.is_empty() { self.numbers.skip(count) } else { skip_one_by_one(self, count) }
    }
}

/// Batches of images.
pub(crate) struct ImageBatches {
    pub(crate) images: ImageStream,
    pub(crate) size: Size,
    /// The number of images that the stream has, if it is known.
    pub(crate) len: Option<u64>,
    /// The index of the next batch.
    pub(crate) index: u64,
}

impl ImageBatches {
    /// The values and the labels of the next batch, which has fewer images at the end of the stream.
    fn collect(&mut self) -> Result<(Vec<f32>, Vec<u32>)> {
        let images = &self.images.images;
        // The size may be greater than the dataset.
        let len = self.len.and_then(|len| usize::try_from(len).ok()).unwrap_or_else(|| images.len());
        let expected = self.size.elements.min(len);
        let count = images.dims().iter().try_fold(expected, |count, dim| count.checked_mul(*dim));
        let mut values = Vec::new();
        if count.is_none_or(|count| values.try_reserve_exact(count).is_err()) {
            let [channels, height, width] = images.dims();
            let reason = format!(
                "there is no memory for {expected} images of {channels}×{height}×{width} values; make the batches or the images smaller"
            );
            return Err(DataError::Unread { reason });
        }
        let mut labels = Vec::with_capacity(expected);
        while labels.len() < self.size.elements
            && let Some(number) = self.images.append_next(&mut values)
        {
            labels.push(self.images.images.labels[number?]);
        }
        if labels.len() < expected {
            values.shrink_to_fit();
        }
        Ok((values, labels))
    }
}

impl Stream<Vec<Tensor>> for ImageBatches {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        let (values, labels) = match self.collect() {
            Ok(collected) => collected,
            Err(error) => return Some(Err(error)),
        };
        let count = labels.len();
        if count == 0 || count < self.size.elements && self.size.drops_remainder {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let [channels, height, width] = self.images.images.dims();
        let images = Tensor::from_vec(values, (count, channels, height, width), &Device::Cpu);
        let batch = images.and_then(|images| Ok(vec![images, Tensor::from_vec(labels, count, &Device::Cpu)?]));
        Some(batch.map_err(|source| DataError::Batch { index, source }))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = self.size.skip(count, &mut self.images)?;
        self.index += skipped;
        Ok(skipped)
    }
}
