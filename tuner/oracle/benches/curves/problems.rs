//! Problems with learning curves of 27 epochs, all minimised: three kinds of synthetic curves, and tables of real curves.
//! benchmarks/bench_curves.py has the same problems for Optuna. Counts no epochs: the caller does.

use ferrotune_space::{Distribution, Scale, Value};
use std::path::Path;

/// Epochs of a complete training.
pub(crate) const EPOCHS: u64 = 27;

/// A function that gives the value of a parameter.
pub(crate) type Ask<'a> = dyn FnMut(&str, Distribution) -> Value + 'a;

/// A learning curve: the losses after each epoch, without noise.
pub(crate) type Curve = Vec<f64>;

/// A problem with a learning curve for each choice of its parameters.
pub(crate) struct Problem {
    pub(crate) name: &'static str,
    /// Standard deviation of the noise in each report.
    pub(crate) noise: f64,
    kind: Kind,
}

enum Kind {
    /// A synthetic curve, as a function of the parameters and the share of the epochs.
    Made(fn(&Point, f64) -> f64),
    Table(Table),
}

/// Real curves: the number of levels of each parameter, and a curve for each combination.
struct Table {
    parameters: Vec<(String, i64)>,
    curves: Vec<Curve>,
}

/// The parameters of the synthetic curves, each from 0 to 1.
pub(crate) struct Point {
    lr: f64,
    width: f64,
    decay: f64,
    dropout: f64,
    is_adam: bool,
}

impl Point {
    /// The loss of a complete training; the best is 0.05.
    fn last(&self) -> f64 {
        let optimum = if self.is_adam { 0.35 } else { 0.6 };
        let valley = 1.2 * (self.lr - optimum).powi(2) + 0.5 * (self.width - 0.7).powi(2);
        let rest = 0.4 * (self.decay - 0.3 - 0.4 * self.lr).powi(2) + 0.3 * (self.dropout - 0.25).powi(2);
        let ripple = |distance: f64| 0.03 * (1.0 - (18.0 * distance).cos());
        let ripples = ripple(self.lr - optimum) + ripple(self.width - 0.7);
        0.05 + valley + rest + ripples + if self.is_adam { 0.0 } else { 0.03 }
    }
}

/// A problem in which large learning rates and narrow models learn fast and end badly: the curves cross.
fn crossing(point: &Point, share: f64) -> f64 {
    let speed = (0.3 + 3.5 * point.lr - 1.2 * point.width).exp();
    let last = point.last();
    let end = 1.0 - (-speed).exp();
    last + (1.0 - last).max(0.05) * (1.0 - (1.0 - (-speed * share).exp()) / end)
}

/// A problem in which all trials learn at nearly the same speed.
fn alike(point: &Point, share: f64) -> f64 {
    let last = point.last();
    let speed = 3.0 + point.lr;
    last + (1.0 - last).max(0.05) * ((-speed * share).exp() - (-speed).exp())
}

/// A problem in which no loss falls at first; the best trials wait long before theirs fall.
fn late(point: &Point, share: f64) -> f64 {
    let wakes = 0.1 + 0.45 * point.width + 0.2 * (1.0 - point.lr);
    let fallen = |share: f64| 1.0 / (1.0 + (-(share - wakes) / 0.05).exp());
    let last = point.last();
    let shortfall = (1.0 - fallen(share)) - (1.0 - fallen(1.0));
    last + (1.0 - last).max(0.05) * shortfall
}

const TABLES: [&str; 4] = ["sgd-wine", "boosting-cancer", "mlp-digits", "candle-digits"];

/// All problems. The error names the table that cannot be read.
pub(crate) fn all() -> Result<Vec<Problem>, String> {
    let made = |name, noise, curve| Problem { name, noise, kind: Kind::Made(curve) };
    let mut problems = vec![made("crossing", 0.0, crossing), made("noisy", 0.03, alike), made("late", 0.0, late)];
    for name in TABLES {
        problems.push(Problem { name, noise: 0.0, kind: Kind::Table(Table::read(name)?) });
    }
    Ok(problems)
}

impl Problem {
    /// Asks for all parameters, and returns their learning curve.
    pub(crate) fn curve(&self, ask: &mut Ask<'_>) -> Curve {
        match &self.kind {
            Kind::Table(table) => table.curve(ask),
            Kind::Made(curve) => {
                let mut unit = |name: &str| {
                    let range = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
                    if let Value::Float(value) = ask(name, range) { value } else { f64::NAN }
                };
                let (lr, width, decay, dropout) = (unit("lr"), unit("width"), unit("decay"), unit("dropout"));
                let values = ["adam", "sgd"].map(|name| Value::Text(name.to_owned())).to_vec();
                let optimizer = ask("optimizer", Distribution::Choice { values, is_ordered: false });
                let is_adam = optimizer == Value::Text("adam".to_owned());
                let point = Point { lr, width, decay, dropout, is_adam };
                (1..=EPOCHS).map(|epoch| curve(&point, epoch as f64 / EPOCHS as f64)).collect()
            }
        }
    }
}

impl Table {
    fn read(name: &str) -> Result<Table, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/curves").join(format!("{name}.csv"));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            format!("{}: {error}; make it with `python tests/curve_tables.py {name}`", path.display())
        })?;
        Table::parse(&text).ok_or_else(|| format!("{} is not a table of curves", path.display()))
    }

    fn parse(text: &str) -> Option<Table> {
        let mut lines = text.lines();
        let parameter = |text: &str| {
            let (name, levels) = text.split_once(':')?;
            Some((name.to_owned(), levels.parse().ok()?))
        };
        let parameters: Vec<(String, i64)> = lines.next()?.split(',').map(parameter).collect::<Option<_>>()?;
        let curve = |line: &str| line.split(',').skip(parameters.len()).map(|value| value.parse().ok()).collect();
        let curves: Vec<Curve> = lines.map(curve).collect::<Option<_>>()?;
        let combinations: i64 = parameters.iter().map(|(_, levels)| levels).product();
        let is_whole = curves.len() as i64 == combinations && curves.iter().all(|curve| curve.len() as u64 == EPOCHS);
        is_whole.then_some(Table { parameters, curves })
    }

    fn curve(&self, ask: &mut Ask<'_>) -> Curve {
        let index = self.parameters.iter().fold(0, |index, (name, levels)| {
            let range = Distribution::Int { low: 0, high: levels - 1, step: 1, scale: Scale::Linear };
            let Value::Int(level) = ask(name, range) else { return index };
            index * levels + level
        });
        self.curves[index as usize].clone()
    }
}
