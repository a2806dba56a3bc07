//! The magic `%tpu_check`, which compiles programs for a TPU that need not be attached.

use crate::compile::Step;
use crate::device::{fail, say, with_probe};
use ferrotune_devices::probe::Module;
use ferrotune_devices::{Check, Machine, detect};
use ferrotune_xla::{Signature, backend_of};
use std::any::{Any, type_name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit for compiling: a large network takes minutes, longer if other programs run as well.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Checks the StableHLO module in a file.
pub fn check_file(tpu: &str, file: &str) {
    if !file.contains(['/', '.']) && !Path::new(file).exists() {
        return fail(&format!(
            "there is neither a variable {file} with a compiled step nor a file of that name; make the step with \
             ferrotune::compile, or name the file of a StableHLO module"
        ));
    }
    end(compiled(tpu, Module::File(file.into())).map(|check| say(check.to_string())));
}

/// Checks a notebook's variable with a compiled step: each program that the step has had so far.
pub fn check<T: Any>(tpu: &str, name: &str, variable: &mut T) {
    end(check_step(tpu, name, variable));
}

fn end(checked: Result<(), String>) {
    if let Err(reason) = checked {
        fail(&reason);
    }
}

fn check_step<T: Any>(tpu: &str, name: &str, variable: &mut T) -> Result<(), String> {
    let Some(step) = (variable as &mut dyn Any).downcast_mut::<Step<'static>>() else {
        return Err(format!(
            "the variable {name} is of the type {} and no compiled step (ferrotune::Step<'static>); a file of this name is \
             checked as ./{name}",
            type_name::<T>()
        ));
    };
    if backend_of(step.device()).is_none() {
        return Err(format!(
            "the step {name} is on a device without a compiler, which calls its function each time; run %tpu_connect --plugin \
             cpu, and make the step and its tensors anew on ferrotune::device::current()?"
        ));
    }
    if step.signatures().is_empty() {
        return Err(format!(
            "the shapes of the arguments of {name} are not known, since it has not run; run it once, or call \
             {name}.stablehlo(&[…])? with such arguments, which runs nothing"
        ));
    }
    let mut refused = Ok(());
    for signature in step.signatures().to_vec() {
        let called = written(name, &signature);
        let checked = match step.stablehlo_of(&signature) {
            Ok(text) => {
                compiled(tpu, Module::Text(text)).map_err(|reason| format!("{called} does not compile: {reason}"))
            }
            Err(error) => Err(format!("{called} cannot be lowered: {error}")),
        };
        match checked {
            Ok(check) => say(format!("{called}\n{check}")),
            // The other signatures are checked nevertheless.
            Err(reason) => refused = refused.and(Err(reason)),
        }
    }
    refused
}

fn compiled(tpu: &str, module: Module) -> Result<Check, String> {
    let libtpu = libtpu()?;
    with_probe(DEADLINE, |probe| probe.check(&libtpu, tpu, module)).map_err(|error| error.to_string())
}

fn libtpu() -> Result<PathBuf, String> {
    let missing =
        "libtpu is not installed, and it is what compiles for TPUs; pip install libtpu, or set TPU_LIBRARY_PATH";
    detect(&Machine::this(), None).libtpu.ok_or_else(|| missing.to_owned())
}

/// The text of a call with this signature, such as `step(f32[128, 784], u32[128])`.
fn written(name: &str, signature: &Signature) -> String {
    let argument = |(dims, dtype): &(Vec<usize>, _)| format!("{}{dims:?}", candle_core::DType::as_str(dtype));
    format!("{name}({})", signature.iter().map(argument).collect::<Vec<_>>().join(", "))
}
