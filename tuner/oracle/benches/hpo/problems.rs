//! Problems with known minima, all minimised. The benchmark has goals for the first six; the others guard against settings
//! that fit only those six. benchmarks/bench_hpo.py has the same problems for Optuna.

mod discrete;
pub(crate) mod fronts;
mod kinds;
mod noisy;

use ferrotune_space::{Distribution, Scale, Value};
use std::f64::consts::{E, PI};

/// A function that gives the value of a parameter.
pub(crate) type Ask<'a> = dyn FnMut(&str, Distribution) -> Value + 'a;

/// A problem: its name, and the function that asks for values and returns their loss.
pub(crate) type Problem = (&'static str, fn(&mut Ask<'_>) -> f64);

pub(crate) const PROBLEMS: [Problem; 35] = [
    ("branin", |ask| branin(&vector(ask, &[(-5.0, 10.0), (0.0, 15.0)]))),
    ("hartmann6", |ask| hartmann6(&vector(ask, &[(0.0, 1.0); 6]))),
    ("ackley5", |ask| ackley(&vector(ask, &[(-15.0, 30.0); 5]))),
    ("rosenbrock4", |ask| rosenbrock(&vector(ask, &[(-5.0, 10.0); 4]))),
    ("levy8", |ask| levy(&vector(ask, &[(-10.0, 10.0); 8]))),
    ("mixed", mixed),
    ("griewank5", |ask| griewank(&vector(ask, &[(-300.0, 600.0); 5]))),
    ("michalewicz5", |ask| michalewicz(&vector(ask, &[(0.0, PI); 5]))),
    ("rastrigin4", |ask| rastrigin(&vector(ask, &[(-4.0, 6.0); 4]))),
    ("shekel4", |ask| shekel(&vector(ask, &[(0.0, 10.0); 4]))),
    ("styblinski6", |ask| styblinski_tang(&vector(ask, &[(-5.0, 5.0); 6]))),
    ("models", models),
    ("choices6", discrete::choices6),
    ("knapsack", discrete::knapsack),
    ("quadratic", discrete::quadratic),
    ("network", discrete::network),
    ("hartmann3n", |ask| hartmann3(&vector(ask, &[(0.0, 1.0); 3]))),
    ("pairs5", discrete::pairs5),
    ("lorry", discrete::lorry),
    ("pipeline", discrete::pipeline),
    ("dixonprice5", |ask| dixon_price(&vector(ask, &[(-10.0, 10.0); 5]))),
    ("branin_n", |ask| branin(&vector(ask, &[(-5.0, 10.0), (0.0, 15.0)]))),
    ("ring5", kinds::ring5),
    ("leader5", kinds::leader5),
    ("small9", kinds::small9),
    ("crates5", kinds::crates5),
    ("luggage10", kinds::luggage10),
    ("order7", kinds::order7),
    ("lure3", kinds::lure3),
    ("lure6", kinds::lure6),
    ("couple4", kinds::couple4),
    ("bowl4n", noisy::bowl4n),
    ("recipe5n", noisy::recipe5n),
    ("dials3n", noisy::dials3n),
    ("teams4n", noisy::teams4n),
];

/// Standard deviations of the noise that is added to the losses of some problems. The result of such a problem is the loss
/// without noise of the trial with the best value.
pub(crate) const NOISY: [(&str, f64); 6] =
    [("hartmann3n", 0.1), ("branin_n", 2.0), ("bowl4n", 0.5), ("recipe5n", 0.02), ("dials3n", 0.1), ("teams4n", 0.1)];

fn branin(x: &[f64]) -> f64 {
    let (b, c, t) = (5.1 / (4.0 * PI * PI), 5.0 / PI, 1.0 / (8.0 * PI));
    (x[1] - b * x[0] * x[0] + c * x[0] - 6.0).powi(2) + 10.0 * (1.0 - t) * x[0].cos() + 10.0
}

fn hartmann6(x: &[f64]) -> f64 {
    const WEIGHTS: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [1312.0, 1696.0, 5569.0, 124.0, 8283.0, 5886.0],
        [2329.0, 4135.0, 8307.0, 3736.0, 1004.0, 9991.0],
        [2348.0, 1451.0, 3522.0, 2883.0, 3047.0, 6650.0],
        [4047.0, 8828.0, 8732.0, 5743.0, 1091.0, 381.0],
    ];
    let well = |row: usize| -> f64 {
        let distance: f64 = (0..6).map(|i| A[row][i] * (x[i] - 1e-4 * P[row][i]).powi(2)).sum();
        WEIGHTS[row] * (-distance).exp()
    };
    -(0..4).map(well).sum::<f64>()
}

fn hartmann3(x: &[f64]) -> f64 {
    const WEIGHTS: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const A: [[f64; 3]; 2] = [[3.0, 10.0, 30.0], [0.1, 10.0, 35.0]];
    const P: [[f64; 3]; 4] =
        [[3689.0, 1170.0, 2673.0], [4699.0, 4387.0, 7470.0], [1091.0, 8732.0, 5547.0], [381.0, 5743.0, 8828.0]];
    let well = |row: usize| -> f64 {
        let distance: f64 = (0..3).map(|i| A[row % 2][i] * (x[i] - 1e-4 * P[row][i]).powi(2)).sum();
        WEIGHTS[row] * (-distance).exp()
    };
    -(0..4).map(well).sum::<f64>()
}

fn dixon_price(x: &[f64]) -> f64 {
    let terms = x.windows(2).enumerate().map(|(i, pair)| (i as f64 + 2.0) * (2.0 * pair[1].powi(2) - pair[0]).powi(2));
    (x[0] - 1.0).powi(2) + terms.sum::<f64>()
}

fn ackley(x: &[f64]) -> f64 {
    let d = x.len() as f64;
    let distance = (x.iter().map(|v| v * v).sum::<f64>() / d).sqrt();
    let ripple = x.iter().map(|v| (2.0 * PI * v).cos()).sum::<f64>() / d;
    20.0 + E - 20.0 * (-0.2 * distance).exp() - ripple.exp()
}

fn rosenbrock(x: &[f64]) -> f64 {
    x.windows(2).map(|pair| 100.0 * (pair[1] - pair[0] * pair[0]).powi(2) + (1.0 - pair[0]).powi(2)).sum()
}

fn levy(x: &[f64]) -> f64 {
    let w: Vec<f64> = x.iter().map(|v| 1.0 + (v - 1.0) / 4.0).collect();
    let last = w[w.len() - 1];
    let inner = w[..w.len() - 1].iter().map(|v| (v - 1.0).powi(2) * (1.0 + 10.0 * (PI * v + 1.0).sin().powi(2)));
    (PI * w[0]).sin().powi(2) + inner.sum::<f64>() + (last - 1.0).powi(2) * (1.0 + (2.0 * PI * last).sin().powi(2))
}

fn mixed(ask: &mut Ask<'_>) -> f64 {
    let lr = log_float(ask, "lr", 1e-5, 1e-1);
    let decay = log_float(ask, "wd", 1e-6, 1e-2);
    let layers = int(ask, "layers", 1, 6, Scale::Linear);
    let (depth, offset) = match choice(ask, "act", &["relu", "gelu", "tanh", "silu"]).as_str() {
        "relu" => (3.0, 0.10),
        "gelu" => (4.0, 0.0),
        "tanh" => (2.0, 0.40),
        _ => (5.0, 0.05),
    };
    let mut loss = 0.15 * (decay + 3.2 - 0.3 * (layers - 3.0)).powi(2) + 0.10 * (layers - depth).powi(2) + offset;
    if choice(ask, "opt", &["sgd", "adam"]) == "sgd" {
        let momentum = float(ask, "momentum", 0.0, 0.99);
        loss += 0.15 + 0.5 * (lr + 1.5).powi(2) + 3.0 * (momentum - 0.9).powi(2);
    } else {
        let omb2 = log_float(ask, "omb2", 1e-4, 1e-1);
        loss += 0.5 * (lr + 3.4).powi(2) + 0.3 * (omb2 + 1.8).powi(2);
    }
    loss + 0.05 * (1.0 - (4.0 * PI * (lr + 3.4)).cos())
}

fn griewank(x: &[f64]) -> f64 {
    let product: f64 = x.iter().enumerate().map(|(i, v)| (v / (i as f64 + 1.0).sqrt()).cos()).product();
    1.0 + x.iter().map(|v| v * v).sum::<f64>() / 4000.0 - product
}

fn michalewicz(x: &[f64]) -> f64 {
    -x.iter().enumerate().map(|(i, v)| v.sin() * ((i as f64 + 1.0) * v * v / PI).sin().powi(20)).sum::<f64>()
}

fn rastrigin(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v - 10.0 * (2.0 * PI * v).cos() + 10.0).sum()
}

fn shekel(x: &[f64]) -> f64 {
    const B: [f64; 10] = [0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5];
    const C: [[f64; 2]; 10] = [
        [4.0, 4.0],
        [1.0, 1.0],
        [8.0, 8.0],
        [6.0, 6.0],
        [3.0, 7.0],
        [2.0, 9.0],
        [5.0, 3.0],
        [8.0, 1.0],
        [6.0, 2.0],
        [7.0, 3.6],
    ];
    let well = |row: usize| {
        let distance: f64 = x.iter().enumerate().map(|(i, v)| (v - C[row][i % 2]).powi(2)).sum();
        1.0 / (B[row] + distance)
    };
    -(0..10).map(well).sum::<f64>()
}

fn styblinski_tang(x: &[f64]) -> f64 {
    x.iter().map(|v| v.powi(4) - 16.0 * v * v + 5.0 * v).sum::<f64>() / 2.0
}

fn models(ask: &mut Ask<'_>) -> f64 {
    let model = choice(ask, "model", &["linear", "svm", "forest"]);
    let scaled =
        ask("scaled", Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false });
    let unscaled = f64::from(u8::from(scaled == Value::Bool(false)));
    match model.as_str() {
        "linear" => 0.30 + 0.05 * (log_float(ask, "alpha", 1e-6, 1e1) + 2.0).powi(2) + 0.05 * unscaled,
        "svm" => {
            let (c, gamma) = (log_float(ask, "c", 1e-3, 1e3), log_float(ask, "gamma", 1e-5, 1e1));
            let poly = f64::from(u8::from(choice(ask, "kernel", &["poly", "rbf"]) == "poly"));
            let valley = 0.08 * (c - 1.2 + 0.4 * (gamma + 1.7)).powi(2) + 0.05 * (gamma + 1.7).powi(2);
            valley + 0.12 * poly + 0.1 * unscaled
        }
        _ => {
            let trees = int(ask, "trees", 10, 1000, Scale::Log).log10();
            let depth = int(ask, "depth", 1, 32, Scale::Linear);
            let features = Distribution::Float { low: 0.05, high: 1.0, step: Some(0.05), scale: Scale::Linear };
            let features = number(ask("features", features));
            0.06 + 0.1 * (trees - 2.5).powi(2) + 0.0015 * (depth - 14.0).powi(2) + 0.5 * (features - 0.35).powi(2)
        }
    }
}

fn vector(ask: &mut Ask<'_>, bounds: &[(f64, f64)]) -> Vec<f64> {
    bounds.iter().enumerate().map(|(index, (low, high))| float(ask, &format!("x{}", index + 1), *low, *high)).collect()
}

fn float(ask: &mut Ask<'_>, name: &str, low: f64, high: f64) -> f64 {
    number(ask(name, Distribution::Float { low, high, step: None, scale: Scale::Linear }))
}

/// The decimal logarithm of a parameter's value.
fn log_float(ask: &mut Ask<'_>, name: &str, low: f64, high: f64) -> f64 {
    number(ask(name, Distribution::Float { low, high, step: None, scale: Scale::Log })).log10()
}

fn int(ask: &mut Ask<'_>, name: &str, low: i64, high: i64, scale: Scale) -> f64 {
    number(ask(name, Distribution::Int { low, high, step: 1, scale }))
}

fn choice(ask: &mut Ask<'_>, name: &str, values: &[&str]) -> String {
    let values = values.iter().map(|value| Value::Text((*value).to_owned())).collect();
    ask(name, Distribution::Choice { values, is_ordered: false }).to_string()
}

fn number(value: Value) -> f64 {
    match value {
        Value::Int(value) => value as f64,
        Value::Float(value) => value,
        Value::Bool(_) | Value::Text(_) => f64::NAN,
    }
}

/// Checks each problem's loss at one place against the results of benchmarks/bench_hpo.py and of the definition.
pub(crate) fn check() -> Result<(), String> {
    let half_steps = |_: &str, index: usize, _: &Distribution| Value::Float(0.5 * index as f64);
    let quarter = |_: &str, index: usize, _: &Distribution| Value::Float(0.5 * index as f64 + 0.25);
    let tenths = |_: &str, index: usize, _: &Distribution| Value::Float(0.1 * (index as f64 + 1.0));
    let integers = |_: &str, index: usize, _: &Distribution| Value::Float(index as f64 + 1.0);
    let named = |name: &str, _: usize, _: &Distribution| match name {
        "lr" | "gamma" => Value::Float(if name == "lr" { 2e-3 } else { 3e-3 }),
        "wd" => Value::Float(3e-5),
        "layers" => Value::Int(3),
        "momentum" => Value::Float(0.5),
        "c" => Value::Float(2.0),
        "scaled" => Value::Bool(false),
        choice => Value::Text(
            match choice {
                "act" => "silu",
                "opt" => "sgd",
                "model" => "svm",
                _ => "poly",
            }
            .to_owned(),
        ),
    };
    let third = |_: &str, _: usize, range: &Distribution| match range {
        Distribution::Choice { values, .. } => values[1].clone(),
        Distribution::Int { low, step, .. } => Value::Int(low + 2 * step),
        Distribution::Float { low, high, .. } => Value::Float(low + 0.25 * (high - low)),
    };
    type Place<'a> = &'a dyn Fn(&str, usize, &Distribution) -> Value;
    let places: [(Place<'_>, f64); 35] = [
        (&integers, 21.62763539206238),
        (&tenths, -1.4069105761385297),
        (&half_steps, 5.8419895238039246),
        (&half_steps, 107.5),
        (&half_steps, 4.138168926110805),
        (&named, 2.1520936069073),
        (&quarter, 0.7873865455340565),
        (&quarter, -1.4057665988858328),
        (&quarter, 45.25),
        (&quarter, -0.8128763970879297),
        (&quarter, -73.01953125),
        (&named, 0.3745190654537479),
        (&third, 1.0408816498471425),
        (&third, 1.5333333333333332),
        (&third, 6.4624999999999995),
        (&third, 0.41930165662434216),
        (&tenths, -0.7329114876560024),
        (&third, 0.7382772375131026),
        (&third, 1.0347222222222223),
        (&third, 0.32452264917411067),
        (&half_steps, 268.5),
        (&integers, 21.62763539206238),
        (&third, 0.8371892124414444),
        (&third, 0.6408866956830025),
        (&third, 0.5880625835205946),
        (&third, 0.6709677419354838),
        (&third, 2.6722222222222225),
        (&third, 2.8400000000000003),
        (&third, 1.8300000000000003),
        (&third, 11.667307461801483),
        (&third, 6.2),
        (&third, 23.454196601125016),
        (&third, 0.26904532899518635),
        (&third, 0.5700000000000001),
        (&third, 0.9056497587589547),
    ];
    for ((name, problem), (place, expected)) in PROBLEMS.iter().zip(places) {
        let mut index = 0;
        let value = problem(&mut |name, range| {
            index += 1;
            place(name, index - 1, &range)
        });
        if (value - expected).abs() > 1e-9 {
            return Err(format!("{name} gives {value} where it should give {expected}"));
        }
    }
    let losses: [[f64; 2]; 4] = [
        [0.25, 2.3486121811340026],
        [0.5020417300975714, 0.2040262417338469],
        [1.1548494156391085, 0.47835429045636224],
        [4.5, 24.5],
    ];
    for ((name, problem, _), expected) in fronts::FRONTS.iter().zip(losses) {
        let values = problem(&mut |name, range| third(name, 0, &range));
        if values.iter().zip(expected).any(|(value, expected)| (value - expected).abs() > 1e-9) {
            return Err(format!("{name} gives {values:?} where it should give {expected:?}"));
        }
    }
    Ok(())
}
