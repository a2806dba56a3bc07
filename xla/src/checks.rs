//! Checks of indexes: a program that reads or writes at indexes has one more result, which contains for each check an index that is
//! out of range, if there is one. This result is read after the run, since the indexes are unknown before.
//!
//! A check changes no value. The values that depend on a wrong index keep it as their [`Fault`], so that each read of these values,
//! and of values that are computed from them, is an error. Other values of the same program are the same as without the fault.

use crate::graph::{Node, Op};
use crate::program::{Argument, Program};
use candle_core::{Error, Result, bail};
use ferrotune_devices::pjrt::{Buffer, Transfer};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of a check that has found no index out of range.
pub(crate) const NONE_FOUND: i64 = i64::MIN;

const VARIABLE: &str = "FERROTUNE_CHECK_INDEXES";

/// An operation at indexes, with the dimension that they index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Check {
    /// The name of candle's method.
    pub(crate) operation: &'static str,
    pub(crate) dim: usize,
    pub(crate) dims: Vec<usize>,
    /// The shape of the indexes.
    pub(crate) indexes: Vec<usize>,
}

/// An index out of range that a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    check: Check,
    index: i64,
}

impl Fault {
    /// The error for a read of a value with this fault.
    pub(crate) fn error<T>(&self) -> Result<T> {
        bail!("{self}")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Check { operation, dim, dims, indexes }, index) = (&self.check, self.index);
        let size = dims.get(*dim).copied().unwrap_or_default();
        write!(
            f,
            "index {index} is out of range for dimension {dim} of size {size} in {operation}; the tensor has the shape \
             {dims:?} and its indexes {indexes:?}"
        )?;
        match index < 0 {
            true => f.write_str(", and a negative index does not count from the end"),
            false => Ok(()),
        }
    }
}

/// Whether a program contains the checks of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    Made,
    LeftOut,
}

/// The choice of the programs that check their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checking {
    /// Programs of lazy code check their indexes, and compiled steps do not: the default.
    Lazy,
    All,
    None,
}

impl Checking {
    /// The choice in the environment variable.
    ///
    /// # Errors
    /// If the variable is set to something else than 0 or 1.
    pub(crate) fn chosen() -> Result<Checking> {
        match std::env::var(VARIABLE).as_deref() {
            Err(std::env::VarError::NotPresent) => Ok(Checking::Lazy),
            Ok("1") => Ok(Checking::All),
            Ok("0") => Ok(Checking::None),
            Ok(other) => bail!("{VARIABLE} is {other:?}; 1 checks indexes in compiled steps, too, and 0 nowhere"),
            Err(error) => bail!("{VARIABLE}: {error}; 1 checks indexes in compiled steps, too, and 0 nowhere"),
        }
    }

    pub(crate) fn of_lazy_code(self) -> Checks {
        if self == Checking::None { Checks::LeftOut } else { Checks::Made }
    }

    pub(crate) fn of_steps(self) -> Checks {
        if self == Checking::All { Checks::Made } else { Checks::LeftOut }
    }

    /// Prints once in a process that compiled steps do not check their indexes, unless the user has chosen so.
    pub(crate) fn note(self, program: &Program) {
        static SAID: AtomicBool = AtomicBool::new(false);
        let has_unchecked = || program.instructions.iter().any(|instruction| of(&instruction.node).is_some());
        if self == Checking::Lazy && has_unchecked() && !SAID.swap(true, Ordering::Relaxed) {
            eprintln!(
                "ferrotune: this compiled step does not check its indexes: one out of range reads NaN (0 among integers) and \
                 writes nothing; {VARIABLE}=1 makes it an error, and 0 omits this line"
            );
        }
    }
}

/// The faults of a program that has run, each with the instruction whose check has found it. `found` has the results of the checks,
/// once for each device. Waits for the program.
pub(crate) fn faults(checks: &[(usize, Check)], found: Option<Vec<Buffer>>) -> Result<Vec<(usize, Arc<Fault>)>> {
    let mut worst = vec![NONE_FOUND; checks.len()];
    let transfers = found.iter().flatten().map(|buffer| buffer.download().map_err(Error::wrap));
    for transfer in transfers.collect::<Result<Vec<Transfer>>>()? {
        let literal = transfer.wait().map_err(Error::wrap)?;
        let numbers = literal.bytes().chunks_exact(size_of::<i64>()).map(bytemuck::pod_read_unaligned::<i64>);
        // Replicas may have different indexes, so the greatest one is reported.
        worst.iter_mut().zip(numbers).for_each(|(worst, number)| *worst = number.max(*worst));
    }
    let faults = checks.iter().zip(worst).filter(|(_, index)| *index != NONE_FOUND);
    Ok(faults.map(|((place, check), index)| (*place, Arc::new(Fault { check: check.clone(), index }))).collect())
}

/// For each result, the first fault that it depends on, among the faults of the program's own checks and of its arguments.
pub(crate) fn faults_of_results(program: &Program, own: &[(usize, Arc<Fault>)]) -> Vec<Option<Arc<Fault>>> {
    let faulty = |argument: &Argument| matches!(argument, Argument::Node(node) if node.fault().is_some());
    if own.is_empty() && !program.arguments.iter().any(faulty) {
        return vec![None; program.results.len()];
    }
    let mut faults: Vec<Option<Arc<Fault>>> = Vec::new();
    for (place, instruction) in program.instructions.iter().enumerate() {
        let checked = own.iter().find(|(checked, _)| *checked == place).map(|(_, fault)| fault);
        let inherited = || instruction.inputs.iter().find_map(|input| faults[*input].as_ref());
        let fault = instruction.node.fault().or_else(inherited).or(checked).cloned();
        faults.push(fault);
    }
    program.results.iter().map(|place| faults[*place].clone()).collect()
}

/// The check that a node makes, if it is a checked node.
pub(crate) fn of(node: &Node) -> Option<&Check> {
    match &node.op {
        Op::Checked(check) => Some(check),
        _ => None,
    }
}
