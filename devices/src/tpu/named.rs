//! Finds the name of a TPU in `--tpu`, or in the variables that TensorFlow's resolver reads.

use crate::finding::{Finding, shown};
use crate::machine::Machine;

const VARIABLES: [&str; 3] = ["TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG"];

pub(super) struct Named {
    /// The TPU's name, and the place where it was found.
    pub(super) name: Option<(String, String)>,
    /// The reason why there is no name.
    pub(super) absence: String,
    /// Whether the user's request is invalid on every machine.
    pub(super) is_refused: bool,
}

pub(super) fn find(machine: &Machine, wanted: Option<&str>, findings: &mut Vec<Finding>) -> Named {
    if let Some(wanted) = wanted.map(str::trim).filter(|wanted| !wanted.is_empty()) {
        return explicit(wanted, findings);
    }
    let mut absence = "no TPU_NAME".to_owned();
    let mut name: Option<(String, String)> = None;
    for variable in VARIABLES {
        let Some(value) = machine.variable(variable) else {
            continue;
        };
        if let Some((_, used)) = &name {
            findings.push(Finding::new(variable, value, format!("not used: {used} comes first")));
            continue;
        }
        let named = if variable == "TPU_CONFIG" { node_name(value) } else { Ok(value.to_owned()) };
        match named {
            Ok(local) if local == "local" => {
                findings.push(Finding::new(variable, "local", "the TPU is attached to this machine, if there is one"));
                absence = format!("{variable} is local");
            }
            Ok(value) => {
                findings.push(Finding::new(variable, &value, "names a TPU"));
                name = Some((shown(&value), variable.to_owned()));
            }
            Err(problem) => findings.push(Finding::new(variable, value, problem)),
        }
    }
    if VARIABLES.iter().all(|variable| machine.variable(variable).is_none()) {
        findings.push(Finding::new(VARIABLES.join(", "), "not set", "no TPU is named"));
    }
    Named { name, absence, is_refused: false }
}

fn explicit(wanted: &str, findings: &mut Vec<Finding>) -> Named {
    if wanted == "local" {
        findings.push(Finding::new("--tpu", "local", "only a TPU attached to this machine will do"));
        return Named { name: None, absence: "--tpu is local".into(), is_refused: false };
    }
    let names = wanted.split(',').filter(|name| !name.trim().is_empty()).count();
    if names > 1 {
        findings.push(Finding::new("--tpu", wanted, "names several TPUs; a notebook uses one"));
        let absence = format!("--tpu names {names} TPUs, and a notebook uses one; give one name");
        return Named { name: None, absence, is_refused: true };
    }
    findings.push(Finding::new("--tpu", wanted, "names a TPU; the environment's names are not looked at"));
    Named { name: Some((shown(wanted), "--tpu".into())), absence: String::new(), is_refused: false }
}

/// The TPU's name in `TPU_CONFIG`, a JSON object, in the field that TensorFlow reads.
fn node_name(config: &str) -> Result<String, &'static str> {
    let config: serde_json::Value = serde_json::from_str(config).map_err(|_| "not JSON, so it names no TPU")?;
    match config.get("tpu_node_name").and_then(serde_json::Value::as_str) {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err("has no tpu_node_name, so it names no TPU"),
    }
}
