//! Tests of captured variables, from the cell's process through the memory file into a worker.

use crate::harness::{on_disk, run, spec};
use candle_core::{DType, Device, Tensor};
use ferrotune_devices::{Precision, Strategy};
use ferrotune_space::event::Finish;
use ferrotune_trial::{Pack, Share, ShareError, Shared, share_fields};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

fn path_of(memfd: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), memfd.as_raw_fd()).into()
}

fn round_trip<T: Share>(variable: &T) -> T {
    let mut pack = Pack::new();
    pack.add("it", variable).unwrap();
    let memfd = pack.into_memfd().unwrap();
    T::unpack("it", &Shared::open(&path_of(&memfd)).unwrap()).unwrap()
}

#[derive(Debug, PartialEq)]
struct Settings {
    name: String,
    rates: Vec<f64>,
    sizes: (usize, [u16; 2]),
}
share_fields!(Settings { name, rates, sizes });

#[test]
fn plain_values_come_back_as_they_were() {
    assert_eq!(round_trip(&"two\nlines".to_owned()), "two\nlines");
    assert_eq!(round_trip(&(true, 'x', -5_i8, u64::MAX)), (true, 'x', -5, u64::MAX));
    assert_eq!(
        round_trip(&[0.1_f64, -0.0, f64::INFINITY]).map(f64::to_bits),
        [0.1, -0.0, f64::INFINITY].map(f64::to_bits)
    );
    assert!(round_trip(&f32::NAN).is_nan());
    assert_eq!(round_trip(&vec![Some(1_usize), None]), [Some(1), None]);
    assert_eq!(round_trip(&Vec::<f32>::new()), Vec::<f32>::new());
    assert_eq!(round_trip(&vec![true, false]), [true, false]);
    let map = HashMap::from([("a".to_owned(), 1_u32), ("b".to_owned(), 2)]);
    assert_eq!(round_trip(&map), map);
    let strategy = Strategy::mirrored(["cuda:0", "cuda:1"]).unwrap().with_precision(Precision::Bf16);
    assert_eq!(round_trip(&strategy), strategy);
    let settings = Settings { name: "mlp".to_owned(), rates: vec![0.1, 0.2], sizes: (3, [4, 5]) };
    assert_eq!(round_trip(&settings), settings);
}

#[test]
fn tensors_of_every_type_and_layout_come_back_aligned() {
    let base = Tensor::arange(0_f32, 60., &Device::Cpu).unwrap().reshape((3, 4, 5)).unwrap();
    let types =
        [DType::U8, DType::U32, DType::I64, DType::BF16, DType::F16, DType::F32, DType::F64, DType::I16, DType::I32];
    let mut tensors: Vec<Tensor> = types.iter().map(|dtype| base.to_dtype(*dtype).unwrap()).collect();
    tensors.extend([
        base.transpose(0, 2).unwrap(),
        base.narrow(1, 1, 2).unwrap(),
        base.get(2).unwrap(),
        base.narrow(0, 0, 0).unwrap(),
        base.sum_all().unwrap(),
    ]);
    for (packed, unpacked) in tensors.iter().zip(round_trip(&tensors)) {
        assert_eq!((packed.dims(), packed.dtype()), (unpacked.dims(), unpacked.dtype()));
        let numbers = |tensor: &Tensor| tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
        assert_eq!(numbers(packed).unwrap(), numbers(&unpacked).unwrap());
    }
}

#[test]
fn memory_file_is_a_safetensors_file_that_nobody_can_change() {
    let mut pack = Pack::new();
    pack.add("data", &Tensor::ones(3, DType::F32, &Device::Cpu).unwrap()).unwrap();
    pack.add("labels", &Tensor::ones(5, DType::U8, &Device::Cpu).unwrap()).unwrap();
    let memfd = pack.into_memfd().unwrap();
    let bytes = std::fs::read(path_of(&memfd)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("labels").unwrap().data(), [1; 5]);
    assert_eq!((tensors.tensor("labels").unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize) % 64, 0);
    let mut file = File::options().write(true).open(path_of(&memfd)).unwrap();
    assert!(file.write_all(b"x").is_err() && file.set_len(0).is_err());
}

#[test]
fn changes_of_one_process_stay_in_it_and_one_name_is_one_tensor() {
    let mut pack = Pack::new();
    pack.add("data", &Tensor::zeros(4, DType::F32, &Device::Cpu).unwrap()).unwrap();
    let memfd = pack.into_memfd().unwrap();
    let shared = Shared::open(&path_of(&memfd)).unwrap();
    let tensor = Tensor::unpack("data", &shared).unwrap();
    tensor.slice_set(&Tensor::ones(2, DType::F32, &Device::Cpu).unwrap(), 0, 1).unwrap();
    assert_eq!(Tensor::unpack("data", &shared).unwrap().to_vec1::<f32>().unwrap(), [0., 1., 1., 0.]);
    drop((tensor, shared));
    let again = Shared::open(&path_of(&memfd)).unwrap();
    assert_eq!(Tensor::unpack("data", &again).unwrap().to_vec1::<f32>().unwrap(), [0.; 4]);
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let mut pack = Pack::new();
    pack.add("text", &"abc".to_owned()).unwrap();
    let memfd = pack.into_memfd().unwrap();
    let shared = Shared::open(&path_of(&memfd)).unwrap();
    assert!(matches!(Tensor::unpack("data", &shared), Err(ShareError::Missing { name }) if name == "data"));
    let error = u32::unpack("text", &shared).unwrap_err().to_string();
    assert_eq!(error, "`text` is the text 'abc' among the shared data, which is no u32; run %%tune again");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0xff; 100]).unwrap();
    assert!(matches!(Shared::open(file.path()), Err(ShareError::Layout { .. })));
    assert!(matches!(Shared::open("/nowhere".as_ref()), Err(ShareError::File { .. })));
}

#[test]
fn worker_maps_a_quarter_gibibyte_without_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let mut pack = Pack::new();
    let data = Tensor::full(7_f32, (65_536, 1024), &Device::Cpu).unwrap().contiguous().unwrap();
    pack.add("data", &data).unwrap();
    drop(data);
    let memfd = pack.into_memfd().unwrap();
    let mut spec = spec(directory.path(), "shared", 1);
    spec.shared = Some(path_of(&memfd));
    // The budget counts only the memory that the trial itself holds.
    spec.memory_budget_bytes = Some(64 << 20);
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.events);
    let trials = on_disk(&spec);
    let metric = |name: &str| trials[0].metrics[&0][name].unwrap();
    assert_eq!(metric("same"), 1.0);
    assert!(metric("grown_kib") < 4096.0, "{} KiB", metric("grown_kib"));
    // The limit is far longer than a mapping takes on a busy machine.
    assert!(metric("open_ms") < 500.0, "{} ms", metric("open_ms"));
}
