//! Tests of the oracles' settings: the effect of each one, and the errors for wrong ones.

use crate::hyperband::{epochs_trained, search, steady};
use crate::schedules::continued_by;
use crate::simulation::{Ask, Search, conditional, space};
use crate::spec;
use expect_test::expect;
use ferrotune_oracle::{Next, create, names};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};
use std::collections::{BTreeMap, BTreeSet};

fn of(oracle: &str, max_trials: u64) -> StudySpec {
    StudySpec { max_trials, ..spec(oracle) }
}

fn refusal(oracle: &str) -> String {
    create(&spec(oracle)).err().map_or_else(|| "accepted".to_owned(), |error| error.to_string())
}

/// The settings that the error for an unknown setting lists.
fn known(oracle: &str) -> Vec<String> {
    let error = refusal(&format!("{oracle}:zzz=1"));
    let (_, known) = error.split_once("; it has ").unwrap_or_else(|| panic!("{error}"));
    if known == "none" { Vec::new() } else { known.split(", ").map(str::to_owned).collect() }
}

#[test]
fn wrong_settings_are_refused_with_the_allowed_ones() {
    let wrong = [
        "hyperband:facter=4",
        "hyperband:factor=1",
        "asha:brackets=0",
        "bohb:min=0",
        "pbt:population=1",
        "pbt:quantile=0.6",
        "pb2:resample=0.5",
        "tpe:gamma=1.5",
        "cmaes:sigma0=-1",
        "gp:noise=2",
        "auto:noise=0",
        "grid:lr=",
        "grid:lr=1||2",
        "hyperbond:factor=4",
        "hyperband:factor",
    ];
    let refusals: Vec<String> = wrong.iter().map(|oracle| format!("{oracle}: {}", refusal(oracle))).collect();
    expect![[r#"
        hyperband:facter=4: oracle hyperband has no setting `facter`, did you mean `factor`?; it has factor, min, iterations
        hyperband:factor=1: oracle hyperband has factor=1; give a whole number from 2 to 1000
        asha:brackets=0: oracle asha has brackets=0; give a whole number from 1 to 20
        bohb:min=0: oracle bohb has min=0; give a whole number from 1 on
        pbt:population=1: oracle pbt has population=1; give a whole number from 2 to 1000000
        pbt:quantile=0.6: oracle pbt has quantile=0.6; give a number above 0 and up to 0.5
        pb2:resample=0.5: oracle pb2 has no setting `resample`; it has population, interval, quantile
        tpe:gamma=1.5: oracle tpe has gamma=1.5; give a number above 0 and below 1
        cmaes:sigma0=-1: oracle cmaes has sigma0=-1; give a number above 0 and up to 1
        gp:noise=2: oracle gp has noise=2; give a number from 0 to 1
        auto:noise=0: oracle auto has no setting `noise`; it has none
        grid:lr=: oracle grid has `lr=`, which is no setting; write grid:SETTING=VALUE,…
        grid:lr=1||2: oracle grid has lr=1||2; give the parameter's values with | between them
        hyperbond:factor=4: there is no oracle `hyperbond`, did you mean `hyperband`?; choose one of auto, random, grid, qmc, tpe, gp, cmaes, nsga2, nsga3, hyperband, bohb, successive_halving, asha, pbt, pb2
        hyperband:factor: oracle hyperband has `factor`, which is no setting; write hyperband:SETTING=VALUE,…
    "#]]
    .assert_eq(&format!("{}\n", refusals.join("\n")));
    for oracle in ["hyperband:", "hyperband:factor=4, iterations=2 ,min=1", "grid:lr=1e-3|1e-2,kind=a|b", "gp:noise=0"]
    {
        assert_eq!(refusal(oracle), "accepted", "{oracle}");
    }
}

#[test]
fn every_setting_is_in_the_documentation() {
    let page = include_str!("../../../../docs/oracles.md");
    for oracle in names().filter(|oracle| *oracle != "grid") {
        for setting in known(oracle) {
            let row = page
                .lines()
                .find(|line| line.contains(&format!("`{setting}`")) && line.contains(&format!("`{oracle}`")));
            assert!(row.is_some(), "docs/oracles.md has no row for {setting} of {oracle}");
        }
    }
}

#[test]
fn settings_that_are_the_defaults_change_nothing() {
    let same = [
        ("tpe", "tpe:startup=6,candidates=24"),
        ("cmaes", "cmaes:separable=false"),
        ("nsga2", "nsga2:population=10"),
        ("nsga3", "nsga3:divisions=3"),
        ("grid", "grid:"),
    ];
    for (plain, set) in same {
        assert_eq!(Search::run(&of(plain, 30), space).trials, Search::run(&of(set, 30), space).trials, "{set}");
    }
    for (plain, set) in [
        ("hyperband", "hyperband:factor=3,min=1"),
        ("asha", "asha:factor=3,min=1,brackets=1"),
        ("bohb", "bohb:factor=3"),
        ("successive_halving", "successive_halving:min=1"),
        ("pb2", "pb2:population=12,quantile=0.25"),
        ("pbt", "pbt:population=12,quantile=0.25,resample=0.25,perturbation=1.25,discrete=false"),
    ] {
        assert_eq!(search(&of(plain, 40), 27, &steady), search(&of(set, 40), 27, &steady), "{set}");
    }
}

#[test]
fn samplers_try_other_values_with_other_settings() {
    for (plain, set) in [
        ("tpe", "tpe:startup=5"),
        ("tpe", "tpe:candidates=100"),
        ("tpe", "tpe:gamma=0.5"),
        ("cmaes", "cmaes:sigma0=0.05"),
        ("cmaes", "cmaes:population=20"),
        ("cmaes", "cmaes:separable=true"),
        ("nsga2", "nsga2:population=5"),
        ("nsga3", "nsga3:population=5"),
        ("gp", "gp:noise=0.5"),
    ] {
        let tried = |oracle| {
            let trials = Search::run(&of(oracle, 40), space).trials;
            trials.into_iter().map(|trial| trial.parameters).collect::<Vec<_>>()
        };
        let (plain, other) = (tried(plain), tried(set));
        assert!(plain[..3] == other[..3] || set.starts_with("cmaes"), "{set}: the first trials are spread alike");
        assert_ne!(plain, other, "{set}");
    }
}

#[test]
fn hyperband_has_the_rungs_and_the_rounds_that_are_asked_for() {
    // One bracket with each of 3, 2, 1 and 0 halvings by 4 of 64 epochs: 64, 22, 8 and 4 trials.
    let spec = of("hyperband:factor=4,iterations=2", 1000);
    let (trials, decisions) = search(&spec, 64, &steady);
    assert_eq!((trials.len(), decisions.last()), (2 * (64 + 22 + 8 + 4), Some(&Next::Exhausted)));
    assert_eq!(epochs_trained(&trials[..64]), BTreeMap::from([(1, 48), (4, 12), (16, 3), (64, 1)]));
    assert!(trials.iter().all(|trial| trial.ending.is_some()));
    let planned = create(&spec).expect("a valid search").planned_epochs(&trials, 1000);
    assert_eq!(planned, Some(trials.iter().map(TrialRecord::epochs_done).sum()));
    let (trials, _) = search(&of("hyperband:min=9", 9), 81, &steady);
    assert_eq!(epochs_trained(&trials), BTreeMap::from([(9, 6), (27, 2), (81, 1)]));
    // The limit of the search applies, too.
    assert_eq!(search(&of("hyperband:iterations=2", 10), 9, &steady).0.len(), 10);
}

#[test]
fn asha_begins_each_bracket_one_rung_later() {
    let (trials, decisions) = search(&of("asha:min=3", 27), 27, &steady);
    assert_eq!(epochs_trained(&trials).keys().next(), Some(&3));
    assert_eq!(decisions.last(), Some(&Next::Exhausted));
    let spec = of("asha:brackets=3", 200);
    let mut oracle = create(&spec).expect("a valid search");
    oracle.epochs(0, 27, &[]);
    let begun: Vec<u64> = (0..600).map(|trial| oracle.epochs(trial, 27, &[])).collect();
    let count = |epochs| begun.iter().filter(|begun| **begun == epochs).count() as f64 / 600.0;
    // The shares are e^0, e^-1 and e^-2, divided by their sum.
    for (epochs, share) in [(1, 0.665), (3, 0.245), (9, 0.090)] {
        assert!((count(epochs) - share).abs() < 0.05, "{} begin with {epochs}", count(epochs));
    }
    let (trials, decisions) = search(&spec, 27, &steady);
    assert_eq!((trials.len(), decisions.last()), (200, Some(&Next::Exhausted)));
    assert!(trials.iter().all(|trial| trial.ending.is_some()));
    assert!(trials.iter().any(|trial| trial.ending == Some(Ending::Finished)));
    for max_trials in 1..=20 {
        let (trials, _) = search(&of("asha:brackets=4,factor=2", max_trials), 27, &steady);
        let finished = trials.iter().filter(|trial| trial.ending == Some(Ending::Finished)).count();
        assert!(finished >= 1 && trials.iter().all(|trial| trial.ending.is_some()), "{max_trials}");
    }
}

#[test]
fn population_has_the_size_and_the_interval_that_are_asked_for() {
    // One of four trials is replaced after epochs 3, 6 and 9 of ten.
    let trials = continued_by("pbt:population=4,interval=3", Vec::new(), 7, 10);
    let copies: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.parent.is_some()).collect();
    assert_eq!((trials.len(), copies.len()), (7, 3));
    let pruned_at: BTreeSet<u64> =
        trials.iter().filter(|trial| trial.ending == Some(Ending::Pruned)).map(TrialRecord::epochs_done).collect();
    assert!(pruned_at.iter().all(|at| [3, 6, 9].contains(at)) && !pruned_at.is_empty(), "{pruned_at:?}");
    assert!(
        copies
            .iter()
            .all(|copy| copy.parameters["units"] == trials[copy.parent.expect("a copy") as usize].parameters["units"])
    );
    let trials = continued_by("pbt:population=4,interval=3,resample=0,discrete=true", Vec::new(), 7, 10);
    for copy in trials.iter().filter(|trial| trial.parent.is_some()) {
        let (units, before) =
            (&copy.parameters["units"], &trials[copy.parent.expect("a copy") as usize].parameters["units"]);
        let (Value::Int(units), Value::Int(before)) = (&units.value, &before.value) else { panic!("whole numbers") };
        assert!(units != before && units.abs_diff(*before) < 16, "{units} after {before}");
    }
}

#[test]
fn copies_change_whole_numbers_and_choices_only_if_they_are_told_to() {
    let depth = Distribution::Int { low: 1, high: 8, step: 1, scale: Scale::Log };
    let text = |text: &str| Value::Text(text.to_owned());
    let sizes = Distribution::Choice { values: ["s", "m", "l", "xl"].map(text).to_vec(), is_ordered: true };
    let kinds = Distribution::Choice { values: ["a", "b", "c"].map(text).to_vec(), is_ordered: false };
    let original = || {
        let mut record = TrialRecord::new(0);
        for (name, distribution, value) in
            [("depth", &depth, Value::Int(2)), ("size", &sizes, text("m")), ("kind", &kinds, text("a"))]
        {
            let parameter = ferrotune_space::Parameter { distribution: distribution.clone(), value };
            record.parameters.insert(name.to_owned(), parameter);
        }
        record.epochs = Some(10);
        steady(&mut record, 0, 5);
        record
    };
    let values = |settings: &str| {
        let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for seed in 0..40 {
            let mut oracle = create(&StudySpec { seed: Some(seed), ..of(settings, 99) }).expect("a valid search");
            let copy = TrialRecord { parent: Some(0), ..TrialRecord::new(2) };
            let mut worst = TrialRecord::new(1);
            worst.epochs = Some(10);
            (0..5).for_each(|step| crate::hyperband::report(&mut worst, step, -1.0));
            let trials = [original(), TrialRecord { ending: Some(Ending::Pruned), ..worst }, copy];
            assert_eq!(oracle.parent(2, &trials), Some(0));
            for (name, distribution) in [("depth", &depth), ("size", &sizes), ("kind", &kinds)] {
                let value = oracle.suggest(2, name, distribution, &trials);
                assert!(distribution.contains(&value));
                seen.entry(name).or_default().insert(value.to_string());
            }
        }
        seen.into_values().map(|values| values.into_iter().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let base = "pbt:population=2,interval=5,quantile=0.5";
    assert_eq!(values(base), ["2", "a", "m"]);
    assert_eq!(values(&format!("{base},discrete=true,resample=0")), ["1 3", "a", "l s"]);
    assert_eq!(values(&format!("{base},discrete=true,resample=1"))[1], "a b c");
}

/// A problem of eight numbers whose scales differ, without dependences between them.
fn ellipsoid(ask: &mut Ask<'_>) -> f64 {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut sum = 0.0;
    for (index, name) in names.into_iter().enumerate() {
        let Value::Float(x) = ask(name, Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear })
        else {
            return f64::NAN;
        };
        sum += 10_f64.powf(6.0 * index as f64 / 7.0) * (x - 0.3).powi(2);
    }
    -sum
}

#[test]
fn separable_strategy_is_faster_where_the_axes_are_independent() {
    let median = |oracle: &str| {
        let best = |seed| {
            let trials = Search::run(&StudySpec { seed: Some(seed), ..of(oracle, 800) }, ellipsoid).trials;
            trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut bests: Vec<f64> = (0..7).map(best).collect();
        bests.sort_by(f64::total_cmp);
        bests[3]
    };
    let (full, separable) = (median("cmaes"), median("cmaes:separable=true"));
    // Both values are negative.
    assert!(separable > full / 2.0, "{separable} {full}");
}

#[test]
fn first_generation_is_as_wide_as_sigma0() {
    let spread = |oracle: &str| {
        let trials = Search::run(&of(oracle, 10), ellipsoid).trials;
        let units = trials[1..].iter().flat_map(|trial| trial.parameters.values()).map(|known| {
            let Value::Float(x) = known.value else { panic!("a float") };
            (x - 0.5).powi(2)
        });
        (units.sum::<f64>() / (9.0 * 8.0)).sqrt()
    };
    assert!((spread("cmaes:sigma0=0.02") - 0.02).abs() < 0.004, "{}", spread("cmaes:sigma0=0.02"));
    assert!(spread("cmaes") > 0.1);
}

#[test]
fn grid_tries_only_the_given_values_of_a_conditional_space() {
    let spec = of("grid:momentum=0.9|0.5,beta=0.25,layers=5", 50);
    let trials = Search::run(&spec, conditional).trials;
    let combinations: BTreeSet<String> = trials
        .iter()
        .map(|trial| trial.parameters.values().map(|known| known.value.to_string()).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(trials.len(), 3);
    assert_eq!(combinations.into_iter().collect::<Vec<_>>(), ["0.25 5 adam", "5 0.5 sgd", "5 0.9 sgd"]);
    let oracle = create(&of("grid:layers=5|9", 50)).expect("a valid search");
    let layers = Distribution::Int { low: 1, high: 8, step: 1, scale: Scale::Linear };
    assert_eq!(
        oracle.objection("layers", &layers).as_deref(),
        Some("--oracle grid gives `layers` the value 9, but it is an int 1..=8; give values of its range")
    );
    assert_eq!(oracle.objection("momentum", &layers), None);
}
