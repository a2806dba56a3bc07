//! Reductions among CUDA devices through NVIDIA's NCCL, in one process or in several processes of a cluster.
//!
//! NCCL waits for ever for a replica that has ended. So all replicas first meet through the host's memory, and over TCP with those of
//! other processes; there, a missing replica is an error. If a process dies after this meeting, the others wait for ever.

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
    /// This replica's connection to NCCL, from its first step in a scope on.
    static LINK: RefCell<Option<Link>> = const { RefCell::new(None) };
}

struct Link {
    /// The scope for which the connection was made. The only replica of a process runs all scopes on one thread, whose connection may
    /// be that of an earlier scope.
    scope: u64,
    comm: Comm,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Dropping the connection aborts operations that are still running.
        if let Err(error) = self.comm.stream().synchronize() {
            eprintln!("ferrotune: gradients may not have arrived: {error:?}");
        }
    }
}

/// Whether each replica of this process has its own CUDA device, and there is another replica. The other processes of a cluster
/// check their own devices at the meeting.
pub(super) fn serves(strategy: &Strategy) -> bool {
    let devices = strategy.devices();
    let is_own = |(place, device): (usize, &String)| device.starts_with("cuda") && !devices[..place].contains(device);
    strategy.num_replicas_in_sync() > 1 && devices.iter().enumerate().all(is_own)
}

/// The mean of a row of values over all replicas, on their devices.
pub(super) fn mean(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    meet(replica, values.elem_count())?;
    LINK.with_borrow_mut(|link| {
        let link = match link.take().filter(|link| link.scope == replica.scope()) {
            Some(open) => link.insert(open),
            None => link.insert(open(replica, values)?),
        };
        match values.dtype() {
            DType::F64 => reduce::<f64>(&link.comm, values),
            _ => reduce::<f32>(&link.comm, values),
        }
    })
}

/// Waits for all replicas, and checks that they have the same number of values.
fn meet(replica: &Replica<'_>, length: usize) -> Result<()> {
    // Only this replica writes to its slot, so the mean over all replicas is the written value divided by their number.
    let mut lengths = vec![0.0_f64; replica.count()];
    lengths[replica.index()] = (length * replica.count()) as f64;
    replica.all_reduce_mean(&mut lengths).map_err(Error::wrap)?;
    match lengths.iter().find(|other| **other != length as f64) {
        Some(other) => Err(Error::wrap(StrategyError::Lengths { first: length, other: *other as usize })),
        None => Ok(()),
    }
}

/// Connects to the other replicas, which call this function at the same time.
fn open(replica: &Replica<'_>, values: &Tensor) -> Result<Link> {
    let stream = values.device().as_cuda_device()?.cuda_stream();
    stream.context().bind_to_thread().map_err(|error| failed("bind the device", &error))?;
    let uuid = stream.context().uuid().map_err(|error| failed("read the device's name", &error))?;
    check_own_devices(&gathered(replica, Some(uuid.bytes), replica.count())?)?;
    // The NCCL id of this connection, which the first replica makes.
    let id = if replica.index() == 0 { Some(Id::new().map_err(|error| failed("begin", &error))?) } else { None };
    let names = gathered(replica, id.map(|id| *id.internal()), 1)?;
    let id = Id::uninit(names.first().copied().unwrap_or([0; 128]));
    let comm = Comm::from_rank(stream, replica.index(), replica.count(), id);
    let comm = comm.map_err(|error| failed("join the other devices", &error))?;
    Ok(Link { scope: replica.scope(), comm })
}

/// Distributes the bytes of the first `replicas` replicas to all replicas. A replica without bytes passes `None`.
fn gathered<const N: usize>(replica: &Replica<'_>, own: Option<[i8; N]>, replicas: usize) -> Result<Vec<[i8; N]>> {
    let mut values = vec![0.0_f32; N * replicas];
    for (value, byte) in values.iter_mut().skip(N * replica.index()).zip(own.iter().flatten()) {
        // The other replicas add zeros, and small whole numbers are exact in the mean.
        *value = f32::from(byte.cast_unsigned()) * replica.count() as f32;
    }
    replica.all_reduce_mean(&mut values).map_err(Error::wrap)?;
    let bytes = |chunk: &[f32; N]| chunk.map(|value| (value as u8).cast_signed());
    Ok(values.as_chunks().0.iter().map(bytes).collect())
}

/// Refuses a CUDA device that two replicas share, in one process or two, because NCCL does not support that.
fn check_own_devices(uuids: &[[i8; 16]]) -> Result<()> {
    for (replica, uuid) in uuids.iter().enumerate() {
        if let Some(first) = uuids[..replica].iter().position(|other| other == uuid) {
            candle_core::bail!(
                "replicas {first} and {replica} have the same CUDA device; name another one for each, as in \
                 Strategy::mirrored([\"cuda:0\", \"cuda:1\"]), or in each process with CUDA_VISIBLE_DEVICES"
            );
        }
    }
    Ok(())
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
