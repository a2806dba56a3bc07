//! `ferrotune oracle` chooses the values of another program's trials: the sampler for Optuna in the Python package asks it.
//!
//! A question is a line of JSON on the standard input, and its answer is a line of JSON on the standard output: `{"value": …}`, or
//! `{"error": …}`. The first question begins the search and is answered by `null`. The other program keeps the trials, and sends those that
//! have changed.

use anyhow::{Context as _, Result, bail};
use ferrotune_oracle::{Oracle, OracleError, create};
use ferrotune_space::objective::{Constraint, Direction, Objective};
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Value};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// The first question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    /// The oracle with its settings, as in `--oracle`.
    oracle: String,
    /// A direction for each objective.
    directions: Vec<Direction>,
    seed: Option<u64>,
}

/// The question for the value of a parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suggest {
    /// The new trials, and those that have changed.
    trials: Vec<KnownTrial>,
    /// The number of the trial that asks.
    trial: u64,
    name: String,
    distribution: Distribution,
}

/// A trial, as the other program knows it. A number that is not finite is `null`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownTrial {
    number: u64,
    state: State,
    parameters: BTreeMap<String, Parameter>,
    /// The reported values of the first objective by step.
    reports: Vec<(u64, Option<f64>)>,
    /// A value for each objective, or nothing.
    values: Vec<Option<f64>>,
    /// The number of each constraint, at most 0 if the trial keeps it; none if they are not known. A trial of a study whose later trials
    /// have more constraints keeps those.
    constraints: Option<Vec<Option<f64>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The trial waits for a program that runs it.
    Waiting,
    /// The trial runs, and its values are asked for here.
    Running,
    /// The trial runs, and another process asks for its values.
    RunningElsewhere,
    Finished,
    Pruned,
    Failed,
}

/// A search for another program.
struct Search {
    spec: StudySpec,
    oracle: Box<dyn Oracle>,
    /// The records by number. A trial that was never sent is a cancelled one.
    trials: Vec<TrialRecord>,
}

/// Answers questions until the standard input ends.
pub(crate) fn run() -> Result<()> {
    answer(std::io::stdin().lock(), std::io::stdout().lock())
}

fn answer(questions: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut search = None;
    for question in questions.lines() {
        let question = question.context("cannot read a question")?;
        let answer = match &mut search {
            None => Search::begin(&question).map(|begun| {
                search = Some(begun);
                serde_json::Value::Null
            }),
            Some(search) => search.suggest(&question).map(|value| serde_json::json!({ "value": value })),
        };
        let answer = answer.unwrap_or_else(|error| serde_json::json!({ "error": crate::chain::in_one_line(&error) }));
        writeln!(answers, "{answer}").and_then(|()| answers.flush()).context("cannot write an answer")?;
    }
    Ok(())
}

impl Search {
    fn begin(question: &str) -> Result<Search> {
        let begin: Begin = serde_json::from_str(question).context("the first question is not understood")?;
        let objective =
            |(index, direction): (usize, &Direction)| Objective::new(format!("objective {index}"), *direction);
        let spec = StudySpec {
            oracle: begin.oracle,
            max_trials: u64::MAX,
            seed: begin.seed,
            ..StudySpec::new("optuna", begin.directions.iter().enumerate().map(objective).collect())
        };
        let oracle = create(&spec)?;
        if oracle.pauses() {
            return Err(OracleError::DecidesEpochs { oracle: spec.oracle }.into());
        }
        Ok(Search { spec, oracle, trials: Vec::new() })
    }

    /// Has so many constraints from now on. The trials so far keep the new ones, if they tell any.
    fn constrain(&mut self, count: usize) -> Result<()> {
        if count <= self.spec.constraints.len() {
            return Ok(());
        }
        for index in self.spec.constraints.len()..count {
            let metric = constraint(index);
            for trial in self.trials.iter_mut().filter(|trial| trial.ending == Some(Ending::Finished)) {
                last_reports(&mut trial.metrics).insert(metric.clone(), Some(0.0));
            }
            self.spec.constraints.push(Constraint { metric, direction: Direction::Min, bound: 0.0 });
        }
        // What an oracle answers follows from the records alone.
        self.oracle = create(&self.spec)?;
        Ok(())
    }

    fn suggest(&mut self, question: &str) -> Result<Value> {
        let Suggest { trials, trial, name, distribution } =
            serde_json::from_str(question).context("the question is not understood")?;
        distribution.validate(&name)?;
        for known in trials {
            let number = known.number;
            let index = usize::try_from(number).ok().filter(|index| *index <= MOST_TRIALS);
            let index = index.with_context(|| format!("trial {number} is past the largest number, {MOST_TRIALS}"))?;
            while self.trials.len() <= index {
                let unknown = TrialRecord::new(self.trials.len() as u64);
                self.trials.push(TrialRecord { ending: Some(Ending::Cancelled), ..unknown });
            }
            // What is not known of a trial needs a constraint that the trial breaks.
            let is_finished = matches!(known.state, State::Finished);
            self.constrain(if is_finished { known.constraints.as_ref().map_or(1, Vec::len) } else { 0 })?;
            self.trials[index] = known.record(&self.spec.objectives[0].metric, self.spec.constraints.len());
        }
        if let Some(objection) = self.oracle.objection(&name, &distribution) {
            bail!("{objection}");
        }
        Ok(self.oracle.suggest(trial, &name, &distribution, &self.trials))
    }
}

/// The largest number of a trial, so that a wrong number does not fill the memory.
const MOST_TRIALS: usize = 10_000_000;

/// The metric of one of [`KnownTrial::constraints`].
fn constraint(index: usize) -> String {
    format!("constraint {index}")
}

/// The last reports of a trial. A constraint is judged by the last report of its metric.
fn last_reports(metrics: &mut Reports) -> &mut BTreeMap<String, Option<f64>> {
    let last = metrics.keys().next_back().copied().unwrap_or_default();
    metrics.entry(last).or_default()
}

/// The values of a trial's metrics by step.
type Reports = BTreeMap<u64, BTreeMap<String, Option<f64>>>;

impl KnownTrial {
    /// The trial as a record of a search whose first objective has this metric, and that has so many constraints.
    fn record(self, metric: &str, constraints: usize) -> TrialRecord {
        let report = |(step, value)| (step, BTreeMap::from([(metric.to_owned(), value)]));
        let mut metrics: Reports = self.reports.into_iter().map(report).collect();
        if let (State::Finished, Some(mut numbers)) = (&self.state, self.constraints) {
            numbers.resize(constraints, Some(0.0));
            last_reports(&mut metrics).extend((0..).map(constraint).zip(numbers));
        }
        let (runner, ending) = match self.state {
            State::Waiting => (Runner::Nobody, None),
            State::Running => (Runner::Search, None),
            State::RunningElsewhere => (Runner::Other, None),
            State::Finished => (Runner::Search, Some(Ending::Finished)),
            State::Pruned => (Runner::Search, Some(Ending::Pruned)),
            State::Failed => (Runner::Search, Some(Ending::Failed { reason: "the trial failed".to_owned() })),
        };
        let values = self.values.into_iter().collect::<Option<Vec<f64>>>().unwrap_or_default();
        TrialRecord { parameters: self.parameters, metrics, values, ending, runner, ..TrialRecord::new(self.number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    /// The answers to these questions.
    fn answers(questions: &[Json]) -> Vec<Json> {
        let lines: Vec<String> = questions.iter().map(Json::to_string).collect();
        let mut written = Vec::new();
        answer(lines.join("\n").as_bytes(), &mut written).expect("a slice can be read and a Vec written");
        let written = String::from_utf8(written).expect("answers are text");
        written.lines().map(|line| serde_json::from_str(line).expect("an answer is JSON")).collect()
    }

    fn begin(oracle: &str) -> Json {
        json!({ "oracle": oracle, "directions": ["min"], "seed": 3 })
    }

    fn range() -> Json {
        json!({ "kind": "float", "low": -4.0, "high": 4.0, "step": null, "log": false })
    }

    fn finished(number: u64, x: f64) -> Json {
        let parameters = json!({ "x": { "distribution": range(), "value": x } });
        let values = [(x - 1.0).powi(2)];
        json!({ "number": number, "state": "finished", "parameters": parameters, "reports": [], "values": values, "constraints": [-x] })
    }

    fn suggest(trial: u64, trials: &[Json]) -> Json {
        json!({ "trials": trials, "trial": trial, "name": "x", "distribution": range() })
    }

    #[test]
    fn values_follow_from_the_trials_that_were_sent() {
        let trials: Vec<Json> = (0..8).map(|number| finished(number, number as f64 - 4.0)).collect();
        let at_once = answers(&[begin("auto"), suggest(8, &trials)]);
        let in_parts = answers(&[begin("auto"), suggest(3, &trials[..3]), suggest(8, &trials[3..])]);
        assert_eq!(at_once[0], Json::Null);
        assert_eq!(at_once[1], in_parts[2]);
        let value = at_once[1]["value"].as_f64().expect("a float");
        assert!((0.2..2.0).contains(&value), "{value} is far from the best, 1");
    }

    #[test]
    fn a_constraint_may_come_late_and_what_tells_none_breaks_them() {
        let trial = |number: u64, constraints: Json| {
            let mut trial = finished(number, number as f64 - 3.0);
            trial["constraints"] = constraints;
            trial
        };
        let mut search = Search::begin(&begin("auto").to_string()).expect("a search");
        let told = [trial(0, json!([])), trial(1, json!([-2.0, null])), trial(2, json!(null)), trial(3, json!([5.0]))];
        search.suggest(&suggest(4, &told).to_string()).expect("a value");
        let excesses = |trial: &TrialRecord| -> Vec<f64> {
            search.spec.constraints.iter().map(|constraint| constraint.excess(trial, &search.spec.objectives)).collect()
        };
        let found: Vec<Vec<f64>> = search.trials.iter().map(excesses).collect();
        assert_eq!(found, [vec![0.0, 0.0], vec![-2.0, f64::INFINITY], vec![f64::INFINITY; 2], vec![5.0, 0.0]]);
    }

    #[test]
    fn a_question_that_cannot_be_answered_has_an_error_and_the_next_one_an_answer() {
        let wrong = json!({ "trials": [], "trial": 0, "name": "x", "distribution": { "kind": "int", "low": 2, "high": 1, "step": 1, "log": false } });
        let far = json!({ "number": u64::MAX, "state": "failed", "parameters": {}, "reports": [], "values": [], "constraints": null });
        let given =
            answers(&[begin("autos"), begin("hyperband"), begin("auto"), wrong, suggest(0, &[far]), suggest(0, &[])]);
        let errors: Vec<&str> = given.iter().filter_map(|answer| answer["error"].as_str()).collect();
        assert_eq!(errors.len(), 4, "{given:?}");
        assert!(errors[0].contains("there is no oracle `autos`, did you mean `auto`?"), "{}", errors[0]);
        assert!(errors[1].contains("hyperband decides how long each trial trains"), "{}", errors[1]);
        assert!(errors[2].contains('x'), "{}", errors[2]);
        assert!(errors[3].contains("past the largest number"), "{}", errors[3]);
        assert!(given[5]["value"].is_f64());
    }
}
