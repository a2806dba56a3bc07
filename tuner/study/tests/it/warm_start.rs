//! Tests of searches that learn from another study.

use crate::in_process::{builder, parabola};
use ferrotune_study::{Direction, Finish, State, Study, StudyBuilder, Trial, TrialRecord, Value};
use std::fs;
use std::path::Path;

fn earlier(folder: &Path, trials: u64) -> Study {
    let mut study = builder(folder).project("earlier").oracle("random").max_trials(trials).build().unwrap();
    study.optimize(parabola).unwrap();
    study
}

fn later(folder: &Path, trials: u64) -> StudyBuilder {
    builder(folder).project("later").oracle("tpe").from("earlier").max_trials(trials)
}

fn facts(study: &Study) -> Vec<(Vec<Value>, Vec<f64>)> {
    let values =
        |trial: &TrialRecord| trial.parameters.values().map(|parameter| parameter.value.clone()).collect::<Vec<_>>();
    study.trials().unwrap().iter().map(|trial| (values(trial), trial.values.clone())).collect()
}

fn error(builder: StudyBuilder, objective: impl FnMut(&Trial) -> ferrotune_study::Result<f64>) -> String {
    builder.build().unwrap().optimize(objective).unwrap_err().to_string()
}

#[test]
fn best_trial_of_the_other_study_comes_first_and_nothing_is_written_there() {
    let folder = tempfile::tempdir().unwrap();
    let other = earlier(folder.path(), 20);
    let journal = folder.path().join("earlier/journal.log");
    let before = fs::read(&journal).unwrap();
    let mut study = later(folder.path(), 6).build().unwrap();
    assert_eq!(study.optimize(parabola).unwrap(), Finish::MaxTrials);
    assert_eq!(fs::read(&journal).unwrap(), before);
    let trials = study.trials().unwrap();
    assert_eq!(trials.len(), 6);
    let best = other.best_trial().unwrap().unwrap();
    assert_eq!((&trials[0].parameters, &trials[0].values), (&best.parameters, &best.values));
    let better = trials.iter().filter(|trial| trial.value().unwrap() <= 1.0).count();
    assert!(better >= 4, "{:?}", facts(&study));
}

#[test]
fn search_goes_on_in_the_same_way_when_the_other_study_has_grown_or_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    earlier(folder.path(), 12);
    let mut whole = later(folder.path(), 14).project("whole").build().unwrap();
    whole.optimize(parabola).unwrap();
    later(folder.path(), 4).build().unwrap().optimize(parabola).unwrap();
    earlier(folder.path(), 40);
    later(folder.path(), 9).build().unwrap().optimize(parabola).unwrap();
    fs::remove_dir_all(folder.path().join("earlier")).unwrap();
    let mut study = later(folder.path(), 14).build().unwrap();
    study.optimize(parabola).unwrap();
    assert_eq!(facts(&study), facts(&whole));
}

#[test]
fn study_in_another_folder_is_named_by_its_path() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    earlier(there.path(), 8);
    let path = there.path().join("earlier").display().to_string();
    let mut study = builder(here.path()).project("later").from(path).max_trials(2).build().unwrap();
    study.optimize(parabola).unwrap();
    assert_eq!(study.trials().unwrap().len(), 2);
}

#[test]
fn the_best_trials_of_several_studies_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let studies = [("one", 4), ("two", 5)].map(|(name, seed)| {
        let builder = builder(folder.path()).project(name).oracle("random").seed(seed).max_trials(6);
        let mut study = builder.build().unwrap();
        study.optimize(parabola).unwrap();
        study
    });
    let search = |trials| {
        let builder = builder(folder.path()).project("later").from("one").from("two").seed(1).max_trials(trials);
        let mut study = builder.build().unwrap();
        study.optimize(parabola).unwrap();
        study
    };
    let trials = search(3).trials().unwrap();
    for (study, trial) in studies.iter().zip(&trials) {
        assert_eq!(trial.parameters, study.best_trial().unwrap().unwrap().parameters);
    }
    // What was copied is what the study goes on with.
    fs::remove_dir_all(folder.path().join("one")).unwrap();
    assert_eq!(search(5).trials().unwrap()[..3], trials[..]);
    let text = error(builder(folder.path()).project("twice").from("two").from("two"), parabola);
    assert_eq!(text, "--from two: it is named twice; name it once");
}

#[test]
fn a_study_that_is_only_in_the_database_is_found_there() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let storage = format!("sqlite:///{}", here.path().join("studies.db").display());
    let earlier = builder(there.path()).project("earlier").oracle("random").seed(3).storage(&storage).max_trials(8);
    let mut earlier = earlier.build().unwrap();
    earlier.optimize(parabola).unwrap();
    let best = earlier.best_trial().unwrap().unwrap();
    fs::remove_dir_all(there.path().join("earlier")).unwrap();
    let later = |study: &str| {
        builder(here.path()).project("later").storage(&storage).from(study).seed(1).max_trials(2).build().unwrap()
    };
    let text = later("other").optimize(parabola).unwrap_err().to_string();
    let directory = here.path().display();
    assert_eq!(
        text,
        format!(
            "--from other: there is no study in {directory}/other; name a study of {directory} or of the database, or a folder with a slash, as in ./other"
        )
    );
    let mut study = later("earlier");
    study.optimize(parabola).unwrap();
    assert_eq!(study.trials().unwrap()[0].parameters, best.parameters);
}

#[test]
fn study_that_cannot_help_is_refused_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().display().to_string();
    let text = error(later(folder.path(), 3), parabola);
    assert_eq!(
        text,
        format!(
            "--from earlier: there is no study in {directory}/earlier; name a study of {directory}, or a folder with a slash, as in ./earlier"
        )
    );
    let mut failed = builder(folder.path()).project("earlier").max_trials(2).build().unwrap();
    failed.optimize(|trial| parabola(trial).and_then(|_| Err::<f64, _>("never".into()))).unwrap();
    let text = error(later(folder.path(), 3), parabola);
    assert!(text.starts_with("--from earlier: none of its 2 trials has finished with finite values"), "{text}");
    fs::remove_dir_all(folder.path().join("earlier")).unwrap();
    earlier(folder.path(), 5);
    let text = error(later(folder.path(), 3).fix("power", "three"), parabola);
    assert!(text.starts_with("--from earlier: none of its 5 trials"), "{text}");
    let other = Study::builder().directory(folder.path()).project("later").objective("accuracy", Direction::Max);
    let text = error(other.in_process().from("earlier"), parabola);
    assert_eq!(
        text,
        "--from earlier: it optimises loss:min, not accuracy:max; give --objective loss:min, or name another study"
    );
    let text = error(later(folder.path(), 3).from("later"), parabola);
    assert_eq!(text, "--from later: this is the study itself; name another one");
    assert!(!folder.path().join("later").exists());
}

#[test]
fn first_trial_shows_that_no_trial_of_the_other_study_fits() {
    let folder = tempfile::tempdir().unwrap();
    earlier(folder.path(), 5);
    let text = error(later(folder.path(), 3), |trial| trial.float("x", 8.0..=9.0).get());
    assert!(text.starts_with("--from earlier: no trial of it has parameters and values of this search"), "{text}");
}

#[test]
fn value_of_the_best_trial_that_is_out_of_range_is_left_to_the_oracle() {
    let folder = tempfile::tempdir().unwrap();
    earlier(folder.path(), 30);
    let mut study = later(folder.path(), 3).build().unwrap();
    // The best trial of the other study is near 1; its trials above 1.5 fit.
    study
        .optimize(|trial| {
            let x: f64 = trial.float("x", 1.5..=4.0).get()?;
            trial.choice("power", ["two", "four"]).get()?;
            Ok(x)
        })
        .unwrap();
    let trials = study.trials().unwrap();
    assert!(trials.iter().all(|trial| trial.state() == State::Finished), "{trials:?}");
}
