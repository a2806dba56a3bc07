//! Simulated searches without workers: objectives that are plain functions, and records made by hand.

use ferrotune_oracle::{Next, Oracle, create};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};

/// A function with which an objective asks for a parameter.
pub(crate) type Ask<'a> = dyn FnMut(&'static str, Distribution) -> Value + 'a;
/// A simulated objective.
pub(crate) type Simulation = fn(&mut Ask<'_>) -> f64;

/// A search that runs in this process.
pub(crate) struct Search {
    pub(crate) spec: StudySpec,
    pub(crate) objective: Simulation,
    pub(crate) trials: Vec<TrialRecord>,
    pub(crate) oracle: std::cell::RefCell<Box<dyn Oracle>>,
}

impl Search {
    pub(crate) fn new(spec: &StudySpec, objective: Simulation) -> Search {
        let oracle = std::cell::RefCell::new(create(spec).expect("a valid search"));
        Search { spec: spec.clone(), objective, trials: Vec::new(), oracle }
    }

    /// A search that has been run to its end.
    pub(crate) fn run(spec: &StudySpec, objective: Simulation) -> Search {
        let mut search = Search::new(spec, objective);
        search.run_on();
        search
    }

    pub(crate) fn run_on(&mut self) {
        while self.next() == Next::New {
            self.step();
        }
    }

    pub(crate) fn next(&self) -> Next {
        self.oracle.borrow_mut().next(&self.trials, &[])
    }

    /// The search with a new oracle, as after a restart.
    pub(crate) fn restart(&mut self) -> &mut Search {
        self.oracle = std::cell::RefCell::new(create(&self.spec).expect("a valid search"));
        self
    }

    /// The search in its state after its first `count` trials.
    pub(crate) fn cut(mut self, count: usize) -> Search {
        self.trials.truncate(count);
        self.restart();
        self
    }

    /// Runs one trial of the search.
    pub(crate) fn step(&mut self) {
        let number = self.trials.len() as u64;
        self.trials.push(TrialRecord::new(number));
        let value = (self.objective)(&mut |name, distribution| {
            answer((&self.spec, &self.oracle), &mut self.trials, number, name, distribution)
        });
        let record = self.trials.last_mut().expect("just begun");
        (record.values, record.ending) = (vec![value], Some(Ending::Finished));
    }

    /// Begins `count` trials that ask for all of `space`: either each trial asks for everything in turn, or all trials ask for one
    /// parameter after the other.
    pub(crate) fn begin_side_by_side(&mut self, count: usize, asked_at_once: bool) -> Vec<TrialRecord> {
        let first = self.trials.len();
        let mut ranges = Vec::new();
        space(&mut |name, range| {
            ranges.push((name, range.clone()));
            range.from_unit(0.5)
        });
        let ask = |trials: &mut Vec<TrialRecord>, number: usize, (name, range): &(&'static str, Distribution)| {
            answer((&self.spec, &self.oracle), trials, number as u64, name, range.clone());
        };
        for number in first..first + count {
            self.trials.push(TrialRecord::new(number as u64));
            if asked_at_once {
                ranges.iter().for_each(|range| ask(&mut self.trials, number, range));
            }
        }
        if !asked_at_once {
            for range in &ranges {
                (first..first + count).for_each(|number| ask(&mut self.trials, number, range));
            }
        }
        self.trials[first..].to_vec()
    }
}

/// A parameter's value as a ledger gives it: the oracle chooses only if the user has set no value.
pub(crate) fn answer(
    (spec, oracle): (&StudySpec, &std::cell::RefCell<Box<dyn Oracle>>),
    trials: &mut [TrialRecord],
    number: u64,
    name: &str,
    distribution: Distribution,
) -> Value {
    let preset = &trials[number as usize].preset;
    let given = spec.given.value(preset, name, &distribution, None).expect("a value of its range");
    let value = given.unwrap_or_else(|| oracle.borrow_mut().suggest(number, name, &distribution, trials));
    let parameter = Parameter { distribution, value: value.clone() };
    trials[number as usize].parameters.insert(name.to_owned(), parameter);
    value
}

/// An objective with every kind of range. Best at `units` 256, `lr` 0.01, `dropout` 0.1, `layers` 3 and with `norm`.
pub(crate) fn space(ask: &mut Ask<'_>) -> f64 {
    let mut loss = 0.0;
    let mut number = |name, range, best: f64, width: f64| {
        let value = match ask(name, range) {
            Value::Int(value) => value as f64,
            Value::Float(value) if width < 0.0 => value.log10(),
            Value::Float(value) => value,
            Value::Bool(value) => f64::from(u8::from(value)),
            Value::Text(_) => f64::NAN,
        };
        loss += ((value - best) / width).powi(2);
    };
    number("units", Distribution::Int { low: 32, high: 512, step: 32, scale: Scale::Linear }, 256.0, 200.0);
    number("layers", Distribution::Int { low: 1, high: 64, step: 1, scale: Scale::Log }, 3.0, 20.0);
    number("dropout", Distribution::Float { low: 0.0, high: 0.5, step: Some(0.1), scale: Scale::Linear }, 0.1, 0.3);
    number("lr", Distribution::Float { low: 1e-4, high: 1e-1, step: None, scale: Scale::Log }, -2.0, -1.0);
    number(
        "norm",
        Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false },
        1.0,
        1.0,
    );
    -loss
}

/// An objective with a choice that decides which other parameter there is.
pub(crate) fn conditional(ask: &mut Ask<'_>) -> f64 {
    let opt =
        Distribution::Choice { values: vec![Value::Text("sgd".into()), Value::Text("adam".into())], is_ordered: false };
    let (name, best) = match ask("opt", opt) {
        Value::Text(opt) if opt == "sgd" => ("momentum", 0.9),
        _ => ("beta", 0.3),
    };
    let Value::Float(inner) = ask(name, Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear })
    else {
        return f64::NAN;
    };
    let Value::Int(layers) = ask("layers", Distribution::Int { low: 1, high: 8, step: 1, scale: Scale::Linear }) else {
        return f64::NAN;
    };
    -(inner - best).powi(2) - 0.1 * (layers as f64 - 5.0).powi(2)
}
