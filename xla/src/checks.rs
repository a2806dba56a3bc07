//! Checks of indexes: a program that reads or writes at indexes has one more result, which contains for each check an index that is
//! out of range, if there is one. This result is read after the run, since the indexes are unknown before.
//!
//! A check changes no value. The values that depend on a wrong index keep it as their [`Fault`], so that each read of these values,
//! and of values that are computed from them, is an error. Other values of the same program are the same as without the fault.

use candle_core::{Error, Result, bail};
use ferrotune_devices::runtime::{Buffer, Transfer};
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
    pub(crate) fn note(self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if self == Checking::Lazy && !SAID.swap(true, Ordering::Relaxed) {
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
