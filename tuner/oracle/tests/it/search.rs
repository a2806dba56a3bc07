//! A search by ask and tell.

use ferrotune_oracle::space::objective::{Constraint, Direction, Objective};
use ferrotune_oracle::space::record::{Ending, TrialRecord};
use ferrotune_oracle::space::spec::StudySpec;
use ferrotune_oracle::{AskError, OracleError, Search};
use std::error::Error;

fn spec(oracle: &str) -> StudySpec {
    let objectives = vec![Objective::new("loss", Direction::Min)];
    StudySpec { oracle: oracle.to_owned(), max_trials: 24, seed: Some(3), ..StudySpec::new("valley", objectives) }
}

/// The loss of a trial.
fn loss(search: &mut Search, trial: u64) -> Result<f64, AskError> {
    let x = search.float(trial, "x", -4.0..=4.0)?;
    let n = search.int(trial, "n", 1..=9)?;
    let kind = search.choice(trial, "kind", ["low", "high"])?;
    assert_eq!(search.float(trial, "x", -4.0..=4.0)?, x, "a value that was asked for again");
    Ok((x - 1.0).powi(2) + (n - 4).pow(2) as f64 / 9.0 + if kind == "high" { 0.5 } else { 0.0 })
}

/// Runs these many trials, two at a time.
fn run(search: &mut Search, pairs: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..pairs {
        let both = [search.ask().ok_or("over")?, search.ask().ok_or("over")?];
        let losses = [loss(search, both[0])?, loss(search, both[1])?];
        search.tell(both[1], &losses[1..])?;
        search.tell(both[0], &losses[..1])?;
    }
    Ok(())
}

#[test]
fn overlapping_trials_find_the_minimum_and_end_with_the_search() -> Result<(), Box<dyn Error>> {
    let mut search = Search::new(&spec("auto"))?;
    run(&mut search, 12)?;
    assert_eq!(search.ask(), None);
    let best = search.best().and_then(TrialRecord::value).ok_or("no best trial")?;
    assert!(best < 0.1, "{best}");
    Ok(())
}

#[test]
fn a_search_continues_from_its_records() -> Result<(), Box<dyn Error>> {
    let mut whole = Search::new(&spec("auto"))?;
    run(&mut whole, 12)?;
    let mut begun = Search::new(&spec("auto"))?;
    run(&mut begun, 5)?;
    let mut continued = Search::with_trials(&spec("auto"), begun.trials().to_vec())?;
    run(&mut continued, 7)?;
    assert_eq!(continued.trials(), whole.trials());
    let some = Search::with_trials(&spec("auto"), begun.trials()[2..].to_vec()).err();
    assert_eq!(some, Some(OracleError::MisplacedRecord { place: 0, number: 2 }));
    Ok(())
}

#[test]
fn the_pruner_answers_a_report() -> Result<(), Box<dyn Error>> {
    let mut search = Search::new(&StudySpec { pruner: Some("median:startup=2".to_owned()), ..spec("random") })?;
    let mut pruned = 0;
    while let Some(trial) = search.ask() {
        let loss = loss(&mut search, trial)?;
        if search.report(trial, 0, "loss", loss)? {
            search.prune(trial)?;
            pruned += 1;
        } else {
            search.tell(trial, &[loss])?;
        }
    }
    let ended = search.trials().iter().filter(|trial| trial.ending == Some(Ending::Pruned));
    assert!((5..20).contains(&pruned), "{pruned}");
    assert_eq!(ended.filter(|trial| trial.value().is_some()).count(), pruned);
    Ok(())
}

#[test]
fn a_trial_that_keeps_a_rare_constraint_is_found() -> Result<(), Box<dyn Error>> {
    // One point in about 400 keeps the constraint, so 40 random trials seldom have one.
    let bound = Constraint { metric: "distance".to_owned(), direction: Direction::Min, bound: 0.15 };
    let spec = StudySpec { constraints: vec![bound], max_trials: 40, ..spec("auto") };
    let mut search = Search::new(&spec)?;
    while let Some(trial) = search.ask() {
        let x: Vec<f64> =
            ["a", "b", "c", "d"].iter().map(|name| search.float(trial, name, 0.0..=1.0)).collect::<Result<_, _>>()?;
        let distance = x.iter().map(|x| (x - 0.8).powi(2)).sum::<f64>().sqrt();
        search.report(trial, 0, "distance", distance)?;
        search.tell(trial, &[x.iter().sum()])?;
    }
    let best = search.best().and_then(TrialRecord::value).unwrap_or(f64::INFINITY);
    // The lowest sum that keeps the constraint is 3.2 - 0.3.
    assert!((2.89..3.0).contains(&best), "{best}");
    Ok(())
}

#[test]
fn errors_name_the_trial_and_change_nothing() -> Result<(), Box<dyn Error>> {
    let mut search = Search::new(&spec("auto"))?;
    let trial = search.ask().ok_or("over")?;
    let x = search.float(trial, "x", -1.0..=1.0)?;
    let errors = [
        search.float(7, "x", -1.0..=1.0).map(|_| ()),
        search.float(trial, "x", -2.0..=1.0).map(|_| ()),
        search.log_float(trial, "y", 0.0..=1.0).map(|_| ()),
        search.int(trial, "n", std::ops::RangeInclusive::new(2, 1)).map(|_| ()),
        search.choice(trial, "kind", [true, true]).map(|_| ()),
        search.tell(trial, &[1.0, 2.0]),
    ];
    let messages: Vec<String> = errors.into_iter().filter_map(|result| Some(result.err()?.to_string())).collect();
    let expected = [
        "the search has no trial 7; use a number that ask() has returned",
        "trial 0 has asked for x with another range; give each parameter one range in a trial",
        "parameter y is logarithmic but starts at 0; start above 0 or drop .log()",
        "parameter n has the empty range 2..=1; put the smaller bound first",
        "parameter kind has the choice true twice; list each value once",
        "trial 0 has 2 values for 1 objectives; tell one for each",
    ];
    assert_eq!(messages, expected);
    assert_eq!(search.float(trial, "x", -1.0..=1.0)?, x);
    search.tell(trial, &[f64::NAN])?;
    assert!(matches!(search.trials()[0].ending, Some(Ending::Failed { .. })));
    assert_eq!(search.tell(trial, &[1.0]), Err(AskError::Ended { trial }));
    let refused = Search::new(&spec("hyperband")).err();
    assert_eq!(refused, Some(OracleError::DecidesEpochs { oracle: "hyperband".to_owned() }));
    Ok(())
}
