//! Tensors over mapped memory, and tensors as bytes of a file. The only unsafe code of this crate.
#![expect(unsafe_code, reason = "a mapping is foreign memory to Rust and to candle")]

use super::ShareError;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, DType, Storage, Tensor, WithDType};
use half::vec::HalfBitsVecExt as _;
use memmap2::MmapOptions;
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use safetensors::tensor::{Metadata, SafeTensorError, SafeTensors, TensorInfo};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A file mapped for the rest of the process, privately and writably.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    pub(super) fn new(file: &File) -> io::Result<Mapping> {
        // SAFETY: the mapping is private, so writes of other processes do not matter; the file is sealed, or its owner
        // does not shorten it.
        let mapping = unsafe { MmapOptions::new().map_copy(file)? };
        // Leaked, because tensors over the mapping may outlive everything else.
        let bytes: &'static mut memmap2::MmapMut = Box::leak(Box::new(mapping));
        Ok(Mapping { start: bytes.as_mut_ptr(), length: bytes.len() })
    }

    pub(super) fn metadata(&self) -> Result<Metadata, SafeTensorError> {
        // SAFETY: `length` bytes of the mapping are readable for ever, and no tensor exists yet that could change them.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.length) };
        SafeTensors::read_metadata(bytes).map(|(_, metadata)| metadata)
    }

    /// A tensor over the bytes of `info`, which is from this mapping's own metadata. Call it once for each name.
    pub(super) fn tensor(&self, name: &str, info: &TensorInfo) -> Result<Tensor, ShareError> {
        let unsupported = |source| ShareError::Tensor { name: name.to_owned(), source };
        let dtype = DType::try_from(info.dtype).map_err(unsupported)?;
        // The header's length is in the first eight bytes; `metadata` has checked it and the offsets against the file.
        // SAFETY: the first eight bytes are within the mapping, which `metadata` has found to be a whole file.
        let header_bytes = u64::from_le(unsafe { self.start.cast::<u64>().read() }) as usize;
        self.tensor_at(name, 8 + header_bytes + info.data_offsets.0, dtype, &info.shape)
    }

    /// A tensor over the bytes from `offset` on. Fails if they are not all in the file, or not aligned. Call it once for
    /// each byte.
    pub(super) fn tensor_at(
        &self,
        name: &str,
        offset: usize,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Tensor, ShareError> {
        let unsupported = |source| ShareError::Tensor { name: name.to_owned(), source };
        // The strides are products of the other lengths even if one length is zero, so these products must not overflow.
        let most = shape.iter().try_fold(1_usize, |elements, length| elements.checked_mul((*length).max(1)));
        let elements = most.map(|most| if shape.contains(&0) { 0 } else { most });
        let end = elements.and_then(|elements| elements.checked_mul(dtype.size_in_bytes())?.checked_add(offset));
        let (Some(elements), Some(_)) = (elements, end.filter(|end| *end <= self.length)) else {
            let message = format!("its shape {shape:?} needs more bytes than the file has");
            return Err(unsupported(candle_core::Error::Msg(message)));
        };
        if elements == 0 {
            return Tensor::zeros(shape, dtype, &candle_core::Device::Cpu).map_err(unsupported);
        }
        if !offset.is_multiple_of(dtype.size_in_bytes()) {
            let message = format!("its data begin at byte {offset}, which is not aligned");
            return Err(unsupported(candle_core::Error::Msg(message)));
        }
        // SAFETY: the offset lies within the mapping, as was just checked.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: `start` is aligned for the type that `dtype` names and followed by `elements` values of it inside the
        // mapping, which is writable and stays for ever; every bit pattern is a value of these types. No other tensor
        // lies over these bytes, because each is requested once. The vectors are never dropped, see below.
        let storage = unsafe {
            match dtype {
                DType::U8 => CpuStorage::U8(foreign(start, elements)),
                DType::U32 => CpuStorage::U32(foreign(start, elements)),
                DType::I16 => CpuStorage::I16(foreign(start, elements)),
                DType::I32 => CpuStorage::I32(foreign(start, elements)),
                DType::I64 => CpuStorage::I64(foreign(start, elements)),
                DType::BF16 => CpuStorage::BF16(foreign(start, elements)),
                DType::F16 => CpuStorage::F16(foreign(start, elements)),
                DType::F32 => CpuStorage::F32(foreign(start, elements)),
                DType::F64 => CpuStorage::F64(foreign(start, elements)),
                DType::F8E4M3 => CpuStorage::F8E4M3(foreign(start, elements)),
                _ => {
                    return Err(ShareError::Dtype { name: name.to_owned(), dtype });
                }
            }
        };
        let tensor = Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false);
        // candle shares storage by reference count. Because this clone is leaked, the count never becomes zero, and the
        // vector's memory never goes to an allocator that did not allocate it.
        std::mem::forget(tensor.clone());
        Ok(tensor)
    }
}

/// Reads a tensor that begins at byte `start` of a file into its own memory.
pub(super) fn read_tensor(
    name: &str,
    file: &File,
    start: u64,
    dtype: DType,
    shape: &[usize],
) -> Result<Tensor, ShareError> {
    let elements = shape.iter().product();
    let storage = match dtype {
        DType::U8 => read(file, start, elements).map(CpuStorage::U8),
        DType::U32 => read(file, start, elements).map(CpuStorage::U32),
        DType::I16 => read(file, start, elements).map(CpuStorage::I16),
        DType::I32 => read(file, start, elements).map(CpuStorage::I32),
        DType::I64 => read(file, start, elements).map(CpuStorage::I64),
        DType::BF16 => read(file, start, elements).map(CpuStorage::BF16),
        DType::F16 => read(file, start, elements).map(CpuStorage::F16),
        DType::F32 => read(file, start, elements).map(CpuStorage::F32),
        DType::F64 => read(file, start, elements).map(CpuStorage::F64),
        DType::F8E4M3 => read(file, start, elements).map(CpuStorage::F8E4M3),
        _ => return Err(ShareError::Dtype { name: name.to_owned(), dtype }),
    };
    let storage = storage.map_err(|source| ShareError::File { what: format!("read `{name}` of"), source })?;
    Ok(Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false))
}

/// Reads numbers of a type that candle's storage has.
fn read<T: WithDType>(file: &File, start: u64, length: usize) -> io::Result<Vec<T>> {
    let mut numbers = vec![T::zero(); length];
    // SAFETY: the slice is initialised and has no padding, and every bit pattern is a valid number, so any bytes may be
    // read into it; the lifetime is the slice's.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast::<u8>(), size_of_val(numbers.as_slice())) };
    file.read_exact_at(bytes, start)?;
    Ok(numbers)
}

/// From this size on, glibc's allocator gives a vector its own pages, and frees them to the system with the vector: cells
/// set its `M_MMAP_THRESHOLD` to at most this (`keep_freed_memory`). Smaller vectors share pages, and are copied.
const OWN_PAGES_BYTES: usize = 256 << 20;

/// A tensor of the data from byte `start` of a file. It has its own memory; if the tensor is large, its pages are those of the file.
pub(super) fn map_tensor(
    name: &str,
    file: &File,
    start: u64,
    dtype: DType,
    shape: &[usize],
) -> Result<Tensor, ShareError> {
    let elements: usize = shape.iter().product();
    let storage = match dtype {
        DType::U8 => map(file, start, elements).map(CpuStorage::U8),
        DType::U32 => map(file, start, elements).map(CpuStorage::U32),
        DType::I16 => map(file, start, elements).map(CpuStorage::I16),
        DType::I32 => map(file, start, elements).map(CpuStorage::I32),
        DType::I64 => map(file, start, elements).map(CpuStorage::I64),
        DType::BF16 => map::<u16>(file, start, elements).map(|bits| CpuStorage::BF16(bits.reinterpret_into())),
        DType::F16 => map::<u16>(file, start, elements).map(|bits| CpuStorage::F16(bits.reinterpret_into())),
        DType::F32 => map(file, start, elements).map(CpuStorage::F32),
        DType::F64 => map(file, start, elements).map(CpuStorage::F64),
        _ => return Err(ShareError::Dtype { name: name.to_owned(), dtype }),
    };
    let storage = storage.map_err(|source| ShareError::File { what: format!("map `{name}` of"), source })?;
    Ok(Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false))
}

/// Numbers at byte `start` of a file, in a vector of the allocator. The whole pages of a large vector become private pages of the
/// file, if both begin at the same place of a page and nobody can change or shorten the file; anything else is read.
fn map<T: Copy + Default + bytemuck::Pod>(file: &File, start: u64, length: usize) -> io::Result<Vec<T>> {
    // The system clears large new memory when it is first used, so these pages cost nothing before they are replaced.
    let mut numbers = vec![T::default(); length];
    let page = rustix::param::page_size();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut numbers);
    let head = bytes.as_ptr().align_offset(page).min(bytes.len());
    let whole = (bytes.len() - head) / page * page;
    let from = start + head as u64;
    if bytes.len() < OWN_PAGES_BYTES || !from.is_multiple_of(page as u64) || !is_fixed(file) {
        file.read_exact_at(bytes, start)?;
        return Ok(numbers);
    }
    // A page beyond the file's end could not be read.
    if file.metadata()?.len() < start + bytes.len() as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    let pages = &mut bytes[head..head + whole];
    // SAFETY: these whole pages are within the vector, which nothing else refers to yet, and stay readable and writable. The
    // allocator has no data of its own in a vector. It gives them back to the system with the vector, whatever they map. The
    // file is sealed, so that it is not shorter than they are and its bytes do not change; all bytes are numbers.
    unsafe { mmap(pages.as_mut_ptr().cast(), whole, access, kind, file, from)? };
    file.read_exact_at(&mut bytes[..head], start)?;
    file.read_exact_at(&mut bytes[head + whole..], from + whole as u64)?;
    Ok(numbers)
}

/// Whether nobody can change or shorten the file.
fn is_fixed(file: &File) -> bool {
    // An error means a file without seals. `FUTURE_WRITE` is not enough: a process that has the file mapped, such as a fork, may write.
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::WRITE))
}

/// A vector over foreign memory, which must never be dropped or grown.
///
/// # Safety
/// `start` is aligned for `T` and followed by `length` valid elements that nothing else uses.
unsafe fn foreign<T>(start: *mut u8, length: usize) -> Vec<T> {
    // SAFETY: the caller guarantees it; the allocator never gets the memory, because the vector is never dropped.
    unsafe { Vec::from_raw_parts(start.cast(), length, length) }
}

/// Passes the bytes of a contiguous tensor on the CPU to `write`, without a copy.
pub(super) fn with_bytes(
    name: &str,
    tensor: &Tensor,
    write: impl FnOnce(&[u8]) -> Result<(), ShareError>,
) -> Result<(), ShareError> {
    let (storage, layout) = tensor.storage_and_layout();
    let (Storage::Cpu(storage), Some(range)) = (&*storage, layout.contiguous_offsets()) else {
        let message = "it is not contiguous in main memory".to_owned();
        return Err(ShareError::Tensor { name: name.to_owned(), source: candle_core::Error::Msg(message) });
    };
    let bytes = match storage {
        CpuStorage::U8(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::U32(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::I16(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::I32(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::I64(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::BF16(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::F16(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::F32(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::F64(data) => bytes_of(&data[range.0..range.1]),
        CpuStorage::F8E4M3(data) => bytes_of(&data[range.0..range.1]),
        _ => {
            return Err(ShareError::Dtype { name: name.to_owned(), dtype: tensor.dtype() });
        }
    };
    write(bytes)
}

/// The bytes of numbers in memory; safetensors and every machine that candle runs on are little-endian.
fn bytes_of<T: Copy>(numbers: &[T]) -> &[u8] {
    // SAFETY: the slice is initialised and has no padding, being of plain numbers; the lifetime is the slice's.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// A tensor over the bytes of a file from `offset` on, without a copy, for formats whose header is not that of safetensors. `shape` has the innermost dimension last.
///
/// The mapping is private and never unmapped: a change of the tensor stays in this process. Nobody may shorten the file while
/// the tensor is used.
///
/// Fails if the file cannot be mapped or has too few bytes, or if the numbers are not aligned.
pub fn map_array(path: &Path, offset: usize, dtype: DType, shape: &[usize]) -> Result<Tensor, ShareError> {
    let mapping = File::open(path).and_then(|file| Mapping::new(&file));
    let mapping = mapping.map_err(|source| ShareError::File { what: format!("map {}:", path.display()), source })?;
    mapping.tensor_at(&path.display().to_string(), offset, dtype, shape)
}
