//! The variables that an objective captured: packed once by the cell process, mapped by every worker.
//!
//! They travel in one sealed memory file in safetensors layout. Tensors are handed out over the mapping, without a
//! copy; other values are text in the file's metadata. Types that cannot travel are refused by the compiler.

mod foreign;
mod pack;
mod share;

pub use pack::Pack;
pub use share::Share;

use candle_core::{DType, Tensor};
use foreign::Mapping;
use safetensors::tensor::{Metadata, SafeTensorError};
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

/// The shared data of a study, as a worker sees it.
#[derive(Debug)]
pub struct Shared {
    /// `None` if nothing was captured.
    file: Option<(Mapping, Metadata)>,
    /// One tensor for each name: two over the same bytes could be changed behind each other's back.
    tensors: RefCell<HashMap<String, Tensor>>,
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
        Ok(Shared { file: Some((mapping, metadata)), tensors: RefCell::default() })
    }

    /// The tensor that was packed under `name`, over the mapping. Asked for again, it is the same tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ShareError> {
        if let Some(tensor) = self.tensors.borrow().get(name) {
            return Ok(tensor.clone());
        }
        let missing = || ShareError::Missing { name: name.to_owned() };
        let (mapping, metadata) = self.file.as_ref().ok_or_else(missing)?;
        let tensor = mapping.tensor(name, metadata.info(name).ok_or_else(missing)?)?;
        self.tensors.borrow_mut().insert(name.to_owned(), tensor.clone());
        Ok(tensor)
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
