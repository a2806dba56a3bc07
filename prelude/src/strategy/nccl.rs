//! CUDA devices of one process reduce among themselves, through NVIDIA's NCCL. It serves no other processes.
//!
//! NCCL waits for ever for a replica that has ended, so all replicas meet through the host's memory first, where a missing
//! one is an error.

use candle_core::backend::BackendStorage as _;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DeviceRepr, ValidAsZeroBits};
use candle_core::cuda_backend::cudarc::nccl::{Comm, Id, ReduceOp};
use candle_core::cuda_backend::{CudaDType, CudaStorage};
use candle_core::op::BackpropOp;
use candle_core::{DType, Error, Result, Storage, Tensor};
use ferrotune_devices::{Replica, Strategy, StrategyError};
use std::cell::RefCell;
use std::fmt::Debug;

thread_local! {
    /// This replica's place among the devices. A replica of several has a thread of its own for as long as its scope.
    static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
}

struct Link {
    comm: Comm,
}

impl Drop for Link {
    fn drop(&mut self) {
        // This aborts operations that are still running.
        if let Err(error) = self.comm.stream().synchronize() {
            eprintln!("ferrotune: gradients may not have arrived: {error:?}");
        }
    }
}

/// Whether each replica has a CUDA device of its own in this process.
pub(super) fn serves(strategy: &Strategy) -> bool {
    let devices = strategy.devices();
    let is_own = |(place, device): (usize, &String)| device.starts_with("cuda") && !devices[..place].contains(device);
    strategy.cluster().is_none() && devices.len() > 1 && devices.iter().enumerate().all(is_own)
}

/// The mean of a row of values over all replicas, on their devices.
pub(super) fn mean(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    meet(replica, values.elem_count())?;
    LINK.with_borrow_mut(|link| {
        let link = match link {
            Some(link) => link,
            None => link.insert(open(replica, values)?),
        };
        match values.dtype() {
            DType::F64 => reduce::<f64>(&link.comm, values),
            _ => reduce::<f32>(&link.comm, values),
        }
    })
}

/// Waits for all replicas, and makes sure that they have equally many values.
fn meet(replica: &Replica<'_>, length: usize) -> Result<()> {
    // Only this replica writes to its slot, so the mean over all replicas is what it wrote divided by their number.
    let mut lengths = vec![0.0_f64; replica.count()];
    lengths[replica.index()] = (length * replica.count()) as f64;
    replica.all_reduce_mean(&mut lengths).map_err(Error::wrap)?;
    match lengths.iter().find(|other| **other != length as f64) {
        Some(other) => Err(Error::wrap(StrategyError::Lengths { first: length, other: *other as usize })),
        None => Ok(()),
    }
}

/// Joins the other replicas, which call this at the same time.
fn open(replica: &Replica<'_>, values: &Tensor) -> Result<Link> {
    let stream = values.device().as_cuda_device()?.cuda_stream();
    stream.context().bind_to_thread().map_err(|error| failed("bind the device", &error))?;
    // The first replica's name for this meeting; small whole numbers are exact in the mean.
    let mut name = [0.0_f32; 128];
    if replica.index() == 0 {
        let id = Id::new().map_err(|error| failed("begin", &error))?;
        for (value, byte) in name.iter_mut().zip(id.internal()) {
            *value = f32::from(byte.cast_unsigned()) * replica.count() as f32;
        }
    }
    replica.all_reduce_mean(&mut name).map_err(Error::wrap)?;
    let id = Id::uninit(name.map(|value| (value as u8).cast_signed()));
    let comm = Comm::from_rank(stream, replica.index(), replica.count(), id);
    Ok(Link { comm: comm.map_err(|error| failed("join the other devices", &error))? })
}

fn reduce<T>(comm: &Comm, values: &Tensor) -> Result<Tensor>
where
    T: CudaDType + DeviceRepr + ValidAsZeroBits + candle_core::cuda_backend::cudarc::nccl::NcclType,
{
    let values = values.contiguous()?;
    let (storage, layout) = values.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        candle_core::bail!("a gradient is not on the CUDA device of its replica")
    };
    let device = storage.device().clone();
    let start = layout.start_offset();
    let own = storage.as_cuda_slice::<T>()?.slice(start..start + values.elem_count());
    let mut mean: CudaSlice<T> = device.alloc_zeros(values.elem_count())?;
    comm.all_reduce(&own, &mut mean, &ReduceOp::Avg).map_err(|error| failed("reduce", &error))?;
    let mean = Storage::Cuda(CudaStorage::wrap_cuda_slice(mean, device));
    Ok(Tensor::from_storage(mean, values.shape().clone(), BackpropOp::none(), false))
}

fn failed(what: &str, error: &impl Debug) -> Error {
    Error::Msg(format!("NCCL cannot {what}: {error:?}"))
}
