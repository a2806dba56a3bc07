//! Adoption of a tensor from a file that another process has written, as memory that the tensor frees like any other.

use super::foreign::map_tensor;
use super::{ShareError, dtype_of};
use safetensors::tensor::{Metadata, SafeTensorError};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The tensor `name` of the file at `path`, in safetensors layout. A large tensor of a sealed memory file lies over the file's
/// pages, without a copy; a page is copied when the tensor changes it. Any other tensor is read.
///
/// The file may be closed and removed at once. Fails if the file has no such tensor, or if candle does not have its type.
pub fn adopt(path: &Path, name: &str) -> Result<candle_core::Tensor, ShareError> {
    let unread = |source| ShareError::File { what: format!("read {}:", path.display()), source };
    let file = File::open(path).map_err(unread)?;
    let header = header(&file).map_err(unread)?;
    let damaged = |source| ShareError::Layout { path: path.to_path_buf(), source };
    let metadata: Metadata = serde_json::from_slice(&header)
        .map_err(|source| damaged(SafeTensorError::InvalidHeaderDeserialization(source)))?;
    let info = metadata.info(name).ok_or_else(|| ShareError::Missing { name: name.to_owned() })?;
    let start = 8 + header.len() as u64 + info.data_offsets.0 as u64;
    map_tensor(name, &file, start, dtype_of(name, info)?, &info.shape)
}

/// The JSON of the file's header, after the eight bytes of its length.
fn header(file: &File) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let whole = file.metadata()?.len();
    if length > whole.saturating_sub(8) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is longer than the file"));
    }
    let mut header = vec![0; length as usize];
    file.read_exact_at(&mut header, 8)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Pack;
    use candle_core::{Device, Tensor};
    use rustix::fs::{SealFlags, fcntl_add_seals};

    const LARGE: u32 = 256 << 20;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    fn adopted(file: &File, name: &str) -> std::result::Result<Tensor, ShareError> {
        adopt(&ferrotune_machine::own::path_of(file), name)
    }

    /// The number of this process's mappings of memory files of this name.
    fn mappings(name: &str) -> Result<usize> {
        Ok(std::fs::read_to_string("/proc/self/maps")?.matches(&format!("/memfd:{name}")).count())
    }

    /// A sealed file with one tensor, whose data begin at the same place of a page as those of a large vector.
    fn sealed(name: &str, numbers: &[u8]) -> Result<File> {
        let file = sealable(name, numbers)?;
        seal(&file)?;
        Ok(file)
    }

    fn sealable(name: &str, numbers: &[u8]) -> Result<File> {
        use std::io::Write as _;
        let mut file = ferrotune_machine::memory_file::create(name.as_ref())?;
        let json = format!(r#"{{"x":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, numbers.len());
        let length = 4096 + 16 - 8;
        file.write_all(&(length as u64).to_le_bytes())?;
        file.write_all(format!("{json:length$}").as_bytes())?;
        file.write_all(numbers)?;
        Ok(file)
    }

    /// Seals a file, so that nobody can change it. The system itself holds pages for a moment now and then, so a failure is retried.
    fn seal(file: &File) -> Result {
        while let Err(error) = fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE) {
            assert_eq!(error, rustix::io::Errno::BUSY);
        }
        Ok(())
    }

    #[test]
    fn a_large_tensor_lies_over_the_files_pages_until_it_is_dropped() -> Result {
        let numbers: Vec<u8> = (0..LARGE + 1).map(|index: u32| (index % 251) as u8).collect();
        let file = sealed("adopted-large", &numbers)?;
        let tensor = adopted(&file, "x")?;
        assert_eq!(mappings("adopted-large")?, 1);
        drop(file);
        assert_eq!(tensor.to_vec1::<u8>()?, numbers);
        drop(tensor);
        assert_eq!(mappings("adopted-large")?, 0);
        Ok(())
    }

    #[test]
    fn a_large_tensor_of_a_file_that_may_still_change_is_read() -> Result {
        let file = sealable("adopted-unsealed", &vec![7; LARGE as usize])?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        let tensor = adopted(&file, "x")?;
        assert_eq!(mappings("adopted-unsealed")?, 0);
        assert_eq!(tensor.get(70_000)?.to_scalar::<u8>()?, 7);
        Ok(())
    }

    #[test]
    fn a_change_of_the_tensor_stays_in_the_tensor() -> Result {
        let file = sealed("adopted-changed", &vec![7; LARGE as usize])?;
        let (one, other) = (adopted(&file, "x")?, adopted(&file, "x")?);
        one.slice_set(&Tensor::zeros(8192, candle_core::DType::U8, &Device::Cpu)?, 0, 0)?;
        assert_eq!(one.get(5)?.to_scalar::<u8>()?, 0);
        assert_eq!(other.get(5)?.to_scalar::<u8>()?, 7);
        Ok(())
    }

    #[test]
    fn a_small_tensor_is_read() -> Result {
        let mut pack = Pack::new();
        pack.tensor("x", &Tensor::new(&[[1.5_f32, 2.5]], &Device::Cpu)?)?;
        let file = File::from(pack.into_memfd()?);
        assert_eq!(adopted(&file, "x")?.to_vec2::<f32>()?, [[1.5, 2.5]]);
        let error = adopted(&file, "y").unwrap_err().to_string();
        assert!(error.starts_with("`y` is not among the shared data"), "{error}");
        Ok(())
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() -> Result {
        use std::io::Write as _;
        let mut file = ferrotune_machine::memory_file::create("adopted-short".as_ref())?;
        file.write_all(&u64::MAX.to_le_bytes())?;
        let error = adopted(&file, "x").unwrap_err().to_string();
        assert!(error.ends_with("its header is longer than the file"), "{error}");
        Ok(())
    }
}
