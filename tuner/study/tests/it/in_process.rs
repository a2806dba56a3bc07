//! Tests of searches in the test's own process.

use ferrotune_study::{
    Callback, Control, Direction, Ending, Finish, State, Study, StudyBuilder, Trial, TrialRecord, Value,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn builder(folder: &Path) -> StudyBuilder {
    Study::builder().directory(folder).project("here").objective("loss", Direction::Min).seed(5).in_process()
}

pub(crate) fn parabola(trial: &Trial) -> ferrotune_study::Result<f64> {
    let x: f64 = trial.float("x", -4.0..=4.0).get()?;
    let power = trial.choice("power", ["two", "four"]).get()?;
    Ok((x - 1.0).powi(if power == "two" { 2 } else { 4 }))
}

#[test]
fn records_and_suggestions_are_those_of_a_search_that_was_not_interrupted() {
    for oracle in ["tpe", "gp", "cmaes"] {
        let folder = tempfile::tempdir().unwrap();
        let study = |name: &str, trials| builder(folder.path()).project(name).oracle(oracle).max_trials(trials).build();
        let mut whole = study("whole", 24).unwrap();
        assert_eq!(whole.optimize(parabola).unwrap(), Finish::MaxTrials);
        for trials in [9, 24] {
            study("parts", trials).unwrap().optimize(parabola).unwrap();
        }
        let facts = |study: &Study| -> Vec<_> {
            study.trials().unwrap().into_iter().map(|trial| (trial.parameters, trial.values, trial.ending)).collect()
        };
        assert_eq!(facts(&whole), facts(&study("parts", 24).unwrap()), "{oracle}");
    }
}

#[test]
fn failures_and_panics_are_endings() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).max_trials(4).build().unwrap();
    let finish = study.optimize(|trial| match (parabola(trial)?, trial.number()) {
        (_, 1) => panic!("boom"),
        (_, 2) => Err("no luck".into()),
        (loss, _) => Ok(loss),
    });
    assert_eq!(finish.unwrap(), Finish::MaxTrials);
    let trials = study.trials().unwrap();
    assert!(
        matches!(&trials[1].ending, Some(Ending::Panicked { message }) if message.starts_with("boom (tuner/study/tests"))
    );
    assert!(
        matches!(&trials[2].ending, Some(Ending::Failed { reason }) if reason.starts_with("no luck (tuner/study/tests/it/in_process.rs:"))
    );
    assert_eq!((trials[0].state(), trials[3].state()), (State::Finished, State::Finished));
}

#[test]
fn an_objective_that_cannot_work_ends_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let failing = |trial: &Trial| parabola(trial).and_then(|_| Err::<f64, _>("never".into()));
    let error = builder(folder.path()).build().unwrap().optimize(failing).unwrap_err().to_string();
    let expected = "the first 3 trials all failed, the last one so: never (tuner/study/tests/it/in_process.rs:";
    assert!(error.starts_with(expected), "{error}");
    let error = builder(folder.path()).overwrite().build().unwrap().optimize(|_| Ok(1.0)).unwrap_err().to_string();
    assert!(error.starts_with("the search space is empty"), "{error}");
}

#[test]
fn pruner_ends_a_trial_for_what_it_reports() {
    let folder = tempfile::tempdir().unwrap();
    let study = builder(folder.path()).oracle("random").pruner("median:startup=2").max_trials(12);
    let mut study = study.build().unwrap();
    let finish = study.optimize(|trial| {
        let loss = parabola(trial)?;
        (0..5).try_for_each(|step| trial.report(step, [("loss", loss + 1.0 / (step + 1) as f64)]))?;
        trial.best("loss")
    });
    assert_eq!(finish.unwrap(), Finish::MaxTrials);
    let pruned = study.trials().unwrap().iter().filter(|trial| trial.state() == State::Pruned).count();
    assert!((1..11).contains(&pruned), "{pruned}");
}

#[test]
fn brackets_continue_trials_from_their_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).oracle("hyperband").max_trials(10).build().unwrap();
    study
        .optimize(|trial| {
            let (loss, mut seen) = (parabola(trial)?, 0_usize);
            trial.restore((&mut seen,))?;
            for epoch in trial.epochs(9) {
                assert_eq!(epoch, seen);
                seen += 1;
                trial.report(epoch, [("loss", loss + 1.0 / seen as f64)])?;
                trial.checkpoint((&seen,))?;
            }
            trial.best("loss")
        })
        .unwrap();
    let trials = study.trials().unwrap();
    assert!(trials.iter().any(|trial| trial.state() == State::Pruned));
    assert!(trials.iter().any(|trial| trial.metrics.len() == 9));
}

#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    reported: u64,
    ended: u64,
    over: Option<Finish>,
    executions: Vec<(u64, Option<usize>)>,
}

#[derive(Debug)]
struct Counter(Rc<RefCell<Counts>>);

impl Callback for Counter {
    fn on_trial_begin(&mut self, _trial: u64) -> Control {
        self.0.borrow_mut().begun += 1;
        Control::Continue
    }

    fn on_execution_begin(&mut self, _trial: u64, execution: u64) -> Control {
        self.0.borrow_mut().executions.push((execution, None));
        Control::Continue
    }

    fn on_execution_end(&mut self, _trial: u64, execution: u64, values: &[f64]) -> Control {
        self.0.borrow_mut().executions.push((execution, Some(values.len())));
        Control::Continue
    }

    fn on_report(&mut self, _trial: u64, _step: u64, metrics: &BTreeMap<String, Option<f64>>) -> Control {
        self.0.borrow_mut().reported += metrics.len() as u64;
        Control::Continue
    }

    fn on_trial_end(&mut self, trial: &TrialRecord) -> Control {
        self.0.borrow_mut().ended += 1;
        if trial.number == 4 { Control::Stop } else { Control::Continue }
    }

    fn on_search_end(&mut self, finish: &Finish) {
        self.0.borrow_mut().over = Some(finish.clone());
    }
}

#[test]
fn callback_ends_the_search_early() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Rc::new(RefCell::new(Counts::default()));
    let mut study = builder(folder.path()).max_trials(50).callback(Counter(Rc::clone(&counts))).build().unwrap();
    let finish = study.optimize(|trial| {
        let loss = parabola(trial)?;
        trial.report(0, [("loss", loss)])?;
        Ok(loss)
    });
    assert_eq!(finish.unwrap(), Finish::Interrupted);
    let counts = counts.borrow();
    assert_eq!((counts.begun, counts.reported, counts.ended), (5, 5, 5));
    assert_eq!(counts.over, Some(Finish::Interrupted));
    assert_eq!(counts.executions[..2], [(0, None), (0, Some(1))]);
}

#[test]
fn callback_hears_of_each_execution() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Rc::new(RefCell::new(Counts::default()));
    let builder = builder(folder.path()).max_trials(2).executions(2).callback(Counter(Rc::clone(&counts)));
    builder.build().unwrap().optimize(parabola).unwrap();
    let counts = counts.borrow();
    assert_eq!((counts.begun, counts.ended), (2, 2));
    let one_trial = [(0, None), (0, Some(1)), (1, None), (1, Some(1))];
    assert_eq!(counts.executions, [one_trial, one_trial].concat());
}

#[test]
fn asked_trials_are_told_in_any_order_and_lost_ones_are_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let build = |trials| builder(folder.path()).oracle("tpe").max_trials(trials).build().unwrap();
    let mut study = build(3);
    let (first, second) = (study.ask().unwrap(), study.ask().unwrap());
    let values: Vec<f64> = [&first, &second].map(|trial| parabola(trial).unwrap()).to_vec();
    assert_eq!(study.tell(second, values[1]).unwrap().value(), Some(values[1]));
    let asked = study.trials().unwrap()[0].parameters.clone();
    // The program ends without a result for the first trial.
    drop((first, study));
    let mut study = build(3);
    let again = study.ask().unwrap();
    assert_eq!((again.number(), parabola(&again).unwrap()), (0, values[0]));
    assert_eq!(study.tell_failed(again, "out of luck").unwrap().parameters, asked);
    let third = study.ask().unwrap();
    assert_eq!(
        study.ask().unwrap_err().to_string(),
        "the search is over, so there is no trial to ask for; raise .max_trials()"
    );
    study.tell(third, f64::NAN).unwrap();
    assert_eq!(study.best_trial().unwrap().map(|trial| trial.number), Some(1));
}

#[test]
fn oracle_that_waits_for_asked_trials_names_them_until_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).oracle("pbt").max_trials(40).build().unwrap();
    // The oracle plans populations once it knows the number of epochs of a training.
    let first = study.ask().unwrap();
    assert_eq!(first.epochs(8).next(), Some(0));
    let mut asked = vec![first];
    let error = loop {
        match study.ask() {
            Ok(trial) => asked.push(trial),
            Err(error) => break error.to_string(),
        }
    };
    let numbers: Vec<String> = (0..asked.len()).map(|number| number.to_string()).collect();
    assert_eq!(
        error,
        format!(
            "the oracle waits for the results of trials that were asked for ({}); end them with .tell() or .tell_failed() first",
            numbers.join(", ")
        )
    );
    for trial in asked {
        study.tell(trial, 0.5).unwrap();
    }
    assert!(study.ask().is_ok());
}

#[test]
fn known_values_executions_and_trade_offs_are_those_of_every_search() {
    let folder = tempfile::tempdir().unwrap();
    let known = builder(folder.path()).objective("size", Direction::Min).oracle("nsga2").executions(2).max_trials(6);
    let known = known.fix("power", Value::Text("two".to_owned())).enqueue([("x", Value::Float(0.5))]);
    let mut study = known.build().unwrap();
    let seeds = RefCell::new(Vec::new());
    let finish = study.optimize(|trial| {
        seeds.borrow_mut().push(trial.seed());
        Ok((parabola(trial)? + trial.execution() as f64, 3.0))
    });
    assert_eq!(finish.unwrap(), Finish::MaxTrials);
    seeds.borrow_mut().sort_unstable();
    seeds.borrow_mut().dedup();
    assert_eq!(seeds.borrow().len(), 12);
    let trials = study.trials().unwrap();
    assert_eq!(trials[0].values, [0.75, 3.0]);
    assert!(trials.iter().all(|trial| trial.parameters["power"].value == Value::Text("two".to_owned())));
    assert_eq!(study.best_trials().unwrap().len(), 1);
}

#[test]
fn copies_of_a_population_begin_where_their_originals_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).oracle("pbt").max_trials(16).build().unwrap();
    let mut inherited = 0;
    study
        .optimize(|trial| {
            let (rate, mut seen) = (trial.float("rate", 0.0..=1.0).get()?, 0_usize);
            trial.restore((&mut seen,))?;
            for epoch in trial.epochs(8) {
                assert_eq!(epoch, seen);
                seen += 1;
                trial.report(epoch, [("loss", 1.0 - rate * seen as f64 / 8.0)])?;
                trial.checkpoint((&seen,))?;
            }
            trial.best("loss")
        })
        .unwrap();
    for trial in study.trials().unwrap().iter().filter(|trial| trial.parent.is_some()) {
        inherited += 1;
        assert!(trial.metrics.keys().next() > Some(&0), "{trial:?}");
    }
    assert!(inherited > 0);
}

#[test]
fn a_study_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).build().unwrap();
    let _trial = study.ask().unwrap();
    let error = builder(folder.path()).build().unwrap().ask().unwrap_err().to_string();
    assert!(error.starts_with("study here is in use by process "), "{error}");
}

#[test]
fn searches_that_cannot_be_are_refused_when_they_are_built() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |builder: StudyBuilder| builder.build().unwrap_err().to_string();
    assert!(refusal(builder(folder.path()).oracle("gq")).starts_with("there is no oracle `gq`"));
    assert!(refusal(Study::builder()).starts_with("the study has no objective; "));
    assert!(refusal(builder(folder.path()).project("a/b")).starts_with("`a/b` is not the name of a folder"));
    let limited = builder(folder.path()).trial_timeout(Duration::from_secs(1));
    assert_eq!(
        refusal(limited),
        ".trial_timeout() needs a process for each trial, which it could end; drop it or .in_process()"
    );
    let mut apart = Study::builder().directory(folder.path()).objective("loss", Direction::Min).build().unwrap();
    assert!(apart.ask().unwrap_err().to_string().ends_with("build the study with .in_process()"));
    assert_eq!(apart.trials().unwrap(), []);
}

#[test]
fn search_that_a_callback_stopped_goes_on_when_it_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Rc::new(RefCell::new(Counts::default()));
    let mut study = builder(folder.path()).max_trials(9).callback(Counter(Rc::clone(&counts))).build().unwrap();
    assert_eq!(study.optimize(parabola).unwrap(), Finish::Interrupted);
    assert_eq!(study.optimize(parabola).unwrap(), Finish::MaxTrials);
    assert_eq!(study.trials().unwrap().len(), 9);
}

#[test]
fn told_failures_are_the_programs_own_affair() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = builder(folder.path()).max_trials(9).build().unwrap();
    for _ in 0..4 {
        let trial = study.ask().unwrap();
        parabola(&trial).unwrap();
        let record = study.tell(trial, f64::NAN).unwrap();
        assert_eq!(record.state(), State::Failed);
    }
}

#[test]
fn numbers_that_no_journal_can_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |builder: StudyBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        refusal(builder(folder.path()).constraint("latency", Direction::Min, f64::INFINITY)),
        "the bound of `latency` is not a finite number; give one that is"
    );
    assert_eq!(
        refusal(builder(folder.path()).fix("x", Value::Float(f64::NAN))),
        "the value given for `x` is not a finite number; give one that is"
    );
}
