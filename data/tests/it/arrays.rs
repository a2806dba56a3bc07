//! Tests of mapped files of arrays. Tests in notebooks cover the files that a reader's process reads.

use candle_core::{DType, Device, Tensor};
use ferrotune_data::{Dataset, npy, safetensors};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Writes a file in the form of `numpy.save`: the numbers begin at a multiple of 64.
fn write_npy(file: &Path, descr: &str, fortran_order: &str, shape: &str, numbers: &[u8]) -> Result {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let length = u16::try_from(header.len())?.to_le_bytes();
    Ok(std::fs::write(file, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), numbers].concat())?)
}

fn folder(name: &str) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("ferrotune-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn floats(count: u8) -> Vec<u8> {
    (0..count).flat_map(|number| f32::from(number).to_le_bytes()).collect()
}

#[test]
fn an_array_lies_over_its_file() -> Result {
    let folder = folder("npy")?;
    let file = folder.join("rows.npy");
    write_npy(&file, "<f4", "False", "(3, 2)", &floats(6))?;
    let rows = npy(&file)?;
    assert_eq!(rows.to_vec2::<f32>()?, [[0., 1.], [2., 3.], [4., 5.]]);
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    assert!(maps.contains(file.to_str().ok_or("no text")?), "it is mapped");
    let batch = Dataset::from_tensors(rows)?.skip(1).batch(2, true).iter().next().ok_or("no batch")??;
    assert_eq!(batch.to_vec2::<f32>()?, [[2., 3.], [4., 5.]]);
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
fn an_array_in_fortrans_order_is_a_view() -> Result {
    let folder = folder("fortran")?;
    let file = folder.join("columns.npy");
    write_npy(&file, "<f4", "True", "(2, 3)", &floats(6))?;
    let columns = npy(&file)?;
    assert_eq!(columns.to_vec2::<f32>()?, [[0., 2., 4.], [1., 3., 5.]]);
    assert!(!columns.is_contiguous());
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
fn arrays_without_numbers_and_with_one() -> Result {
    let folder = folder("small")?;
    let file = folder.join("empty.npy");
    write_npy(&file, "<f8", "True", "(0, 5)", &[])?;
    assert_eq!((npy(&file)?.dims(), npy(&file)?.dtype()), (&[0, 5][..], DType::F64));
    let file = folder.join("one.npy");
    write_npy(&file, "|b1", "True", "()", &[1])?;
    assert_eq!(npy(&file)?.to_scalar::<u8>()?, 1);
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
fn what_does_not_fit_is_an_error() -> Result {
    let folder = folder("damaged")?;
    let file = folder.join("rows.npy");
    let failed = |reason: &str| {
        let error = npy(&file).map_or_else(|error| error.to_string(), |read| format!("{read:?}"));
        assert!(error.starts_with(&format!("cannot read {}: {reason}", file.display())), "{error}");
    };
    write_npy(&file, "<f4", "False", "(7,)", &floats(6))?;
    failed("its shape [7] of f32 does not match the 24 bytes behind its header; save it again");
    write_npy(&file, "<f4", "False", "(5,)", &floats(6))?;
    failed("its shape [5] of f32 does not match the 24 bytes");
    write_npy(&file, "<f4", "False", "(4611686018427387905, 4)", &floats(4))?;
    failed("its shape [4611686018427387905, 4] of f32 does not match the 16 bytes");
    write_npy(&file, ">f4", "False", "(6,)", &floats(6))?;
    failed("its type >f4 is none of candle's; save `array.astype(\"<f4\")`");
    write_npy(&file, "<c8", "False", "(3,)", &floats(6))?;
    failed("its type <c8 is complex; save `array.real`");
    write_npy(&file, "|O", "False", "(3,)", &floats(6))?;
    failed("its type |O is none of candle's");
    for cut in 0..100 {
        write_npy(&file, "<f4", "True", "(3, 2)", &floats(6))?;
        let whole = std::fs::read(&file)?;
        std::fs::write(&file, &whole[..cut])?;
        failed("it");
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
fn tensors_have_the_names_of_their_file() -> Result {
    let folder = folder("safetensors")?;
    let file = folder.join("rows.safetensors");
    let images = Tensor::arange(0f32, 6., &Device::Cpu)?.reshape((3, 2))?;
    let labels = Tensor::new(&[2i64, 0, 1], &Device::Cpu)?;
    let tensors = HashMap::from([("images".to_owned(), images.clone()), ("labels".to_owned(), labels)]);
    candle_core::safetensors::save(&tensors, &file)?;
    let read = safetensors(&file)?;
    assert_eq!(read.keys().collect::<Vec<_>>(), ["images", "labels"]);
    assert_eq!(read["images"].to_vec2::<f32>()?, images.to_vec2::<f32>()?);
    assert_eq!((read["labels"].dtype(), read["labels"].to_vec1::<i64>()?), (DType::I64, vec![2, 0, 1]));
    let whole = std::fs::read(&file)?;
    for cut in (0..whole.len()).rev() {
        std::fs::write(&file, &whole[..cut])?;
        let error = safetensors(&file).map_or_else(|error| error.to_string(), |_| "none".to_owned());
        let reason = format!("cannot read {}: it is no whole safetensors file (", file.display());
        assert!(error.starts_with(&reason) && error.ends_with("; copy or save it again"), "{error}");
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
