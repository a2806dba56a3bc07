//! Tests of pruners and terminators, alone and as rules of an oracle.

use crate::hyperband::{search, steady};
use crate::simulation::{Ask, Search, space};
use crate::spec;
use expect_test::expect;
use ferrotune_oracle::pruner::Pruner;
use ferrotune_oracle::{EarlyEnd, Next, Settings, create};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};
use std::collections::BTreeMap;

/// The step at which Optuna ends each of 40 trials, or -1. Golden numbers from `tests/golden/pruners.py`.
const MINIMISED: [(&str, [i64; 40]); 6] = [
    (
        "median",
        [
            -1, -1, -1, -1, -1, 10, 0, -1, 2, 0, 1, 2, -1, -1, -1, 0, 1, 2, 0, -1, 2, 0, 1, 2, 0, 1, 2, 0, -1, 2, 0, 1,
            2, 10, -1, -1, 0, 1, 10, 0,
        ],
    ),
    (
        "percentile:keep=25,startup=3,warmup=3,interval=4,least=2",
        [
            -1, -1, -1, 4, 3, -1, -1, 3, 3, 4, 3, 4, 3, 3, 3, 4, 3, 4, 3, 7, 3, 4, 3, 4, 3, 3, 3, -1, 7, 4, 3, 3, 3,
            -1, -1, -1, 3, 3, 3, 4,
        ],
    ),
    (
        "wilcoxon:p=0.2",
        [
            -1, 5, 9, 4, 5, -1, -1, 5, 4, 4, 5, 6, 3, 5, 9, 10, 3, -1, 2, 9, -1, -1, 3, 6, 2, 5, 4, -1, 10, 6, 4, -1,
            6, -1, 6, -1, 6, -1, 6, 6,
        ],
    ),
    (
        "patience:steps=2,delta=0.1",
        [
            3, 11, -1, -1, -1, 8, 10, -1, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1, 9, 11, -1, -1, -1, 8, -1, -1, -1,
            5, -1, -1, -1, -1, 10, -1, -1, -1, 7, 9, -1,
        ],
    ),
    (
        "patience:steps=2,delta=0.1,around=percentile:keep=50,startup=3",
        [
            -1, -1, -1, -1, -1, 10, -1, -1, -1, -1, 10, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 11, -1, -1,
            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 7, -1, -1,
        ],
    ),
    (
        "threshold:lower=-0.9,upper=3.3,warmup=1,interval=2",
        [
            11, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 11, -1, -1, -1, -1, -1, -1, 2, -1, 1, -1, -1, -1, 11,
            -1, 11, -1, -1, -1, -1, -1, 9, 10, -1, -1, -1, -1,
        ],
    ),
];
const MAXIMISED: [(&str, [i64; 40]); 6] = [
    (
        "median",
        [
            -1, -1, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1, 0, 1, 2, 0, -1, 2, -1, 1, 2, 0, -1, -1, -1, -1, -1, 0, 1,
            -1, 0, -1, 2, 0, 1, 2, -1, 1, 2, -1,
        ],
    ),
    (
        "percentile:keep=25,startup=3,warmup=3,interval=4,least=2",
        [
            -1, -1, -1, -1, -1, -1, 3, 3, -1, -1, 3, 4, 3, 3, 3, 4, -1, 4, -1, 3, 3, 4, -1, -1, -1, 3, 3, 4, 3, -1, -1,
            3, -1, 4, 3, 4, -1, -1, 3, -1,
        ],
    ),
    (
        "wilcoxon:p=0.2",
        [
            -1, -1, -1, -1, 6, -1, 4, -1, -1, 6, -1, 6, 4, -1, 6, 4, -1, 6, -1, -1, -1, 4, 10, -1, 6, -1, 6, 6, 6, 6,
            6, -1, 6, 6, 6, 6, -1, -1, 6, 6,
        ],
    ),
    (
        "patience:steps=2,delta=0.1",
        [
            5, -1, 6, 6, 4, 10, 3, 7, 5, 6, 4, 8, 4, 7, 6, 6, 5, 8, 3, 11, 6, 6, 4, 8, 3, 7, 5, 6, 7, 8, 4, 7, 6, -1,
            5, 8, 3, 9, 6, 6,
        ],
    ),
    (
        "patience:steps=2,delta=0.1,around=percentile:keep=50,startup=3",
        [
            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
            -1, -1, -1, -1, -1, -1, -1, -1, 8, -1, -1, -1, -1,
        ],
    ),
    (
        "threshold:lower=-0.9,upper=3.3,warmup=1,interval=2",
        [
            11, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 11, -1, -1, -1, -1, -1, -1, 2, -1, 1, -1, -1, -1, 11,
            -1, 11, -1, -1, -1, -1, -1, 9, 10, -1, -1, -1, -1,
        ],
    ),
];

/// The steps at which the pruner ends the trials of the search in `tests/golden/pruners.py`.
fn ends(text: &str, direction: Direction) -> Vec<i64> {
    let pruner: Pruner = text.parse().expect("a pruner");
    let objectives = vec![Objective::new("accuracy", direction)];
    let settings = Settings::new(&StudySpec::new("digits", objectives)).expect("a valid search");
    let mut trials: Vec<TrialRecord> = Vec::new();
    let mut ends = Vec::new();
    for number in 0..40_u64 {
        let mut trial = TrialRecord::new(number);
        let mut values = Vec::new();
        for step in (number % 3..12).step_by(1 + (number % 2) as usize) {
            let (rise, offset) = ((number * 37 + step * 11) % 23, (number * 13) % 7);
            let value = rise as f64 / 10.0 + offset as f64 / 4.0 - step as f64 * 0.15;
            let report = Some(value).filter(|_| (number, step) != (20, 2));
            values.push(report.unwrap_or(f64::NAN));
            trial.metrics.insert(step, BTreeMap::from([("accuracy".to_owned(), report)]));
            if pruner.prunes(&trial, &trials, &settings) {
                trial.ending = Some(Ending::Pruned);
                break;
            }
        }
        let is_pruned = trial.ending.is_some();
        ends.push(if is_pruned { trial.last_step().map_or(-1, |step| step as i64) } else { -1 });
        if !is_pruned {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let value = if text.starts_with("wilcoxon") { Some(mean) } else { values.last().copied() };
            trial.values = value.into_iter().collect();
            let is_number = trial.value().is_some_and(f64::is_finite);
            trial.ending =
                Some(if is_number { Ending::Finished } else { Ending::Failed { reason: "no number".into() } });
        }
        trials.push(trial);
    }
    ends
}

#[test]
fn trials_are_ended_where_optuna_ends_them() {
    for (direction, golden) in [(Direction::Min, MINIMISED), (Direction::Max, MAXIMISED)] {
        for (text, golden) in golden {
            assert_eq!(ends(text, direction), golden, "{text} {direction:?}");
        }
    }
}

#[test]
fn trial_without_a_report_goes_on() {
    let settings = Settings::new(&spec("random")).expect("a valid search");
    for text in MINIMISED.map(|(text, _)| text).into_iter().chain(["forecast"]) {
        let pruner: Pruner = text.parse().expect("a pruner");
        assert!(!pruner.prunes(&TrialRecord::new(0), &[], &settings), "{text}");
    }
}

#[test]
fn pruners_are_written_as_they_are_read() {
    for text in MINIMISED.map(|(text, _)| text).into_iter().chain(["forecast:chance=0.25"]) {
        let pruner: Pruner = text.parse().expect("a pruner");
        assert_eq!(pruner.to_string().parse::<Pruner>(), Ok(pruner), "{text}");
    }
}

#[test]
fn impossible_rules_are_refused() {
    let error = |text: &str| text.parse::<Pruner>().expect_err("refused").to_string();
    expect!["there is no pruner `mean`; choose one of median, percentile, forecast, wilcoxon, patience, threshold"]
        .assert_eq(&error("mean"));
    expect!["pruner median has no setting `keep`; write median:SETTING=NUMBER with startup, warmup, interval, least"]
        .assert_eq(&error("median:keep=3"));
    expect!["pruner percentile has keep=101; give per cent from 0 to 100"].assert_eq(&error("percentile:keep=101"));
    expect!["pruner median has interval=0; give a whole number from 1 on"].assert_eq(&error("median:interval=0"));
    expect!["pruner patience lacks steps; write for example patience:steps=5"].assert_eq(&error("patience"));
    expect!["there is no pruner `mean`; choose one of median, percentile, forecast, wilcoxon, patience, threshold"]
        .assert_eq(&error("patience:steps=2,around=mean"));
    expect!["pruner median has no setting `around`; write median:SETTING=NUMBER with startup, warmup, interval, least"]
        .assert_eq(&error("median:around=patience"));
    expect!["pruner forecast has chance=2; give a probability from 0 to 1"].assert_eq(&error("forecast:chance=2"));
    expect!["pruner forecast no longer has the setting `share`; use forecast:chance=0.05"]
        .assert_eq(&error("forecast:share=0.1"));
    expect!["pruner wilcoxon no longer has the setting `wrong`; use forecast"].assert_eq(&error("wilcoxon:wrong=0.1"));
    expect!["pruner threshold lacks lower or upper; write for example threshold:upper=10"]
        .assert_eq(&error("threshold:warmup=2"));
    expect!["pruner threshold has upper=1; give a number that is not below lower"]
        .assert_eq(&error("threshold:lower=2,upper=1"));
    let refused = |spec: StudySpec| create(&spec).err().expect("refused").to_string();
    assert_eq!(refused(StudySpec { pruner: Some("mean".into()), ..spec("random") }), error("mean"));
    let old = refused(StudySpec { pruner: Some("wilcoxon:wrong=0.1".into()), ..spec("random") });
    assert_eq!(old, error("wilcoxon:wrong=0.1"));
    assert!(refused(StudySpec { terminator: Some("x".into()), ..spec("random") }).starts_with("`x` names no"));
}

#[test]
fn rules_of_a_study_are_its_oracles() {
    let mut oracle = create(&StudySpec { pruner: Some("threshold:lower=0.5".into()), ..spec("random") }).unwrap();
    let mut trials = [TrialRecord::new(0)];
    for (value, end) in [(0.7, None), (0.4, Some(EarlyEnd::Pruned))] {
        trials[0].metrics.insert(0, BTreeMap::from([("accuracy".to_owned(), Some(value))]));
        assert_eq!(oracle.ends(0, &trials), end);
    }
    assert_eq!(create(&spec("random")).unwrap().ends(0, &trials), None);
}

#[test]
fn patience_alone_finishes_a_trial_and_around_another_pruner_it_prunes() {
    let mut trials = [TrialRecord::new(0)];
    for step in 0..5 {
        let accuracy = 0.4 - 0.01 * step as f64;
        trials[0].metrics.insert(step, BTreeMap::from([("accuracy".to_owned(), Some(accuracy))]));
    }
    for (rule, end) in
        [("patience:steps=3", EarlyEnd::Finished), ("patience:steps=3,around=threshold:lower=0.5", EarlyEnd::Pruned)]
    {
        let mut oracle = create(&StudySpec { pruner: Some(rule.into()), ..spec("random") }).unwrap();
        assert_eq!(oracle.ends(0, &trials), Some(end), "{rule}");
        assert_eq!(oracle.ends(0, &[TrialRecord::new(0)]), None, "{rule}");
    }
}

#[test]
fn terminated_search_starts_no_trial_and_finishes_those_begun() {
    let stagnant =
        |oracle: &str| StudySpec { max_trials: 300, terminator: Some("stagnation:trials=20".into()), ..spec(oracle) };
    let search_of = Search::run(&stagnant("random"), space);
    let best =
        search_of.trials.iter().max_by(|a, b| a.value().unwrap().total_cmp(&b.value().unwrap())).expect("trials");
    let since = search_of.trials.len() as u64 - best.number - 1;
    assert!((20..25).contains(&since) && search_of.next() == Next::Exhausted, "{since}");
    for oracle in ["hyperband", "asha", "pbt", "pb2"] {
        let terminator = Some("stagnation:trials=5".into());
        let (trials, decisions) = search(&StudySpec { terminator, ..stagnant(oracle) }, 9, &steady);
        assert!(trials.iter().all(|trial| trial.ending.is_some()), "{oracle}");
        assert!(
            trials.len() < 300,
            "{oracle}: {}",
            trials.iter().filter(|trial| trial.ending == Some(Ending::Finished)).count()
        );
        assert_eq!(decisions.last(), Some(&Next::Exhausted));
    }
}

#[test]
fn search_ends_when_a_model_sees_nothing_left_to_gain() {
    let flat = |ask: &mut Ask<'_>| {
        let range = |high| Distribution::Float { low: -1.0, high, step: None, scale: Scale::Linear };
        let (Value::Float(x), Value::Float(y)) = (ask("x", range(1.0)), ask("y", range(2.0))) else { return f64::NAN };
        -(x - 0.3).powi(2) - (y - 0.5).powi(2)
    };
    let spec = StudySpec { max_trials: 200, terminator: Some("regret".into()), ..spec("cmaes") };
    let search = Search::run(&spec, flat);
    let best = search.trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max);
    assert!((20..150).contains(&search.trials.len()) && best > -0.01, "{} {best}", search.trials.len());
    // A new oracle gives the same answer for the same records.
    assert_eq!(create(&spec).unwrap().next(&search.trials, &[]), Next::Exhausted);
    assert_eq!(create(&spec).unwrap().next(&search.trials[..search.trials.len() - 5], &[]), Next::New);
}
