//! Files of models: what is written, and what is refused without a change.

use crate::golden::{GOLDEN, assert_near, tensor, tensor_of};
use candle_core::{DType, Device, Result, Tensor};
use ferrotune_nn::{self as nn, Model};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const CPU: Device = Device::Cpu;

fn mlp() -> nn::Sequential {
    nn::mlp(3, &[4], 2).batch_norm().build(&CPU).unwrap()
}

fn all(model: &impl Model) -> HashMap<String, Vec<f32>> {
    let vars = model.vars().data().lock().unwrap();
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1().unwrap();
    vars.iter().map(|(name, var)| (name.clone(), flat(var))).collect()
}

#[test]
fn a_saved_model_loads_with_its_statistics() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let (model, other) = (mlp(), mlp());
    model.forward(&Tensor::randn(0_f32, 1.0, (8, 3), &CPU)?, true)?;
    fs::write(&path, "something old")?;
    model.save(&path)?;
    assert_ne!(all(&model), all(&other));
    other.load(&path)?;
    assert_eq!(all(&model), all(&other));
    let mut files: Vec<_> = fs::read_dir(&folder)?.map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["model.safetensors", "model.safetensors.json"]);

    let description: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join(&files[1]))?).unwrap();
    assert_eq!(description["ferrotune_model"], 1);
    assert_eq!(description["layers"][0]["output"][0], 4);
    let statistic = &description["variables"][3];
    assert_eq!(statistic["name"], "1.running_mean");
    assert_eq!((&statistic["dtype"], &statistic["is_trainable"]), (&"f32".into(), &false.into()));
    Ok(())
}

/// As PyTorch writes it: no description, and a counter that candle does not have.
#[test]
fn a_file_of_another_program_loads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let model = mlp();
    let vars = model.vars().data().lock().unwrap().clone();
    let mut tensors: HashMap<String, Tensor> =
        vars.iter().map(|(name, var)| (name.clone(), var.ones_like().unwrap())).collect();
    tensors.insert("1.num_batches_tracked".to_owned(), Tensor::new(7_i64, &CPU)?);
    candle_core::safetensors::save(&tensors, &path)?;
    model.load(&path)?;
    assert!(all(&model).values().flatten().all(|value| *value == 1.0));
    Ok(())
}

#[test]
fn a_model_of_pytorch_computes_the_same() -> Result<()> {
    let golden = &GOLDEN["model"];
    let model = nn::cnn([1, 6, 5], &[2], 3).batch_norm().hidden(&[4]).build(&CPU)?;
    model.load(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/torch.safetensors"))?;
    let images = tensor_of(&golden["images"], DType::F32).reshape((5, 1, 6, 5))?;
    let compare = |name: &str, found: &Tensor, expected: &Value| {
        let found = found.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        let expected = tensor(expected).flatten_all()?.to_vec1::<f64>()?;
        found.iter().zip(expected).for_each(|(one, other)| assert_near(name, *one, other, 1e-5));
        Result::Ok(())
    };
    compare("in evaluation", &model.predict(&images)?, &golden["in_evaluation"])?;
    compare("in training", &model.forward(&images, true)?, &golden["trained"])?;
    let vars = model.vars().data().lock().unwrap();
    golden["after"].as_object().unwrap().iter().try_for_each(|(name, expected)| compare(name, &vars[name], expected))
}

fn refused(model: &impl Model, path: &Path, expected: &[&str]) {
    let before = all(model);
    let error = model.load(path).unwrap_err().to_string();
    for part in expected {
        assert!(error.contains(part), "{error} has no {part}");
    }
    assert_eq!(all(model), before, "{expected:?}");
}

#[test]
fn what_does_not_fit_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let save = |model: nn::Sequential| model.save(&path);
    refused(&mlp(), &path, &["cannot read the model", "model.safetensors"]);
    save(nn::mlp(3, &[5], 2).batch_norm().build(&CPU)?)?;
    refused(&mlp(), &path, &["`0.bias` has shape [4] in the model and [5] in", "build the model with the sizes"]);
    save(nn::mlp(3, &[4], 3).batch_norm().build(&CPU)?)?;
    refused(&mlp(), &path, &["`3.bias` has shape [2] in the model and [3] in"]);
    save(nn::mlp(3, &[4], 2).batch_norm().dtype(DType::F64).build(&CPU)?)?;
    refused(&mlp(), &path, &["`0.bias` is f32 in the model and f64 in", "convert the file"]);
    save(nn::mlp(3, &[4], 2).build(&CPU)?)?;
    refused(&mlp(), &path, &["has no variable `1.bias`", "load_common"]);
    save(nn::mlp(3, &[4, 4], 2).batch_norm().build(&CPU)?)?;
    refused(&mlp(), &path, &["the model has no variable `4.", "load_common"]);

    save(mlp())?;
    let whole = fs::read(&path)?;
    for bytes in [&[][..], b"not safetensors", &whole[..whole.len() - 1], &whole[..40]] {
        fs::write(&path, bytes)?;
        refused(&mlp(), &path, &["is not whole safetensors", "save the model again"]);
    }
    fs::write(&path, whole)?;
    let description = folder.path().join("model.safetensors.json");
    fs::write(&description, "{\"ferrotune_model\": 2}")?;
    refused(&mlp(), &path, &["has version 2", "update ferrotune"]);
    fs::write(&description, "{}")?;
    refused(&mlp(), &path, &["is no description of a model", "move it away"]);
    fs::remove_file(description)?;
    mlp().load(&path)
}

#[test]
fn a_model_with_a_wrong_input_is_saved() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let model = mlp().input(&[99]);
    assert!(model.summary().is_err());
    model.save(&path)?;
    mlp().load(&path)
}

#[test]
fn common_variables_load_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let small = nn::mlp(3, &[4], 5).build(&CPU)?;
    small.save(&path)?;
    // The sizes of the last layers differ, and their places too.
    let large = nn::mlp(3, &[4, 5], 2).build(&CPU)?;
    assert_eq!(large.load_common(&path)?, ["4.bias", "4.weight"]);
    assert_eq!(all(&large)["2.weight"], all(&small)["2.weight"]);
    let error = nn::mlp(3, &[4, 6], 2).build(&CPU)?.load_common(&path).unwrap_err().to_string();
    assert!(error.contains("`2.bias` has shape [6] in the model and [5] in"), "{error}");
    let other = nn::seq().add(nn::mlp(3, &[], 2).build(&CPU)?);
    let error = other.load_common(&path).unwrap_err().to_string();
    assert!(error.contains("has none of the model's variables") && error.contains("`0.0.bias`"), "{error}");
    Ok(())
}

#[test]
fn a_save_that_fails_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let error = mlp().save(folder.path().join("missing/model.safetensors")).unwrap_err().to_string();
    assert!(error.contains("cannot save") && error.contains("choose a folder that exists"), "{error}");
    fs::create_dir(folder.path().join("taken"))?;
    assert!(mlp().save(folder.path().join("taken")).is_err());
    assert_eq!(fs::read_dir(&folder)?.count(), 1);
    assert!(mlp().save("/").unwrap_err().to_string().contains("is no name of a file"));
    Ok(())
}
