//! Tests of a trial of given values: the function that a search calls builds the best model again.

use crate::harness::{on_disk, run, spec};
use candle_core::{DType, Device};
use candle_nn::{Init, VarMap};
use ferrotune_journal::study_folder;
use ferrotune_space::checkpoint::checkpoint_file;
use ferrotune_space::event::Finish;
use ferrotune_trial::{FixedTrial, Result, Trial};

fn given() -> FixedTrial {
    Trial::of([("units", 64.into()), ("lr", 1.into()), ("optimiser", "sgd".into())])
}

fn error(trial: &Trial, ask: impl Fn(&Trial) -> Result<usize>) -> String {
    let error = ask(trial).unwrap_err();
    assert!(error.place().file().ends_with("fixed.rs"), "{}", error.place());
    error.to_string()
}

#[test]
fn values_take_the_types_of_the_ranges_that_ask_for_them() -> Result<()> {
    let trial = given();
    let units: u8 = trial.int("units", 32..=128).step(32).get()?;
    let lr: f32 = trial.float("lr", 0.0..=2.0).get()?;
    let optimiser = trial.choice("optimiser", ["adam", "sgd"]).get()?;
    assert_eq!((units, lr, optimiser.as_str()), (64, 1.0, "sgd"));
    // The condition of `beta` is false, so it needs no value.
    assert_eq!(trial.float("beta", 0.5..=0.9).when("optimiser", "adam").default(0.8).get()?, 0.8);
    Ok(())
}

#[test]
fn missing_values_and_values_outside_of_their_range_are_named() {
    let trial = given();
    assert_eq!(
        error(&trial, |trial| trial.int("depth", 1..=3).get()),
        "Trial::of has no value for `depth`, only for lr, optimiser, units; add it"
    );
    assert_eq!(
        error(&trial, |trial| trial.int("units", 1..=32).get()),
        "Trial::of gives `units` the value 64, but it is an int 1..=32; give one of these"
    );
    assert_eq!(
        error(&trial, |trial| trial.choice("optimiser", ["adam"]).get().map(|name| name.len())),
        "Trial::of gives `optimiser` the value sgd, but it is a choice of adam; give one of these"
    );
}

#[test]
fn whole_objective_runs_without_a_search_and_writes_nothing() -> Result<()> {
    let objective = |trial: &Trial| {
        let units: usize = trial.int("units", 1..=64).get()?;
        for epoch in trial.epochs(3) {
            trial.report(epoch, [("loss", (units + 2 - epoch) as f64)])?;
            trial.checkpoint(&VarMap::new())?;
        }
        trial.best("loss")
    };
    let error = objective(&given()).unwrap_err().to_string();
    assert!(error.contains("`loss` is to become small or large; add .minimize(\"loss\")"), "{error}");
    assert_eq!(objective(&given().minimize("loss"))?, 64.0);
    assert_eq!(objective(&given().maximize("loss"))?, 66.0);
    let trial = given();
    assert_eq!(trial.epochs(0).count(), 0);
    assert!(trial.report(0, [("loss", 1.0)]).unwrap_err().to_string().contains("epochs(0)"));
    assert!(!std::path::Path::new(&checkpoint_file(0)).exists());
    Ok(())
}

/// The model of the scenario `train`, which counts its epochs.
fn model(name: &str) -> Result<VarMap> {
    let vars = VarMap::new();
    vars.get(1, name, Init::Const(0.0), DType::F32, &Device::Cpu)?;
    Ok(vars)
}

#[test]
fn record_and_checkpoint_of_a_search_give_the_model_and_its_next_epochs() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "train", 1);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    let folder = study_folder::of_trial(&spec.directory.join(&spec.project), 0);
    let checkpoint = folder.join(record.checkpoint.as_ref().unwrap());
    let best = || Trial::of(record).with_checkpoint(&checkpoint);

    let trial = best();
    assert_eq!(trial.float("x", 0.0..=1.0).get()?, record.values[0]);
    let vars = model("count")?;
    assert!(trial.restore(&vars)?);
    assert_eq!(vars.all_vars()[0].to_vec1::<f32>()?, [27.0]);
    assert_eq!(trial.epochs(30).collect::<Vec<_>>(), [27, 28, 29]);

    let error = best().restore(&model("another")?).unwrap_err().to_string();
    assert!(error.contains("does not fit the model") && error.contains("another"), "{error}");
    let absent = Trial::of(record).with_checkpoint("absent.safetensors");
    let error = absent.restore(&model("count")?).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the checkpoint absent.safetensors: "), "{error}");
    let mut bytes = std::fs::read(&checkpoint)?;
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&checkpoint, bytes)?;
    let error = best().restore(&model("count")?).unwrap_err().to_string();
    assert!(error.contains("checksum"), "a damaged file is not replaced by another one: {error}");
    assert!(!Trial::of(record).restore(&model("count")?)?);
    Ok(())
}
