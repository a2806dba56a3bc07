//! The notebook's variables that an objective uses: the cell process packs them once, and every worker maps them.
//!
//! The variables are in one sealed memory file in safetensors layout. Tensors lie over the mapping, without a copy; other values
//! are text in the file's metadata. The compiler refuses types that cannot be shared.

mod adopt;
mod foreign;
mod pack;
mod share;

pub use adopt::adopt;
pub use foreign::map_array;
pub use pack::Pack;
pub use share::Share;
pub(crate) use share::for_tuples;

use candle_core::{DType, Tensor, Var};
use foreign::{Mapping, read_tensor};
use safetensors::tensor::{Metadata, SafeTensorError, TensorInfo};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a variable could not be shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The file with the shared data could not be opened or written.
    #[error("cannot {what} the shared data: {source}")]
    File {
        /// The failed operation, with the file's name if it has one.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not in safetensors layout.
    #[error("the shared data {path} is damaged: {source}; run the cell again")]
    Layout {
        /// The file's path.
        path: PathBuf,
        /// The parser's reason.
        source: SafeTensorError,
    },
    /// The element type of a tensor cannot be shared.
    #[error("`{name}` is a tensor of {dtype:?}, which cannot travel to a trial; convert it with .to_dtype(...)")]
    Dtype {
        /// The variable's name.
        name: String,
        /// Its element type.
        dtype: DType,
    },
    /// The file has no data under this name.
    #[error("`{name}` is not among the shared data; run the cell that defines it, then %%tune again")]
    Missing {
        /// The name of the variable, or of a part of it.
        name: String,
    },
    /// The packed value has another type.
    #[error("`{name}` is {found} among the shared data, which is no {wanted}; run %%tune again")]
    Kind {
        /// The name of the variable, or of a part of it.
        name: String,
        /// The packed type.
        found: String,
        /// The requested type.
        wanted: &'static str,
    },
    /// The saved state does not fit the state to restore.
    #[error("{mismatch}")]
    Fit {
        /// The variable that does not fit, and how it differs.
        mismatch: String,
    },
    /// candle could not make or copy a tensor.
    #[error("`{name}` cannot be shared: {source}")]
    Tensor {
        /// The variable's name.
        name: String,
        /// candle's reason.
        source: candle_core::Error,
    },
}

/// The size of the pieces in which a variable is loaded.
const PIECE_BYTES: usize = 1 << 20;

/// The shared data of a study, or a trial's checkpoint, in a worker.
#[derive(Debug)]
pub struct Shared {
    /// The file, or `None` if nothing was captured.
    file: Option<(Place, Metadata)>,
    /// The tensors by name, each made only once, because a change of one tensor would change any other over the same bytes.
    tensors: RefCell<HashMap<String, Tensor>>,
}

/// The storage of the tensors.
#[derive(Debug)]
enum Place {
    /// Memory that is mapped for ever; the tensors lie over it.
    Mapping(Mapping),
    /// A file; each tensor is read when it is requested. A private mapping would count as the trial's own memory for
    /// as long as it exists.
    File {
        file: File,
        /// The position of the first tensor's data.
        data: u64,
    },
}

impl Shared {
    /// The shared data of an objective that captured nothing.
    pub fn empty() -> Shared {
        Shared { file: None, tensors: RefCell::default() }
    }

    /// Maps the file at `path`. Nobody may shorten it while it is mapped; [`Pack`] seals it against that.
    ///
    /// The mapping is private: a change to a tensor stays in this process. It is never unmapped.
    pub fn open(path: &Path) -> Result<Shared, ShareError> {
        let mapping = File::open(path).and_then(|file| Mapping::new(&file));
        let mapping =
            mapping.map_err(|source| ShareError::File { what: format!("map {}:", path.display()), source })?;
        let metadata = mapping.metadata().map_err(|source| ShareError::Layout { path: path.to_path_buf(), source })?;
        Ok(Shared { file: Some((Place::Mapping(mapping), metadata)), tensors: RefCell::default() })
    }

    /// The names of all tensors of the file.
    pub fn names(&self) -> Vec<String> {
        let infos = self.file.as_ref().map(|(_, metadata)| metadata.tensors()).unwrap_or_default();
        infos.into_keys().collect()
    }

    /// The content of a file with this `header`, which includes the eight bytes of its length. Does not check the
    /// file's other bytes.
    pub fn in_file(file: File, header: &[u8]) -> serde_json::Result<Shared> {
        let metadata = serde_json::from_slice(&header[8..])?;
        let place = Place::File { file, data: header.len() as u64 };
        Ok(Shared { file: Some((place, metadata)), tensors: RefCell::default() })
    }

    /// The tensor that was packed under `name`. Over a mapping every call returns the same tensor; from a file every
    /// call returns a new tensor with its own memory.
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
    pub fn describe(&self, name: &str) -> Result<(DType, &[usize]), ShareError> {
        let (_, info) = self.find(name)?;
        Ok((dtype_of(name, info)?, &info.shape))
    }

    /// Sets `var`, which has the same type and shape, to the tensor that was packed under `name`. Needs almost no
    /// memory beyond that of the variable.
    pub(crate) fn fill(&self, name: &str, var: &Var) -> Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let (place, info) = self.find(name)?;
        let (file, data) = match place {
            // A view of a tensor that is not contiguous would be a copy.
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

    /// The names of the tensors that begin with `prefix`, without the prefix. Leaves out tensors that only fill gaps.
    pub(crate) fn tensor_names(&self, prefix: &str) -> Vec<String> {
        let names = self.names().into_iter().filter(|name| !name.starts_with(pack::PADDING));
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
