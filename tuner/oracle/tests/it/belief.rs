//! What a search expects of the trials to come.

use ferrotune_oracle::space::objective::{Direction, Objective};
use ferrotune_oracle::space::record::TrialRecord;
use ferrotune_oracle::space::spec::StudySpec;
use ferrotune_oracle::space::{Distribution, Scale, Value};
use ferrotune_oracle::{Belief, Expected, OracleError, Search, belief};
use std::error::Error;

fn spec(direction: Direction) -> StudySpec {
    let objectives = vec![Objective::new("score", direction)];
    StudySpec { max_trials: 100, seed: Some(4), ..StudySpec::new("valley", objectives) }
}

/// The loss of a trial with these values; `y` belongs to one kind.
fn loss(x: f64, n: i64, y: Option<f64>) -> f64 {
    (x - 1.0).powi(2) + (n - 4).pow(2) as f64 / 9.0 + y.map_or(3.0, |y| y.log10().abs())
}

/// The trials of a search of this many trials.
fn searched(spec: &StudySpec, trials: usize) -> Result<Vec<TrialRecord>, Box<dyn Error>> {
    let mut search = Search::new(spec)?;
    for _ in 0..trials {
        let trial = search.ask().ok_or("over")?;
        let (x, n) = (search.float(trial, "x", -4.0..=4.0)?, search.int(trial, "n", 1..=9)?);
        let has_y = search.choice(trial, "kind", ["plain", "wide"])? == "wide";
        let y = has_y.then(|| search.log_float(trial, "y", 1e-2..=1e2)).transpose()?;
        search.tell(trial, &[spec.objectives[0].direction.loss(loss(x, n, y))])?;
    }
    Ok(search.trials().to_vec())
}

fn slice<'a>(belief: &'a Belief, name: &str) -> Option<&'a [Expected]> {
    belief.slices.iter().find(|slice| slice.parameter == name).map(|slice| slice.points.as_slice())
}

#[test]
fn slices_hold_the_truth_between_their_bounds() -> Result<(), Box<dyn Error>> {
    for direction in [Direction::Min, Direction::Max] {
        let trials = searched(&spec(direction), 40)?;
        let belief = belief(&spec(direction), &trials)?;
        let points = slice(&belief, "x").ok_or("no slice")?;
        assert_eq!(points.len(), 49);
        let known = |point: &&Expected| {
            let Value::Float(x) = point.value else { return false };
            // The other parameters of the best point are close to 4 and 1.
            let truth = direction.loss(loss(x, 4, Some(1.0)));
            (point.low - 0.3..point.high + 0.3).contains(&truth)
        };
        let held = points.iter().filter(known).count();
        assert!(held >= 40, "{held} of 49");
        assert!(points.iter().all(|point| point.low <= point.median && point.median <= point.high));
        assert_eq!(slice(&belief, "n").map(<[_]>::len), Some(9));
        let kinds: Vec<&Value> = slice(&belief, "kind").ok_or("no slice")?.iter().map(|point| &point.value).collect();
        assert_eq!(kinds, [&Value::from("plain"), &Value::from("wide")]);
        let best = points.iter().min_by(|a, b| direction.loss(a.median).total_cmp(&direction.loss(b.median)));
        assert!(matches!(best.map(|best| &best.value), Some(Value::Float(x)) if (x - 1.0).abs() < 0.4), "{best:?}");
    }
    Ok(())
}

#[test]
fn the_next_values_are_those_of_the_search() -> Result<(), Box<dyn Error>> {
    let spec = spec(Direction::Min);
    let trials = searched(&spec, 13)?;
    let next = belief(&spec, &trials[..12])?.next;
    let given = trials[12].parameters.iter().map(|(name, known)| (name.clone(), known.value.clone())).collect();
    assert_eq!(next, given);
    Ok(())
}

#[test]
fn few_trials_have_no_slices_and_no_seed_no_next_trial() -> Result<(), OracleError> {
    assert_eq!(belief(&spec(Direction::Min), &[])?, Belief::default());
    let range = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
    let mut search = Search::new(&spec(Direction::Min))?;
    let trial = search.ask().ok_or(OracleError::NoTrials)?;
    search.value(trial, "x", &range).map_err(|_| OracleError::NoTrials)?;
    search.tell(trial, &[1.0]).map_err(|_| OracleError::NoTrials)?;
    let one = belief(&spec(Direction::Min), search.trials())?;
    assert!(one.slices.is_empty() && one.next.len() == 1, "{one:?}");
    assert!(belief(&StudySpec { seed: None, ..spec(Direction::Min) }, search.trials())?.next.is_empty());
    Ok(())
}
