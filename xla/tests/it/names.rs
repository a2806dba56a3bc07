//! Tests of the names of devices in texts.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor};
use ferrotune_xla::{Options, cores, open_with};

#[test]
fn a_device_has_its_own_name_in_all_texts() -> Result<()> {
    let device = open_with(&plugin::path()?, Options { name: Some("cuda"), ..Options::default() })?;
    let tensor = Tensor::new(&[1_f32, 2.], &device)?;
    assert_eq!(format!("{device:?} {:?} {:?}", device.location(), Some(Device::Cpu)), "cuda cuda Some(Cpu)");
    assert_eq!(tensor.to_string(), "[1., 2.]\nTensor[[2], f32, cuda]");
    assert_eq!(format!("{tensor:?}"), "Tensor[1, 2; f32, cuda]");
    let mismatch = (&tensor + &Tensor::ones(2, DType::F32, &Device::Cpu)?).expect_err("two devices").to_string();
    assert!(mismatch.starts_with("device mismatch in add, lhs: cuda, rhs: Cpu"), "{mismatch}");
    Ok(())
}

#[test]
fn a_device_is_opened_by_its_number() -> Result<()> {
    let options = |first| Options { name: Some("cuda:1"), first, ..Options::default() };
    let second = open_with(&plugin::path()?, options(1))?;
    let names = format!("{:?}", cores(&second)?);
    assert_eq!(names, "[cuda:1, cuda, cuda:2, cuda:3]");
    assert_eq!(Tensor::ones(3, DType::F32, &second)?.sum_all()?.to_scalar::<f32>()?, 3.);
    let missing = open_with(&plugin::path()?, options(4)).expect_err("there is no such device").to_string();
    assert!(missing.starts_with("cuda:1 needs 5 devices of its plugin, which has 4"), "{missing}");
    Ok(())
}
