//! Descriptions that no model can be built from: each is an error in one line with its cure, and none is a panic.

use candle_core::{Device, Result, Tensor};
use candle_nn::{Activation, Conv1dConfig, conv1d, embedding, layer_norm, prelu};
use ferrotune_nn::{self as nn, Model, Sequential};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const CPU: Device = Device::Cpu;
const CURE: &str = "build the model with your own function, then call `load`";

struct Saved {
    _folder: TempDir,
    path: PathBuf,
    description: PathBuf,
}

fn saved(model: &Sequential) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model.save(&path).unwrap();
    Saved { description: folder.path().join("model.safetensors.json"), path, _folder: folder }
}

fn mlp() -> Sequential {
    nn::mlp(3, &[4], 2).batch_norm().dropout(0.1).build(&CPU).unwrap()
}

/// The text of the error, without the backtrace that candle adds where it is asked for.
fn text(result: Result<Sequential>) -> String {
    let text = result.unwrap_err().to_string();
    text.split("\n   0: ").next().unwrap_or_default().to_owned()
}

fn refused(path: &Path, expected: &[&str]) {
    let error = text(nn::open(path, &CPU));
    for part in expected {
        assert!(error.contains(part), "{error} has no {part}");
    }
    assert!(!error.contains('\n'), "{error}");
}

impl Saved {
    fn read(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.description).unwrap()).unwrap()
    }

    /// Writes the description with another value at this place.
    fn with(&self, place: &str, value: Value) {
        let mut description = self.read();
        *description.pointer_mut(place).unwrap() = value;
        fs::write(&self.description, description.to_string()).unwrap();
    }
}

#[test]
fn a_closure_is_named_and_the_model_loads() -> Result<()> {
    let make = || Ok::<_, candle_core::Error>(mlp().add(|xs: &Tensor| xs * 0.5).add(Activation::Relu));
    let model = make()?;
    let saved = saved(&model);
    let expected = format!(
        "the description {} does not say how to build the model: layer 5 is a closure; {CURE}",
        saved.description.display()
    );
    assert_eq!(text(nn::open(&saved.path, &CPU)), expected);
    let other = make()?;
    other.load(&saved.path)?;
    let xs = Tensor::ones((1, 3), candle_core::DType::F32, &CPU)?;
    assert_eq!(other.predict(&xs)?.to_vec2::<f32>()?, model.predict(&xs)?.to_vec2::<f32>()?);
    Ok(())
}

#[test]
fn a_description_of_the_first_programs_loads_and_is_not_opened() -> Result<()> {
    let model = mlp();
    let saved = saved(&model);
    let mut description = saved.read();
    assert!(description.as_object_mut().unwrap().remove("architecture").is_some());
    fs::write(&saved.description, description.to_string())?;
    mlp().load(&saved.path)?;
    refused(&saved.path, &["an earlier version, which wrote no architecture", CURE]);
    fs::remove_file(&saved.description)?;
    mlp().load(&saved.path)?;
    refused(&saved.path, &["there is no description", "model.safetensors.json beside the model", CURE]);
    fs::remove_file(&saved.path)?;
    refused(&saved.path, &["cannot read the model"]);
    Ok(())
}

#[test]
fn damage_is_named() {
    let saved = saved(&mlp());
    let whole = fs::read(&saved.description).unwrap();
    let layer = |place: usize, rest: &str| format!("/architecture/layers/{place}{rest}");
    let changes = [
        ("/ferrotune_model".to_owned(), json!(2), vec!["has version 2", "update ferrotune"]),
        ("/architecture/version".to_owned(), json!(2), vec!["has version 2, and this program reads up to 1", "update"]),
        ("/architecture".to_owned(), json!([1]), vec!["its architecture is damaged", CURE]),
        ("/architecture/layers".to_owned(), json!([]), vec!["has a variable `0.bias`, which the description"]),
        ("/architecture/frozen".to_owned(), json!(["9.weight"]), vec!["frozen variable `9.weight` belongs to no"]),
        ("/architecture/input".to_owned(), json!([u64::MAX, 2]), vec!["a row of its input has shape"]),
        ("/architecture/input".to_owned(), json!([0, 2, u64::MAX]), vec!["a row of its input has shape"]),
        (layer(0, "/layer/linear/inputs"), json!(0), vec!["layer 0 has a size of 0", CURE]),
        (layer(0, "/layer/linear/inputs"), json!(-3), vec!["damaged (invalid value: integer `-3`", CURE]),
        (layer(0, "/layer/linear/inputs"), json!(u64::MAX), vec!["`0.weight` has shape [4, 18446744073709551615] in"]),
        (layer(0, "/layer/linear/outputs"), json!(5), vec!["`0.bias` has shape [5] in the description and [4] in"]),
        (layer(0, "/layer/linear/bias"), json!(false), vec!["layer 0 has a variable `bias`, which such a layer"]),
        (layer(0, "/layer"), json!({"linera": {}}), vec!["unknown variant `linera`", CURE]),
        (layer(0, "/variables"), json!({}), vec!["layer 0 has no variable for its `weight`"]),
        (
            layer(0, "/variables/weight/name"),
            json!("4.weight"),
            vec!["layer 4 has the variable `4.weight` with another"],
        ),
        (layer(0, "/variables/weight/name"), json!("w"), vec!["has a variable `0.weight`, which the description"]),
        (layer(0, "/variables/weight/dtype"), json!("f64"), vec!["`0.weight` is f64 in the description and f32 in"]),
        (layer(0, "/variables/weight/dtype"), json!("f33"), vec!["`0.weight` has the type f33, which candle"]),
        (layer(1, "/layer/batch_norm/eps"), json!(-1.0), vec!["layer 1 has a negative epsilon"]),
        (layer(2, "/layer/activation"), json!("reul"), vec!["unknown variant `reul`"]),
        (layer(3, "/layer/dropout/probability"), json!(1.5), vec!["layer 3 drops with probability 1.5"]),
    ];
    for (place, value, expected) in changes {
        fs::write(&saved.description, &whole).unwrap();
        let mut description = saved.read();
        if place.ends_with("frozen") {
            description["architecture"]["frozen"] = json!([]);
            fs::write(&saved.description, description.to_string()).unwrap();
        }
        saved.with(&place, value);
        refused(&saved.path, &expected);
    }
    let mut other = mlp();
    other.freeze("").unwrap();
    fs::write(&saved.description, &whole).unwrap();
    let mut tensors = candle_core::safetensors::load(&saved.path, &CPU).unwrap();
    tensors.remove("1.bias");
    candle_core::safetensors::save(&tensors, &saved.path).unwrap();
    refused(&saved.path, &["has no variable `1.bias`, which the description beside it has", "save the model again"]);
}

#[test]
fn a_part_of_a_description_is_no_description() {
    let saved = saved(&mlp());
    let whole = fs::read(&saved.description).unwrap();
    for len in 0..whole.len() - 1 {
        fs::write(&saved.description, &whole[..len]).unwrap();
        refused(&saved.path, &["is no description of a model"]);
    }
    fs::write(&saved.description, format!("{{\"ferrotune_model\":1,\"architecture\":{}", "[".repeat(100_000))).unwrap();
    refused(&saved.path, &["is no description of a model"]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    fs::write(&saved.description, format!("{{\"ferrotune_model\":1,\"architecture\":{deep}}}")).unwrap();
    refused(&saved.path, &["recursion limit exceeded"]);
    fs::write(&saved.description, [0xff, 0xfe]).unwrap();
    refused(&saved.path, &["cannot read the description"]);
}

fn of_many_layers() -> Result<Sequential> {
    nn::model(&CPU, |vb| {
        let config = Conv1dConfig { groups: 2, ..Conv1dConfig::default() };
        Ok(nn::seq()
            .add(embedding(5, 4, vb.pp("words"))?)
            .add(layer_norm(4, 1e-4, vb.pp("norm"))?)
            .add(conv1d(6, 4, 3, config, vb.pp("conv"))?)
            .add(prelu(Some(4), vb.pp("slopes"))?)
            .add(Activation::Elu(0.5))
            .add(mlp())
            .input(&[6]))
    })
}

/// The places of all values within a value.
fn places(value: &Value, place: &str, found: &mut Vec<String>) {
    found.push(place.to_owned());
    match value {
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(key, value)| places(value, &format!("{place}/{key}"), found));
        }
        Value::Object(values) => values.iter().for_each(|(key, value)| places(value, &format!("{place}/{key}"), found)),
        _ => {}
    }
}

#[test]
fn no_value_of_a_description_leads_to_a_panic() -> Result<()> {
    let model = of_many_layers()?;
    let saved = saved(&model);
    let whole = saved.read();
    let mut found = Vec::new();
    places(&whole["architecture"], "", &mut found);
    let largest = 1_u64 << 62;
    let values = [
        json!(0),
        json!(1),
        json!(-1),
        json!(largest),
        json!(u64::MAX),
        json!(1e308),
        json!(null),
        json!("weight"),
        json!(""),
        json!([]),
        json!({}),
        json!(true),
        json!([[]]),
        json!({"sequential": []}),
    ];
    let mut refused = 0;
    for place in &found {
        for value in &values {
            let mut damaged = whole.clone();
            *damaged["architecture"].pointer_mut(place).unwrap() = value.clone();
            fs::write(&saved.description, damaged.to_string())?;
            let opened = nn::open(&saved.path, &CPU);
            let built = nn::build(&damaged["architecture"].to_string(), &CPU);
            refused += usize::from(opened.is_err()) + usize::from(built.is_err());
            // A number that is another one of the kind, such as a stride, makes another model.
            for model in [opened, built].into_iter().flatten() {
                drop((model.summary(), format!("{model:?}"), nn::describe(&model).unwrap()));
            }
        }
    }
    assert!(refused > found.len() * values.len(), "{refused} of {}", found.len() * values.len() * 2);
    Ok(())
}

#[test]
fn a_text_that_is_no_architecture_builds_nothing() {
    for (json, expected) in [
        ("", "its architecture is damaged"),
        ("EOF", "its architecture is damaged"),
        ("{}", "missing field `version`"),
        ("{\"version\": 7, \"layers\": 3}", "version 7, and this program reads up to 1 (update ferrotune)"),
    ] {
        let error = text(nn::build(json, &CPU));
        assert!(error.contains(expected) && error.contains("take the text that `describe` returned"), "{error}");
    }
    let large = nn::describe(&mlp()).unwrap().replace("\"inputs\":3", "\"inputs\":4611686018427387904");
    let error = text(nn::build(&large, &CPU));
    assert!(error.contains("which this machine does not have; describe a smaller model"), "{error}");
}
