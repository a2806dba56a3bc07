//! Images in files, by their numbers. Readers decode an image when it is requested.

use crate::reader::{self, Files, Readers, is_object, tensor};
use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use candle_core::{DType, Device, Tensor};
use ferrotune_reader::{Request, Source};
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
