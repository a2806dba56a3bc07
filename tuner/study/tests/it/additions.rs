//! Tests of trials that stop their search or set attributes, of trials that were run elsewhere, and of settings of oracles.

use crate::in_process::{builder, parabola};
use ferrotune_journal::Journal;
use ferrotune_study::{Direction, Distribution, Finish, Parameter, Scale, State, Study, Trial, Value};

#[test]
fn trial_stops_the_search_for_now_and_keeps_remarks() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).max_trials(10).build().unwrap();
    let objective = |trial: &Trial| {
        let loss = parabola(trial)?;
        trial.set_user_attr("doubled", 2.0 * loss)?;
        trial.set_user_attr("note", "first")?;
        trial.set_user_attr("note", "last")?;
        if trial.number() == 3 {
            trial.stop_search()?;
        }
        Ok(loss)
    };
    assert_eq!(study.optimize(objective).unwrap(), Finish::Stopped);
    let trials = study.trials().unwrap();
    assert_eq!(trials.len(), 4);
    assert_eq!(trials[3].user_attributes["doubled"].as_f64(), Some(2.0 * trials[3].values[0]));
    assert_eq!(trials[3].user_attributes["note"], "last");
    assert_eq!(study.optimize(objective).unwrap(), Finish::MaxTrials);
    assert_eq!(study.trials().unwrap().len(), 10);
    let mut refused = builder(folder.path()).project("refused").max_trials(1).build().unwrap();
    let outcome = refused.optimize(|trial| {
        let error = trial.set_user_attr("ferrotune:mine", 1.0).unwrap_err().to_string();
        assert!(error.contains("ferrotune:mine") && error.contains("cannot be kept"), "{error}");
        trial.set_user_attr("ratio", f64::NAN)?;
        parabola(trial)
    });
    assert_eq!(outcome.unwrap(), Finish::MaxTrials);
    assert_eq!(refused.trials().unwrap()[0].user_attributes["ratio"], "NaN");
}

#[test]
fn trials_that_were_run_elsewhere_are_added_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let x = |value: f64| {
        let distribution = Distribution::Float { low: -4.0, high: 4.0, step: None, scale: Scale::Linear };
        Parameter { distribution, value: value.into() }
    };
    // Also tested with a study whose trials would be processes: the study is opened for the one call.
    let mut elsewhere = Study::builder().directory(folder.path()).project("here").objective("loss", Direction::Min);
    elsewhere = elsewhere.oracle("gp").seed(5).max_trials(9);
    let mut study = elsewhere.build().unwrap();
    assert_eq!(study.add_trial([("x", x(1.0))], 0.0).unwrap().number, 0);
    assert_eq!(study.trials().unwrap().len(), 1);

    let mut study = builder(folder.path()).oracle("gp").max_trials(9).build().unwrap();
    assert_eq!(study.add_trial([("x", x(-3.0))], 16.0).unwrap().number, 1);
    let refusals = [
        (
            study.add_trial([("x", x(5.0))], 1.0),
            "`x` has the value 5.0, but it is a float -4.0..=4.0; give one of these",
        ),
        (study.add_trial([("x", x(0.0))], f64::NAN), "it has the values [NaN]"),
        (study.add_trial([("x", x(0.0))], (1.0, 2.0)), "it has the values [1.0, 2.0]"),
    ];
    for (refused, reason) in refusals {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with("the trial cannot be added: ") && error.contains(reason), "{error}");
    }
    let choice = Distribution::Choice { values: vec![Value::Int(1)], is_ordered: false };
    let error = study.add_trial([("x", Parameter { distribution: choice, value: 1.into() })], 1.0).unwrap_err();
    assert!(error.to_string().contains("`x` is a choice of 1 here and a float -4.0..=4.0 in trial 0"), "{error}");
    assert_eq!(study.trials().unwrap().len(), 2, "what is refused is not recorded");

    assert_eq!(study.optimize(parabola).unwrap(), Finish::MaxTrials);
    assert_eq!(study.trials().unwrap().len(), 9, "added trials count");
    let best = study.best_trial().unwrap().unwrap();
    assert_eq!((best.number, best.values[0], best.state()), (0, 0.0, State::Finished));
}

#[test]
fn settings_of_an_oracle_are_part_of_the_study_and_may_change_as_other_options_do() {
    let folder = tempfile::tempdir().unwrap();
    let stored = || Journal::read(&folder.path().join("here")).unwrap().spec.oracle;
    let run = |oracle: &str, trials| {
        let mut study = builder(folder.path()).oracle(oracle).max_trials(trials).build().unwrap();
        assert_eq!(study.optimize(parabola).unwrap(), Finish::MaxTrials);
        study.trials().unwrap().into_iter().map(|trial| trial.parameters).collect::<Vec<_>>()
    };
    run("tpe:startup=4,candidates=100", 8);
    assert_eq!(stored(), "tpe:startup=4,candidates=100");
    let continued = run("tpe:startup=4,candidates=100", 16);
    let directory = tempfile::tempdir().unwrap();
    let mut whole = builder(directory.path()).oracle("tpe:startup=4,candidates=100").max_trials(16).build().unwrap();
    whole.optimize(parabola).unwrap();
    let whole: Vec<_> = whole.trials().unwrap().into_iter().map(|trial| trial.parameters).collect();
    assert_eq!(continued, whole, "the same settings go on as if nothing had been between");
    run("gp:noise=0", 18);
    assert_eq!(stored(), "gp:noise=0");
    let error = builder(folder.path()).oracle("tpe:candidate=9").build().unwrap_err().to_string();
    assert!(error.contains("`candidate`, did you mean `candidates`?"), "{error}");
}
