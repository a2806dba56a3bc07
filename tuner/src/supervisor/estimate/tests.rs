//! Refusals over histories of searches: single histories written by hand, and a thousand random ones.

use super::*;
use ferrotune_oracle::create;
use ferrotune_oracle::sampling::sample;
use ferrotune_space::Scale;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::spec::StudySpec;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

const BUDGET: u64 = 1 << 30;

/// A simulated machine that decides how much memory a trial takes.
struct Machine {
    parameters: Vec<(String, Distribution)>,
    /// The number of doublings of memory over the whole range of each parameter, by position.
    doublings: Vec<f64>,
    /// A parameter and the part of its range, from one share to another, in which a trial takes all memory.
    spike: Option<(usize, f64, f64)>,
    base_bytes: f64,
}

fn range(kind: u32, rng: &mut Pcg64) -> Distribution {
    let scale = [Scale::Linear, Scale::Log, Scale::ReverseLog][rng.random_range(0..3)];
    let texts = |count: i64| (0..count).map(|index| Value::Text(format!("{index}"))).collect();
    match kind {
        0 => Distribution::Int { low: 0, high: 7, step: 1, scale: Scale::Linear },
        1 => Distribution::Int { low: 1, high: 1 << rng.random_range(3..14), step: 1, scale },
        2 => Distribution::Float { low: 1e-4, high: 1.0, step: None, scale },
        3 => Distribution::Float { low: 0.0, high: 0.5, step: Some(0.1), scale: Scale::Linear },
        4 => Distribution::Float { low: -1.0, high: 1.0, step: None, scale: Scale::Linear },
        5 => Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false },
        _ => Distribution::Choice { values: texts(rng.random_range(2..6)), is_ordered: rng.random() },
    }
}

impl Machine {
    /// Draws a machine with up to three numbers that cost memory, one of which may save memory as it grows. It has up to
    /// four parameters that have no influence on memory, and perhaps a value that takes all memory.
    fn draw(rng: &mut Pcg64) -> Machine {
        let (costly, idle) = (rng.random_range(0..4_usize), rng.random_range(1..5_usize));
        let mut machine = Machine { parameters: Vec::new(), doublings: Vec::new(), spike: None, base_bytes: 2e6 };
        for index in 0..costly + idle {
            let kind = if index < costly { rng.random_range(1..3) } else { rng.random_range(0..7) };
            let sign = if index > 0 && rng.random_bool(0.2) { -1.0 } else { 1.0 };
            machine.doublings.push(if index < costly { sign * rng.random_range(2.0..12.0) } else { 0.0 });
            // The order of the names is independent of their cost.
            machine.parameters.push((format!("{:08x}", rng.random::<u32>()), range(kind, rng)));
        }
        if rng.random() {
            let index = costly + rng.random_range(0..idle);
            let cells = machine.parameters[index].1.cells().unwrap_or(8.0).min(8.0);
            let cell = rng.random_range(0..cells as u32);
            machine.spike = Some((index, f64::from(cell) / cells, f64::from(cell + 1) / cells));
        }
        let most: f64 = machine.doublings.iter().map(|doublings| doublings.max(0.0)).sum();
        if most > 0.0 {
            machine.base_bytes = BUDGET as f64 / (most * rng.random_range(0.3..0.9)).exp2();
        }
        machine
    }

    fn trial(&self, number: u64, rng: &mut Pcg64) -> (TrialRecord, u64) {
        let mut record = TrialRecord::new(number);
        let mut bytes = self.base_bytes * (1.0 + 0.03 * (rng.random::<f64>() - 0.5));
        for (index, (name, distribution)) in self.parameters.iter().enumerate() {
            let value = sample(distribution, rng);
            let unit = distribution.to_unit(&value).expect("a value of its own");
            bytes *= (self.doublings[index] * unit).exp2();
            if self.spike.is_some_and(|(spike, low, high)| spike == index && (low..high).contains(&unit)) {
                bytes = f64::INFINITY;
            }
            record.parameters.insert(name.clone(), Parameter { distribution: distribution.clone(), value });
        }
        (record, bytes.min(64e9) as u64)
    }
}

/// The result of a search: the numbers of trials that were refused although they fit, that were refused and do not fit, and
/// that ran out of memory.
fn search(machine: &Machine, count: u64, rng: &mut Pcg64) -> (usize, usize, usize) {
    let mut trials: Vec<TrialRecord> = Vec::new();
    let (mut wrong, mut right, mut starved) = (0, 0, 0);
    for number in 0..count {
        let (mut record, bytes) = machine.trial(number, rng);
        record.ending = Some(match refusal(&record, &trials, BUDGET) {
            Some(estimate_bytes) => {
                assert!(estimate_bytes > BUDGET && estimate_bytes < 2 * BUDGET, "{estimate_bytes}");
                (wrong, right) = if bytes <= BUDGET { (wrong + 1, right) } else { (wrong, right + 1) };
                Ending::Refused { estimate_bytes, budget_bytes: BUDGET, device: None }
            }
            None => {
                // The supervisor ends a trial only a little beyond its budget.
                record.peak_bytes = bytes.min(BUDGET + BUDGET / 8);
                starved += usize::from(bytes > BUDGET);
                match bytes > BUDGET {
                    true => Ending::OutOfMemory { peak_bytes: record.peak_bytes, budget_bytes: BUDGET },
                    false => Ending::Finished,
                }
            }
        });
        trials.push(record);
    }
    (wrong, right, starved)
}

#[test]
fn no_search_of_a_thousand_refuses_more_than_one_trial_that_fits() {
    let (mut refused, mut starved, mut mistaken) = (0, 0, 0);
    for seed in 0..1000 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let machine = Machine::draw(&mut rng);
        let (wrong, right, out_of_memory) = search(&machine, 100, &mut rng);
        assert!(wrong <= 1, "seed {seed}: {wrong} trials that fit were refused, and {right} others");
        (refused, starved, mistaken) = (refused + right, starved + out_of_memory, mistaken + wrong);
    }
    // An estimate that never refused a trial would be safe, too. Most trials that ran out of memory had the value that
    // takes all memory, which no refusal can foresee.
    assert!(refused * 20 > starved && mistaken * 200 < refused, "{refused} {starved} {mistaken}");
}

#[test]
fn one_value_that_takes_all_memory_says_nothing_of_the_others() {
    let kind = Distribution::Int { low: 0, high: 7, step: 1, scale: Scale::Linear };
    let parameters = vec![("kind".to_owned(), kind)];
    let machine = Machine { parameters, doublings: vec![0.0], spike: Some((0, 0.5, 0.625)), base_bytes: 2e6 };
    let (wrong, right, starved) = search(&machine, 200, &mut Pcg64::seed_from_u64(3));
    assert!(wrong == 0 && right == 0 && starved > 10, "{wrong} {right} {starved}");
}

fn sized() -> Machine {
    let units = Distribution::Int { low: 1, high: 4096, step: 1, scale: Scale::Log };
    Machine { parameters: vec![("units".to_owned(), units)], doublings: vec![12.0], spike: None, base_bytes: 1e6 }
}

#[test]
fn trials_as_large_as_those_that_ran_out_of_memory_are_refused_but_for_one_in_four() {
    let (wrong, right, starved) = search(&sized(), 400, &mut Pcg64::seed_from_u64(3));
    assert!(wrong == 0 && right > starved, "{wrong} {right} {starved}");
    assert!(starved > right / RUN_ANYWAY as usize, "{right} {starved}");
}

/// A finished search of `sized`, in which three or more trials ran out of memory.
fn history() -> Vec<TrialRecord> {
    let mut rng = Pcg64::seed_from_u64(5);
    let trial = |number| {
        let (mut record, bytes) = sized().trial(number, &mut rng);
        record.peak_bytes = bytes.min(BUDGET + 1);
        record.ending = Some(match bytes > BUDGET {
            true => Ending::OutOfMemory { peak_bytes: record.peak_bytes, budget_bytes: BUDGET },
            false => Ending::Finished,
        });
        record
    };
    (0..40).map(trial).collect()
}

fn wanted(number: u64, units: i64) -> TrialRecord {
    let distribution = sized().parameters[0].1.clone();
    let units = Parameter { distribution, value: Value::Int(units) };
    TrialRecord { parameters: BTreeMap::from([("units".to_owned(), units)]), ..TrialRecord::new(number) }
}

#[test]
fn refusal_tells_what_others_took() {
    assert_eq!(refusal(&wanted(40, 4096), &history(), BUDGET), Some(BUDGET + 1));
    assert_eq!(refusal(&wanted(40, 512), &history(), BUDGET), None);
    assert_eq!(refusal(&wanted(43, 4096), &history(), BUDGET), None, "one in four runs");
}

#[test]
fn trial_that_fits_takes_back_what_was_said_of_smaller_ones() {
    let mut trials = history();
    let fitting = TrialRecord { peak_bytes: BUDGET / 2, ending: Some(Ending::Finished), ..wanted(40, 4096) };
    trials.push(fitting);
    assert_eq!(refusal(&wanted(41, 4096), &trials, BUDGET), None);
}

#[test]
fn smaller_budgets_few_trials_and_other_parameters_say_nothing() {
    let of = |trials: &[TrialRecord], budget| refusal(&wanted(40, 4096), trials, budget);
    assert_eq!(of(&history(), 2 * BUDGET), None);
    assert_eq!(of(&history()[..6], BUDGET), None);
    let mut other = wanted(40, 4096);
    let units = other.parameters.remove("units").expect("inserted");
    other.parameters.insert("width".to_owned(), units);
    assert_eq!(refusal(&other, &history(), BUDGET), None);
}

/// The number of refused trials in a random search over one number, in MiB, where each trial takes `base` MiB in addition.
fn refused_beside(base: u64, seed: u64) -> usize {
    let range = Distribution::Int { low: 20, high: 400, step: 1, scale: Scale::Log };
    let objectives = vec![Objective::new("loss", Direction::Min)];
    let spec = StudySpec { oracle: "random".to_owned(), seed: Some(seed), ..StudySpec::new("sized", objectives) };
    let mut oracle = create(&spec).expect("a valid search");
    let (mut trials, mut refused, budget_bytes) = (Vec::new(), 0, 150 << 20);
    for number in 0..40 {
        let value = oracle.suggest(number, "mib", &range, &trials);
        let Value::Int(mib) = value else { panic!("{value:?}") };
        let mut record = TrialRecord::new(number);
        record.parameters.insert("mib".to_owned(), Parameter { distribution: range.clone(), value });
        let bytes = (mib.unsigned_abs() + base) << 20;
        record.ending = Some(match refusal(&record, &trials, budget_bytes) {
            Some(estimate_bytes) => {
                assert!(bytes > budget_bytes, "{mib} MiB");
                refused += 1;
                Ending::Refused { estimate_bytes, budget_bytes, device: None }
            }
            None if bytes > budget_bytes => Ending::OutOfMemory { peak_bytes: bytes, budget_bytes },
            None => Ending::Finished,
        });
        record.peak_bytes = if matches!(record.ending, Some(Ending::Refused { .. })) { 0 } else { bytes };
        trials.push(record);
    }
    refused
}

#[test]
fn memory_beside_what_a_number_costs_hides_no_evidence() {
    let refused = |base| (0..10).map(|seed| refused_beside(base, seed)).collect::<Vec<_>>();
    for base in [2, 10, 40] {
        let refused = refused(base);
        assert!(refused[7] > 0 && refused.iter().sum::<usize>() > 20, "{refused:?} beside {base} MiB");
    }
}
