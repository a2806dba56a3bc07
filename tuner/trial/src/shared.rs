//! The variables that an objective captured: packed once by the cell process, mapped by every worker.
//!
//! They travel in one sealed memory file in safetensors layout. Tensors are handed out over the mapping, without a
//! copy; other values are text in the file's metadata. Types that cannot travel are refused by the compiler.

mod foreign;
mod pack;
mod share;

pub use pack::Pack;
pub use share::Share;

use candle_core::{DType, Tensor, Var};
use foreign::{Mapping, read_tensor};
use safetensors::tensor::{Metadata, SafeTensorError, TensorInfo};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why a variable could not travel.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The file with the shared data could not be opened or written.
    #[error("cannot {what} the shared data: {source}")]
    File {
        /// What was tried, with the file's name if it has one.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not in safetensors layout.
    #[error("the shared data {path} is damaged: {source}; run the cell again")]
    Layout {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: SafeTensorError,
    },
    /// A tensor's elements are of a type that does not travel.
    #[error("`{name}` is a tensor of {dtype:?}, which cannot travel to a trial; convert it with .to_dtype(...)")]
    Dtype {
        /// The variable.
        name: String,
        /// Its element type.
        dtype: DType,
    },
    /// Something of this name was not packed.
    #[error("`{name}` is not among the shared data; run the cell that defines it, then %%tune again")]
    Missing {
        /// The variable, or the part of it.
        name: String,
    },
    /// What was packed is not of the type that is wanted.
    #[error("`{name}` is {found} among the shared data, which is no {wanted}; run %%tune again")]
    Kind {
        /// The variable, or the part of it.
        name: String,
        /// What was found.
        found: String,
        /// The type that is wanted.
        wanted: &'static str,
    },
    /// What was saved is not what is to be restored.
    #[error("{mismatch}")]
    Fit {
        /// Which variable, and how it differs.
        mismatch: String,
    },
    /// candle could not make or copy a tensor.
    #[error("`{name}` cannot be shared: {source}")]
    Tensor {
        /// The variable.
        name: String,
        /// candle's reason.
        source: candle_core::Error,
    },
}

/// A tensor that is loaded into a variable is read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The shared data of a study, or a trial's checkpoint, as a worker sees it.
#[derive(Debug)]
pub struct Shared {
    /// `None` if nothing was captured.
    file: Option<(Place, Metadata)>,
    /// One tensor for each name: two over the same bytes could be changed behind each other's back.
    tensors: RefCell<HashMap<String, Tensor>>,
}

/// Where the tensors are.
#[derive(Debug)]
enum Place {
    /// In memory that is mapped for ever, over which the tensors lie.
    Mapping(Mapping),
    /// In a file, from which each is read when it is asked for: what is mapped privately counts as the trial's own memory
    /// for as long as it is mapped, whether it is used or not.
    File {
        file: File,
        /// Where the first tensor's data begin.
        data: u64,
    },
}

impl Shared {
    /// The shared data of an objective that captured nothing.
    pub fn empty() -> Shared {
        Shared { file: None, tensors: RefCell::default() }
    }

    /// Maps the file at `path`, which must not be cut short while it is in use: [`Pack`] seals it against that.
    ///
    /// The mapping is private: a change to a tensor stays in this process. It is never unmapped.
    pub fn open(path: &Path) -> Result<Shared, ShareError> {
        let mapping = File::open(path).and_then(|file| Mapping::new(&file));
        let mapping =
            mapping.map_err(|source| ShareError::File { what: format!("map {}:", path.display()), source })?;
        let metadata = mapping.metadata().map_err(|source| ShareError::Layout { path: path.to_path_buf(), source })?;
        Ok(Shared { file: Some((Place::Mapping(mapping), metadata)), tensors: RefCell::default() })
    }

    /// What is in a file whose header, with the eight bytes of its length, is `header`. Its bytes must be as they were
    /// written: nothing here looks whether they are.
    pub(crate) fn in_file(file: File, header: &[u8]) -> serde_json::Result<Shared> {
        let metadata = serde_json::from_slice(&header[8..])?;
        let place = Place::File { file, data: header.len() as u64 };
        Ok(Shared { file: Some((place, metadata)), tensors: RefCell::default() })
    }

    /// The tensor that was packed under `name`. Over a mapping it is the same tensor when it is asked for again; from a
    /// file it is a new one, with memory of its own.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ShareError> {
        if let Some(tensor) = self.tensors.borrow().get(name) {
            return Ok(tensor.clone());
        }
        let (place, info) = self.find(name)?;
        match place {
            Place::Mapping(mapping) => {
                let tensor = mapping.tensor(name, info)?;
                self.tensors.borrow_mut().insert(name.to_owned(), tensor.clone());
                Ok(tensor)
            }
            Place::File { file, data } => {
                let start = data + info.data_offsets.0 as u64;
                read_tensor(name, file, start, dtype_of(name, info)?, info.shape.as_slice())
            }
        }
    }

    /// The type and the shape of the tensor that was packed under `name`.
    pub(crate) fn describe(&self, name: &str) -> Result<(DType, &[usize]), ShareError> {
        let (_, info) = self.find(name)?;
        Ok((dtype_of(name, info)?, &info.shape))
    }

    /// Sets `var`, which is of the same type and shape, to the tensor that was packed under `name`. Needs next to no memory
    /// beyond the variable's own.
    pub(crate) fn fill(&self, name: &str, var: &Var) -> Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let (place, info) = self.find(name)?;
        let (file, data) = match place {
            // A view of what does not lie in one piece would be a copy.
            Place::File { file, data } if var.is_contiguous() => (file, data),
            _ => return var.set(&self.tensor(name)?.to_device(var.device()).map_err(failed)?).map_err(failed),
        };
        let flat = var.flatten_all().map_err(failed)?;
        let (dtype, elements) = (dtype_of(name, info)?, flat.elem_count());
        let most = PIECE_BYTES / dtype.size_in_bytes().max(1);
        for first in (0..elements).step_by(most) {
            let start = data + (info.data_offsets.0 + first * dtype.size_in_bytes()) as u64;
            let piece = read_tensor(name, file, start, dtype, &[most.min(elements - first)])?;
            let piece = piece.to_device(var.device()).map_err(failed)?;
            flat.slice_set(&piece, 0, first).map_err(failed)?;
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<(&Place, &TensorInfo), ShareError> {
        let missing = || ShareError::Missing { name: name.to_owned() };
        let (place, metadata) = self.file.as_ref().ok_or_else(missing)?;
        Ok((place, metadata.info(name).ok_or_else(missing)?))
    }

    /// The names of the tensors that begin with `prefix`, without it; what only fills gaps is left out.
    pub(crate) fn tensor_names(&self, prefix: &str) -> Vec<String> {
        let infos = self.file.as_ref().map(|(_, metadata)| metadata.tensors()).unwrap_or_default();
        let names = infos.into_keys().filter(|name| !name.starts_with(pack::PADDING));
        names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned)).collect()
    }

    /// The text that was packed under `name`.
    pub fn text(&self, name: &str) -> Result<&str, ShareError> {
        let texts = self.file.as_ref().and_then(|(_, metadata)| metadata.metadata().as_ref());
        let text = texts.and_then(|texts| texts.get(name));
        text.map(String::as_str).ok_or_else(|| ShareError::Missing { name: name.to_owned() })
    }
}

fn dtype_of(name: &str, info: &TensorInfo) -> Result<DType, ShareError> {
    DType::try_from(info.dtype).map_err(|source| ShareError::Tensor { name: name.to_owned(), source })
}
