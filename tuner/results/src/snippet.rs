//! Rust and Python code that defines a trial's parameters as variables and loads its weights.

use ferrotune_space::record::TrialRecord;
use ferrotune_space::{Parameter, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// Words that cannot be names in Rust, even with `r#`.
const NEVER_NAMES: [&str; 4] = ["self", "Self", "super", "crate"];
/// Words that can be names in Rust only with `r#`.
const KEYWORDS: [&str; 48] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// A `let` for every parameter of the trial and for its weights, comments that show how a model loads the weights, and the trial as
/// `Trial::of`.
pub fn snippet(trial: &TrialRecord, weights: Option<&Path>) -> String {
    let (mut taken, mut lines) = bindings(trial);
    if let Some(weights) = weights {
        let path = weights.display().to_string();
        let name = unique("weights".to_owned(), &mut taken);
        lines.push(format!("let {name} = candle_core::safetensors::load({path:?}, &candle_core::Device::Cpu)?;"));
        lines.push("// for a model that is built from a VarBuilder:".to_owned());
        lines.push(format!("//   VarBuilder::from_tensors({name}, DType::F32, &Device::Cpu)"));
        lines.push("// for one whose variables are in a VarMap, once it is built:".to_owned());
        lines.push(format!("//   vars.load({path:?})?;"));
    }
    lines
        .push("// the same as a trial, for the function that builds the objective's model: `model(&best)?`".to_owned());
    lines.push(format!("let {} = {};", unique("best".to_owned(), &mut taken), fixed_trial(trial, weights)));
    lines.join("\n")
}

/// A `let` for every parameter of the trial, and the trial by the name of its study, with its model.
pub(crate) fn by_name(trial: &TrialRecord, study: &str) -> String {
    let (mut taken, mut lines) = bindings(trial);
    let best = unique("best".to_owned(), &mut taken);
    lines.push(format!("let {best} = ferrotune::best({study:?})?;"));
    lines.push(format!("// its model: {best}.model()?, or {best}.restore(model.vars())? for a model of your own"));
    lines.join("\n")
}

/// A `let` for every parameter of the trial, and the names that they take.
fn bindings(trial: &TrialRecord) -> (BTreeSet<String>, Vec<String>) {
    let mut taken = BTreeSet::new();
    let parameters = trial.parameters.iter();
    let lines = parameters.map(|(name, parameter)| binding(&unique(identifier(name), &mut taken), &parameter.value));
    let lines = lines.collect();
    (taken, lines)
}

/// An expression that makes a trial with the same values and the same weights, outside of a search.
fn fixed_trial(trial: &TrialRecord, weights: Option<&Path>) -> String {
    let value = |value: &Value| match value {
        Value::Text(text) => format!("{text:?}.into()"),
        // A number without a type suffix is an i32 first.
        Value::Int(value) if i32::try_from(*value).is_err() => format!("{value}_i64.into()"),
        Value::Int(value) if *value < 0 => format!("({value}).into()"),
        Value::Float(value) if value.is_sign_negative() => format!("({value:?}).into()"),
        Value::Float(value) => format!("{value:?}.into()"),
        other => format!("{other}.into()"),
    };
    let pair = |(name, parameter): (&String, &Parameter)| format!("({name:?}, {})", value(&parameter.value));
    let pairs = trial.parameters.iter().map(pair).collect::<Vec<_>>().join(", ");
    let checkpoint = weights.map(|path| format!(".with_checkpoint({:?})", path.display().to_string()));
    let values = if pairs.is_empty() { "ferrotune::FixedValues::default()".to_owned() } else { format!("[{pairs}]") };
    format!("ferrotune::Trial::of({values}){}", checkpoint.unwrap_or_default())
}

/// Python code that has the trial's parameters as a dictionary, and loads its weights.
pub(crate) fn python(trial: &TrialRecord, weights: Option<&Path>) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let value = |value: &Value| match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(value) => text(value),
    };
    let parameters =
        trial.parameters.iter().map(|(name, parameter)| format!("{}: {}", text(name), value(&parameter.value)));
    let mut lines = vec![format!("parameters = {{{}}}", parameters.collect::<Vec<_>>().join(", "))];
    if let Some(weights) = weights {
        lines.push("from safetensors.numpy import load_file".to_owned());
        lines.push(format!("weights = load_file({})", text(&weights.display().to_string())));
    }
    lines.join("\n")
}

fn binding(name: &str, value: &Value) -> String {
    match value {
        Value::Bool(value) => format!("let {name}: bool = {value};"),
        Value::Int(value) if *value < 0 => format!("let {name}: i64 = {value};"),
        Value::Int(value) => format!("let {name}: usize = {value};"),
        Value::Float(value) => format!("let {name}: f64 = {value:?};"),
        Value::Text(value) => format!("let {name} = String::from({value:?});"),
    }
}

/// The valid Rust name of a parameter.
fn identifier(name: &str) -> String {
    let mut plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) || plain.is_empty() || plain == "_" {
        plain.insert(0, '_');
    }
    if NEVER_NAMES.contains(&plain.as_str()) {
        return format!("{plain}_");
    }
    if KEYWORDS.contains(&plain.as_str()) { format!("r#{plain}") } else { plain }
}

/// The name, followed by underscores until it is unique.
fn unique(mut name: String, taken: &mut BTreeSet<String>) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use ferrotune_space::Distribution;

    #[test]
    fn every_value_and_every_name_becomes_rust_and_python() {
        let values = [
            ("units", Value::Int(64)),
            ("shift", Value::Int(-3)),
            ("lr", Value::Float(1e-3)),
            ("whole", Value::Float(2.0)),
            ("type", Value::Text("a \"b\"".into())),
            ("layer/1", Value::Bool(true)),
            ("layer.1", Value::Bool(false)),
            ("2nd", Value::Int(1)),
            ("_", Value::Int(2)),
            ("weights", Value::Text("uniform".into())),
            ("self", Value::Int(0)),
        ];
        let distribution = Distribution::Choice { values: vec![Value::Int(1)], is_ordered: false };
        let parameter = |value| Parameter { distribution: distribution.clone(), value };
        let parameters = values.into_iter().map(|(name, value)| (name.to_owned(), parameter(value))).collect();
        let trial = TrialRecord { parameters, ..TrialRecord::new(0) };
        expect![[r#"
            let _2nd: usize = 1;
            let __: usize = 2;
            let layer_1: bool = false;
            let layer_1_: bool = true;
            let lr: f64 = 0.001;
            let self_: usize = 0;
            let shift: i64 = -3;
            let r#type = String::from("a \"b\"");
            let units: usize = 64;
            let weights = String::from("uniform");
            let whole: f64 = 2.0;
            let weights_ = candle_core::safetensors::load("a/b.safetensors", &candle_core::Device::Cpu)?;
            // for a model that is built from a VarBuilder:
            //   VarBuilder::from_tensors(weights_, DType::F32, &Device::Cpu)
            // for one whose variables are in a VarMap, once it is built:
            //   vars.load("a/b.safetensors")?;
            // the same as a trial, for the function that builds the objective's model: `model(&best)?`
            let best = ferrotune::Trial::of([("2nd", 1.into()), ("_", 2.into()), ("layer.1", false.into()), ("layer/1", true.into()), ("lr", 0.001.into()), ("self", 0.into()), ("shift", (-3).into()), ("type", "a \"b\"".into()), ("units", 64.into()), ("weights", "uniform".into()), ("whole", 2.0.into())]).with_checkpoint("a/b.safetensors");
        "#]]
        .assert_eq(&format!("{}\n", snippet(&trial, Some(Path::new("a/b.safetensors")))));
        expect![[r#"
            parameters = {"2nd": 1, "_": 2, "layer.1": False, "layer/1": True, "lr": 0.001, "self": 0, "shift": -3, "type": "a \"b\"", "units": 64, "weights": "uniform", "whole": 2.0}
            from safetensors.numpy import load_file
            weights = load_file("a/b.safetensors")
        "#]]
        .assert_eq(&format!("{}\n", python(&trial, Some(Path::new("a/b.safetensors")))));
    }
}
