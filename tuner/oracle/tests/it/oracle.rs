//! Tests of the contract that every oracle keeps, and of the searches that `create` refuses.

use crate::simulation::{Search, Simulation, conditional, space};
use crate::spec;
use expect_test::expect;
use ferrotune_oracle::{Next, create, names};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};
use std::time::Instant;

fn of(name: &str, max_trials: u64) -> StudySpec {
    StudySpec { max_trials, ..spec(name) }
}

#[test]
fn starts_as_many_trials_as_asked_for() {
    for name in names() {
        let search = Search::run(&of(name, 30), space);
        assert_eq!((search.trials.len(), search.next()), (30, Next::Exhausted), "{name}");
    }
}

#[test]
fn suggestions_lie_in_their_ranges_and_differ_between_trials() {
    for name in names() {
        let trials = Search::run(&of(name, 40), space).trials;
        for parameter in trials.iter().flat_map(|trial| trial.parameters.values()) {
            assert!(parameter.distribution.contains(&parameter.value), "{name}: {parameter:?}");
        }
        for (index, trial) in trials.iter().enumerate() {
            assert!(trials[..index].iter().all(|earlier| earlier.parameters != trial.parameters), "{name} {index}");
        }
    }
}

#[test]
fn a_seed_decides_every_suggestion() {
    for name in names() {
        let search = |spec: StudySpec| Search::run(&spec, space).trials;
        assert_eq!(search(of(name, 25)), search(of(name, 25)), "{name}");
        if name != "grid" {
            assert_ne!(search(of(name, 25)), search(StudySpec { seed: Some(8), ..of(name, 25) }), "{name}");
        }
    }
}

#[test]
fn a_resumed_search_draws_what_an_uninterrupted_one_would() {
    for name in names() {
        for objective in [space as Simulation, conditional] {
            let whole = Search::run(&of(name, 35), objective).trials;
            for count in (0..whole.len()).step_by(3) {
                let mut resumed = Search { trials: whole[..count].to_vec(), ..Search::new(&of(name, 35), objective) };
                resumed.step();
                assert_eq!(resumed.trials[count].parameters, whole[count].parameters, "{name} {count}");
            }
        }
    }
}

#[test]
fn a_trial_interrupted_between_two_questions_goes_on_as_it_would_have() {
    for name in names() {
        let whole = Search::run(&of(name, 30), conditional).trials;
        for number in [5, 29] {
            let mut trials = whole[..=number].to_vec();
            let mut cut = TrialRecord::new(number as u64);
            let opt = ("opt".to_owned(), whole[number].parameters["opt"].clone());
            cut.parameters.extend([opt]);
            trials[number] = cut;
            let mut oracle = create(&of(name, 30)).unwrap();
            for (parameter, known) in &whole[number].parameters {
                let value = oracle.suggest(number as u64, parameter, &known.distribution, &trials);
                assert_eq!(value, known.value, "{name} {number} {parameter}");
            }
        }
    }
}

#[test]
fn a_suggestion_does_not_depend_on_the_order_of_questions() {
    for name in names() {
        let trials = Search::run(&of(name, 24), space).trials;
        for count in [0, 23] {
            let earlier = &trials[..count];
            let ask = |order: &mut dyn Iterator<Item = (&'static str, Distribution)>| {
                let mut oracle = create(&of(name, 24)).unwrap();
                let mut asked: Vec<_> =
                    order.map(|(name, range)| (name, oracle.suggest(count as u64, name, &range, earlier))).collect();
                asked.sort_by_key(|(name, _)| *name);
                asked
            };
            assert_eq!(ask(&mut parameters().into_iter()), ask(&mut parameters().into_iter().rev()), "{name}");
        }
    }
}

fn parameters() -> Vec<(&'static str, Distribution)> {
    let mut all = Vec::new();
    space(&mut |name, range| {
        all.push((name, range.clone()));
        range.from_unit(0.5)
    });
    all
}

#[test]
fn parallel_trials_do_not_collapse_onto_one_point() {
    for name in names() {
        for asked_at_once in [true, false] {
            let mut search = Search::run(&of(name, 60), space).cut(40);
            let begun = search.begin_side_by_side(8, asked_at_once);
            for (index, trial) in begun.iter().enumerate() {
                let same = begun[..index].iter().filter(|other| other.parameters == trial.parameters).count();
                assert_eq!(same, 0, "{name}: trial {} repeats another", trial.number);
            }
        }
    }
}

#[test]
fn trials_side_by_side_are_chosen_again_as_before_after_a_restart() {
    for name in names() {
        let mut search = Search::run(&of(name, 60), space).cut(30);
        let begun = search.begin_side_by_side(4, false);
        // All four trials have asked for one parameter when the supervisor dies.
        let mut trials = search.trials[..30].to_vec();
        for trial in &begun {
            let mut cut = TrialRecord::new(trial.number);
            cut.parameters.extend(trial.parameters.clone().into_iter().take(1));
            trials.push(cut);
        }
        let mut oracle = create(&of(name, 60)).unwrap();
        for trial in begun.iter().rev() {
            for (parameter, known) in &trial.parameters {
                let value = oracle.suggest(trial.number, parameter, &known.distribution, &trials);
                assert_eq!(value, known.value, "{name} {} {parameter}", trial.number);
            }
        }
    }
}

#[test]
fn conditional_parameters_are_searched_in_their_ranges() {
    for name in names() {
        let trials = Search::run(&of(name, 60), conditional).trials;
        let with = |parameter: &str| trials.iter().filter(|trial| trial.parameters.contains_key(parameter)).count();
        assert_eq!(with("momentum") + with("beta"), 60, "{name}");
        assert!(with("momentum") > 0 && with("beta") > 0, "{name}");
        for parameter in trials.iter().flat_map(|trial| trial.parameters.values()) {
            assert!(parameter.distribution.contains(&parameter.value), "{name}: {parameter:?}");
        }
    }
}

#[test]
fn endings_of_every_kind_are_survived() {
    let endings = [
        Ending::Failed { reason: "no".into() },
        Ending::Panicked { message: "no".into() },
        Ending::OutOfMemory { peak_bytes: 2, budget_bytes: 1 },
        Ending::Signalled { signal: 11 },
        Ending::TimedOut { after_s: 1 },
        Ending::Cancelled,
        Ending::Pruned,
        Ending::Finished, // without a value
    ];
    for name in names() {
        let mut search = Search::new(&of(name, 64), space);
        while search.next() == Next::New {
            search.step();
            let last = search.trials.last_mut().unwrap();
            if !last.number.is_multiple_of(3) || last.number < 16 {
                last.ending = Some(endings[last.number as usize % endings.len()].clone());
                last.values = Vec::new();
            }
        }
        assert_eq!(search.trials.len(), 64, "{name}");
    }
}

#[test]
fn a_range_that_changes_is_kept_to() {
    for name in names() {
        let mut search = Search::run(&of(name, 60), space).cut(40);
        search.objective = |ask| {
            let units = Distribution::Int { low: 100, high: 130, step: 10, scale: Scale::Linear };
            let lr = Distribution::Float { low: 1e-3, high: 1e-2, step: None, scale: Scale::Log };
            ask("units", units);
            ask("lr", lr);
            1.0
        };
        search.run_on();
        for parameter in search.trials.iter().flat_map(|trial| trial.parameters.values()) {
            assert!(parameter.distribution.contains(&parameter.value), "{name}: {parameter:?}");
        }
    }
}

/// A problem whose best values are `depth` 62, `decay` 0.99 and `width` 64.
fn scaled(ask: &mut crate::simulation::Ask<'_>) -> f64 {
    let widths = [8, 16, 32, 64, 128, 256].map(Value::Int).to_vec();
    let depth = ask("depth", Distribution::Int { low: 1, high: 64, step: 1, scale: Scale::ReverseLog });
    let decay = ask("decay", Distribution::Float { low: 0.5, high: 0.999, step: None, scale: Scale::ReverseLog });
    let width = ask("width", Distribution::Choice { values: widths, is_ordered: true });
    match (depth, decay, width) {
        (Value::Int(depth), Value::Float(decay), Value::Int(width)) => {
            let decay = (1.0 - decay).log10() + 2.0;
            -(((depth - 62) as f64 / 10.0).powi(2) + decay.powi(2) + ((width as f64).log2() - 6.0).powi(2))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn reversed_scales_and_ordered_choices_are_searched() {
    for name in names() {
        let trials = Search::run(&of(name, 60), scaled).trials;
        for parameter in trials.iter().flat_map(|trial| trial.parameters.values()) {
            assert!(parameter.distribution.contains(&parameter.value), "{name}: {parameter:?}");
        }
    }
    for name in ["gp", "tpe", "cmaes", "auto"] {
        let best = |name: &str| {
            let values = Search::run(&of(name, 60), scaled).trials;
            values.into_iter().filter_map(|trial| trial.value()).fold(f64::MIN, f64::max)
        };
        assert!(best(name) > best("random"), "{name} {} {}", best(name), best("random"));
    }
}

#[test]
fn an_interrupted_trial_is_continued_when_no_other_is_left() {
    for name in names() {
        let mut search = Search::run(&of(name, 10), space);
        search.trials[4].ending = None;
        assert_eq!(search.next(), Next::Continue { trial: 4 }, "{name}");
    }
}

#[test]
fn a_thousand_trials_are_not_too_many() {
    for name in names() {
        let mut search = Search::run(&of("random", 1000), space);
        search.spec = of(name, 1010);
        let started = Instant::now();
        search.restart().run_on();
        assert_eq!(search.trials.len(), 1010, "{name}");
        // The limit is generous, because other tests run at the same time.
        assert!(started.elapsed().as_secs_f64() < 10.0, "{name} takes {:?} for ten trials", started.elapsed());
    }
}

#[test]
fn a_search_without_a_seed_is_another_one_each_time() {
    let unseeded = StudySpec { seed: None, ..spec("random") };
    assert_ne!(Search::run(&unseeded, space).trials, Search::run(&unseeded, space).trials);
}

#[test]
fn impossible_searches_are_refused() {
    let error = |spec: StudySpec| create(&spec).err().expect("refused").to_string();
    let unknown = error(spec("hyperbnad"));
    assert!(
        unknown.starts_with("there is no oracle `hyperbnad`, did you mean `hyperband`?; choose one of auto, random")
    );
    assert!(error(spec("x")).starts_with("there is no oracle `x`; choose one of auto, random"));
    expect!["--max-trials is 0; give at least 1"].assert_eq(&error(StudySpec { max_trials: 0, ..spec("random") }));
    expect!["--timeout is -1; give more than 0 seconds"]
        .assert_eq(&error(StudySpec { timeout_s: Some(-1.0), ..spec("random") }));
    expect!["--trial-timeout is NaN; give more than 0 seconds"]
        .assert_eq(&error(StudySpec { trial_timeout_s: Some(f64::NAN), ..spec("random") }));
}
