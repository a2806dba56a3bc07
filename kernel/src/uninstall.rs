//! `ferrotune uninstall --all`: removes everything that Ferrotune has written outside of its package and of the user's projects.
//!
//! The command first lists what it will remove. It removes nothing that Ferrotune cannot have made, nothing while a kernel runs,
//! and no study.

use crate::kernelspec;
use crate::places::holds::{self, folder_of};
use crate::places::{self, Place, shortened};
use crate::runtime;
use anyhow::{Result, bail};
use ferrotune_machine::format;
use std::fs::File;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

/// The files, folders and kernelspecs to remove.
struct Plan {
    places: Vec<Place>,
    kernelspecs: Vec<PathBuf>,
    /// The paths that stay, each with the reason.
    staying: Vec<(PathBuf, &'static str)>,
}

/// Removes everything, after a question unless the user has already agreed.
pub(crate) fn all(is_agreed: bool) -> Result<()> {
    let plan = plan()?;
    plan.list();
    let mut failures = Vec::new();
    if plan.places.is_empty() && plan.kernelspecs.is_empty() {
        eprintln!("there is nothing to remove");
    } else {
        drop(plan.take()?);
        if !is_agreed && !asked()? {
            bail!("nothing was removed");
        }
        // A kernel may have started while the user was asked.
        let _locks = plan.take()?;
        failures = plan.carry_out();
    }
    for folder in places::folders()? {
        if let Err(error) = places::remove_if_empty(&folder) {
            failures.push(format!("cannot remove {}: {error}", folder.display()));
        }
    }
    runtime::sweep_abandoned();
    eprintln!("studies and checkpoints in your projects stay, and so does what cargo keeps in its own folder");
    match failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}; all else was removed", failures.join("; ")),
    }
}

fn plan() -> Result<Plan> {
    let inventory = places::survey()?;
    let strange = inventory.strange.into_iter();
    let mut staying: Vec<_> = strange.map(|path| (path, "Ferrotune has not made it, as far as it can tell")).collect();
    let (ours, foreign): (Vec<_>, Vec<_>) = kernelspec::installed().into_iter().partition(|spec| spec.is_ours());
    let foreign = foreign.into_iter();
    staying.extend(foreign.map(|spec| (spec.folder, "it starts another program, is a link, or is part of a package")));
    let kernelspecs = ours.into_iter().map(|spec| spec.folder).collect();
    Ok(Plan { places: inventory.ours, kernelspecs, staying })
}

impl Plan {
    fn list(&self) {
        for place in &self.places {
            eprintln!("{:>9}  {}  ({})", format::bytes(place.bytes), shortened(&place.path), place.kind.text());
        }
        for folder in &self.kernelspecs {
            eprintln!("{:>9}  {}  (registration of the kernel)", "", shortened(folder));
        }
        for (path, reason) in &self.staying {
            eprintln!("    stays  {}: {reason}", shortened(path));
        }
    }

    /// Takes the locks that keep other processes from using or making the things to remove, until the locks are dropped. Fails if a
    /// process uses or makes one now.
    fn take(&self) -> Result<Vec<File>> {
        match runtime::running() {
            0 => {}
            1 => bail!("nothing was removed, since a kernel runs; shut it down, then try again"),
            many => bail!("nothing was removed, since {many} kernels run; shut them down, then try again"),
        }
        let mut locks = Vec::new();
        for places in self.places.chunk_by(|one, other| folder_of(&one.path) == folder_of(&other.path)) {
            let Some(folder) = places.first().map(|place| folder_of(&place.path)) else { continue };
            let Some(taken) = holds::take(&folder)? else {
                let name = shortened(&folder);
                bail!("nothing was removed, since another process uses or makes {name}; end it, then try again");
            };
            locks.extend(taken);
        }
        Ok(locks)
    }

    /// Removes everything in the plan, and returns the errors.
    fn carry_out(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for folder in &self.kernelspecs {
            match kernelspec::remove(folder) {
                Ok(removed) => eprintln!("{removed}"),
                Err(error) => failures.push(error.to_string()),
            }
        }
        let mut bytes = 0;
        for place in &self.places {
            match place.remove() {
                Ok(()) => bytes += place.bytes,
                Err(error) => failures.push(format!("cannot remove {}: {error}", place.path.display())),
            }
        }
        eprintln!("removed {}", format::bytes(bytes));
        failures
    }
}

/// Asks the user on the terminal.
fn asked() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nothing was removed, since nobody can be asked here; --yes removes what is listed");
    }
    eprint!("remove all of this? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
