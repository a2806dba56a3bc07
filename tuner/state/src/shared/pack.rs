//! The writer of captured variables: all of them go into one sealed memory file. Makes no second copy of a contiguous tensor.

use super::ShareError;
use super::foreign::with_bytes;
use candle_core::{DType, Device, Tensor};
use ferrotune_machine::memory_file;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

/// The alignment of every tensor's data, which is enough for all vector instructions.
const ALIGNMENT_BYTES: usize = 64;

/// The prefix of the names of gaps between tensors.
pub(super) const PADDING: &str = "ferrotune:padding.";

/// Variables to write into a file.
///
/// ```
/// use ferrotune_state::{Pack, Share, Shared};
/// let mut pack = Pack::new();
/// vec![1.5_f32, 2.5].pack("scores", &mut pack)?;
/// let file = std::fs::File::from(pack.into_memfd()?);
/// # use std::os::fd::AsRawFd;
/// let shared = Shared::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref())?;
/// assert_eq!(Vec::<f32>::unpack("scores", &shared)?, [1.5, 2.5]);
/// # Ok::<(), ferrotune_state::ShareError>(())
/// ```
#[derive(Debug, Default)]
pub struct Pack {
    tensors: BTreeMap<String, Tensor>,
    texts: HashMap<String, String>,
}

impl Pack {
    /// A pack without variables.
    pub fn new() -> Pack {
        Pack::default()
    }

    /// Adds a tensor, whose data are read when the file is written.
    pub fn tensor(&mut self, name: &str, tensor: &Tensor) -> Result<(), ShareError> {
        match tensor.dtype() {
            dtype @ (DType::F6E2M3 | DType::F6E3M2 | DType::F4 | DType::F8E8M0) => {
                Err(ShareError::Dtype { name: name.to_owned(), dtype })
            }
            _ => {
                self.tensors.insert(name.to_owned(), tensor.clone());
                Ok(())
            }
        }
    }

    /// Adds a text.
    pub fn text(&mut self, name: &str, text: String) {
        self.texts.insert(name.to_owned(), text);
    }

    /// Writes everything in safetensors layout.
    pub fn write_to(&self, file: &mut impl io::Write) -> Result<(), ShareError> {
        let infos = layout(&self.tensors);
        write(file, &header(&self.texts, &infos)?)?;
        for (name, info) in infos {
            match self.tensors.get(&name) {
                Some(tensor) => write_tensor(&name, tensor, file)?,
                None => write(file, &vec![0; info.data_offsets.1 - info.data_offsets.0])?,
            }
        }
        Ok(())
    }

    /// Writes everything into a new memory file and seals it, so that nobody can change it.
    ///
    /// Needs as much memory as the data, plus one tensor while it writes a tensor that is on another device or not
    /// contiguous.
    pub fn into_memfd(self) -> Result<OwnedFd, ShareError> {
        let file_error =
            |source: io::Error| ShareError::File { what: "write the captured variables into".to_owned(), source };
        let mut file = memory_file::create(OsStr::new("ferrotune-shared")).map_err(file_error)?;
        self.write_to(&mut file)?;
        memory_file::seal(&file).map_err(file_error)?;
        Ok(file.into())
    }
}

/// The position of each tensor. A gap is a tensor of bytes, because safetensors allows no gaps.
fn layout(tensors: &BTreeMap<String, Tensor>) -> Vec<(String, TensorInfo)> {
    let mut infos = Vec::new();
    let mut end = 0_usize;
    for (name, tensor) in tensors {
        let start = end.next_multiple_of(ALIGNMENT_BYTES);
        if start > end {
            let info = TensorInfo { dtype: Dtype::U8, shape: vec![start - end], data_offsets: (end, start) };
            infos.push((format!("{PADDING}{end}"), info));
        }
        end = start + tensor.elem_count() * tensor.dtype().size_in_bytes();
        let (dtype, shape) = (tensor.dtype().into(), tensor.dims().to_vec());
        infos.push((name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) }));
    }
    infos
}

/// The header with its length, padded with blanks to align the data.
fn header(texts: &HashMap<String, String>, infos: &[(String, TensorInfo)]) -> Result<Vec<u8>, ShareError> {
    let damaged = |source| ShareError::Layout { path: "in memory".into(), source };
    let metadata = Metadata::new(Some(texts.clone()), infos.to_vec()).map_err(damaged)?;
    let json = serde_json::to_vec(&metadata)
        .map_err(|error| ShareError::File { what: "describe".to_owned(), source: error.into() })?;
    let length = (8 + json.len()).next_multiple_of(ALIGNMENT_BYTES) - 8;
    let mut header = (length as u64).to_le_bytes().to_vec();
    header.extend(json);
    header.resize(8 + length, b' ');
    Ok(header)
}

fn write(file: &mut impl io::Write, bytes: &[u8]) -> Result<(), ShareError> {
    file.write_all(bytes).map_err(|source| ShareError::File { what: "write".to_owned(), source })
}

fn write_tensor(name: &str, tensor: &Tensor, file: &mut impl io::Write) -> Result<(), ShareError> {
    let copied = tensor.to_device(&Device::Cpu).and_then(|tensor| tensor.contiguous());
    let tensor = copied.map_err(|source| ShareError::Tensor { name: name.to_owned(), source })?;
    with_bytes(name, &tensor, |bytes| write(file, bytes))
}
