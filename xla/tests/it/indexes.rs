//! Tests that an index out of range is an error of each read that depends on it, and of no other read.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_xla::{Step, backend_of};
use std::process::Command;

fn failure(result: Result<Tensor>) -> String {
    let read = result.and_then(|tensor| tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>());
    read.expect_err("an index is out of range").to_string()
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_it() -> Result<()> {
    let device = plugin::open()?;
    let pair = Tensor::new(&[5i64, 6], &device)?;
    let picked = pair.index_select(&Tensor::new(&[1u32, 2], &device)?, 0)?;
    let error = picked.to_vec1::<i64>().expect_err("there is no element 2").to_string();
    let expected = "index 2 is out of range for dimension 0 of size 2 in index_select; the tensor has the shape [2] and its \
                    indexes [2]";
    assert_eq!(error.lines().next(), Some(expected));

    let x = Tensor::ones((2, 3), DType::F32, &device)?;
    let labels = Tensor::new(&[[0i64, 1, -100], [0, 0, 0]], &device)?;
    let expected = "index -100 is out of range for dimension 1 of size 3 in gather; the tensor has the shape [2, 3] and its \
                    indexes [2, 3], and a negative index does not count from the end";
    assert_eq!(failure(x.gather(&labels, 1)).lines().next(), Some(expected));

    let four = Tensor::new(&[1u8, 4], &device)?;
    let added = x.index_add(&four, &x.narrow(1, 0, 2)?, 1);
    assert!(failure(added).starts_with("index 4 is out of range for dimension 1 of size 3 in index_add;"));
    let rows = Tensor::new(&[[0u32, 1, 9], [0, 0, 0]], &device)?;
    assert!(
        failure(x.scatter(&rows, &x, 0)).starts_with("index 9 is out of range for dimension 0 of size 2 in scatter;")
    );
    assert!(failure(x.scatter_add(&rows, &x, 0)).contains("size 2 in scatter_add;"));
    let column = Tensor::new(&[[i64::MIN], [1]], &device)?;
    assert!(failure(x.gather(&column, 1)).starts_with("index -9223372036854775807 is out of range"));
    assert!(failure(x.scatter_add(&column, &x.narrow(1, 0, 1)?, 1)).contains("in scatter_add;"));
    Ok(())
}

#[test]
fn the_greatest_index_of_a_type_is_padding_also_where_the_dimension_is_longer() -> Result<()> {
    let device = plugin::open()?;
    let run = |device: &Device| -> Result<Vec<f32>> {
        let x = Tensor::ones(300, DType::F32, device)?;
        x.index_select(&Tensor::new(&[0u8, 255, 254], device)?, 0)?.to_vec1()
    };
    assert_eq!(run(&device)?, run(&Device::Cpu)?);
    Ok(())
}

#[test]
fn a_value_with_a_wrong_index_stays_an_error_and_others_of_its_program_do_not() -> Result<()> {
    let device = plugin::open()?;
    let x = Tensor::new(&[5f32, 6.], &device)?;
    let [good, bad] = [1u32, 2].map(|index| x.index_select(&Tensor::new(&[index], &device)?, 0));
    let (good, bad) = (good?, bad?);
    // The program of the first read computes both variables.
    let kept = [Var::zeros(1, DType::F32, &device)?, Var::zeros(1, DType::F32, &device)?];
    kept[0].set(&good.affine(2., 0.)?)?;
    kept[1].set(&bad.affine(2., 0.)?)?;
    assert_eq!(kept[0].to_vec1::<f32>()?, [12.]);
    for _ in 0..2 {
        assert!(failure(Ok(kept[1].as_tensor().clone())).contains("index 2 is out of range"));
        assert!(failure(bad.clone() + 1.).contains("index 2 is out of range"));
        assert!(failure(kept[1].sqr()).contains("index 2 is out of range"));
    }
    assert_eq!((kept[0].as_tensor() + &good)?.to_vec1::<f32>()?, [18.]);
    drop(bad);
    let later = x.index_select(&Tensor::new(&[7u32], &device)?, 0)?;
    let error = device.synchronize().expect_err("it has computed this one").to_string();
    assert!(error.contains("index 7 is out of range"), "{error}");
    device.synchronize()?;
    assert!(failure(Ok(later)).contains("index 7 is out of range"));
    Ok(())
}

#[test]
fn a_program_without_indexes_has_no_further_result() -> Result<()> {
    let device = plugin::open()?;
    let mut step = Step::new(&device, |x: &[Tensor]| Ok(vec![x[0].sqr()?]));
    assert!(!step.stablehlo(&[Tensor::ones(2, DType::F32, &device)?])?.contains("i64"));
    Ok(())
}

#[test]
fn a_step_refuses_arguments_with_a_wrong_index_and_keeps_its_variables() -> Result<()> {
    let device = plugin::open()?;
    let weight = Var::ones(2, DType::F32, &device)?;
    let mut step = Step::new(&device, |x: &[Tensor]| {
        weight.set(&(weight.as_tensor() + &x[0])?)?;
        Ok(vec![weight.as_tensor().clone()])
    });
    let data = Tensor::arange(0f32, 4., &device)?;
    let batch = |indexes: [u32; 2]| data.index_select(&Tensor::new(&indexes, &device)?, 0);
    step.run(&[batch([1, 2])?])?;
    let error = step.run(&[batch([1, 4])?]).expect_err("there is no row 4").to_string();
    assert!(error.contains("index 4 is out of range for dimension 0 of size 4 in index_select"), "{error}");
    assert_eq!(weight.to_vec1::<f32>()?, [2., 3.]);
    Ok(())
}

/// The two results of a step that embeds indexes and changes a variable; the indexes are wrong in its second run.
fn embed(device: &Device) -> Result<[Result<Vec<f32>>; 2]> {
    let weight = Var::ones(2, DType::F32, device)?;
    let mut step = Step::new(device, |x: &[Tensor]| {
        let picked = weight.index_select(&x[0], 0)?;
        weight.set(&weight.index_add(&x[0], &picked, 0)?)?;
        Ok(vec![picked])
    });
    let mut run = |index: u32| step.run(&[Tensor::new(&[index], device)?])?[0].to_vec1();
    run(1)?;
    let read = run(2);
    Ok([read, weight.to_vec1()])
}

/// Runs one of the tests below in a process with another environment, and returns its standard error.
fn with_checks(setting: Option<&str>, test: &str) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ignored", "--exact", "--nocapture", test]).env_remove("FERROTUNE_CHECK_INDEXES");
    setting.map(|setting| command.env("FERROTUNE_CHECK_INDEXES", setting));
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{test} is no test");
    assert!(output.status.success(), "{test} with {setting:?}: {said}\n{}", String::from_utf8_lossy(&output.stdout));
    Ok(said)
}

#[test]
fn a_compiled_step_says_once_that_it_does_not_check() -> Result<()> {
    let expected = "ferrotune: this compiled step does not check its indexes: one out of range reads NaN (0 among integers) \
                    and writes nothing; FERROTUNE_CHECK_INDEXES=1 makes it an error, and 0 omits this line\n";
    assert_eq!(with_checks(None, "indexes::unchecked_step")?, expected);
    assert_eq!(with_checks(Some("0"), "indexes::unchecked_step")?, "");
    Ok(())
}

#[test]
fn a_compiled_step_checks_if_it_was_asked_to() -> Result<()> {
    assert_eq!(with_checks(Some("1"), "indexes::checked_step")?, "");
    Ok(())
}

#[test]
fn nothing_is_checked_if_it_was_asked_not_to() -> Result<()> {
    assert_eq!(with_checks(Some("0"), "indexes::unchecked_lazy_code")?, "");
    with_checks(Some("yes"), "indexes::unknown_setting").map(drop)
}

#[test]
#[ignore = "needs an environment of its own"]
fn unchecked_step() -> Result<()> {
    let device = plugin::open()?;
    for _ in 0..2 {
        let [read, weight] = embed(&device)?;
        assert!(read?[0].is_nan());
        assert_eq!(weight?, [1., 2.]);
    }
    Ok(())
}

#[test]
#[ignore = "needs an environment of its own"]
fn checked_step() -> Result<()> {
    let device = plugin::open()?;
    let [read, weight] = embed(&device)?;
    let error = read.expect_err("there is no element 2").to_string();
    assert!(error.contains("index 2 is out of range for dimension 0 of size 2 in index_"), "{error}");
    assert_eq!(weight?, [1., 2.], "the variable has lost its value");
    Ok(())
}

#[test]
#[ignore = "needs an environment of its own"]
fn unchecked_lazy_code() -> Result<()> {
    let device = plugin::open()?;
    let x = Tensor::new(&[1f32, 2., 3.], &device)?;
    let indices = Tensor::new(&[0i64, -1, 3, 2], &device)?;
    let selected = x.index_select(&indices, 0)?.to_vec1::<f32>()?;
    assert!(selected[1].is_nan() && selected[2].is_nan(), "{selected:?}");
    assert_eq!((selected[0], selected[3]), (1., 3.));
    let whole = x.to_dtype(DType::I64)?.index_select(&indices, 0)?;
    assert_eq!(whole.to_vec1::<i64>()?, [1, 0, 0, 3]);
    let added = x.index_add(&indices, &Tensor::new(&[10f32, 20., 30., 40.], &device)?, 0)?;
    assert_eq!(added.to_vec1::<f32>()?, [11., 2., 43.]);
    Ok(())
}

#[test]
#[ignore = "needs an environment of its own"]
fn unknown_setting() -> Result<()> {
    let device = plugin::open()?;
    let error = Tensor::ones(2, DType::F32, &device)?.sqr()?.to_vec1::<f32>().expect_err("a bad setting").to_string();
    assert!(error.contains("FERROTUNE_CHECK_INDEXES is \"yes\"; 1 checks indexes in compiled steps, too"), "{error}");
    assert!(backend_of(&device).is_some());
    Ok(())
}
