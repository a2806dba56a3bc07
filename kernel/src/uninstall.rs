//! `ferrotune uninstall --all`: removes everything that Ferrotune has written outside of its package and of the user's projects.
//!
//! It lists first what it will remove, and removes nothing that Ferrotune cannot have made, nothing while a kernel runs,
//! and no study.

use crate::kernelspec;
use crate::places::{self, Place, preludes, shortened};
use crate::runtime;
use anyhow::{Context, Result, bail};
use ferrotune_machine::format;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

/// What is to be removed.
struct Plan {
    places: Vec<Place>,
    kernelspecs: Vec<PathBuf>,
    /// What stays, each with the reason.
    staying: Vec<(PathBuf, &'static str)>,
}

/// Removes everything, after a question unless the user has said yes already.
pub(crate) fn all(is_agreed: bool) -> Result<()> {
    let plan = plan()?;
    plan.list();
    if plan.places.is_empty() && plan.kernelspecs.is_empty() {
        eprintln!("there is nothing to remove");
    } else {
        match runtime::running() {
            0 => {}
            1 => bail!("nothing was removed, since a kernel runs; shut it down, then try again"),
            many => bail!("nothing was removed, since {many} kernels run; shut them down, then try again"),
        }
        if !is_agreed && !asked()? {
            bail!("nothing was removed");
        }
        plan.carry_out()?;
    }
    for folder in places::folders()? {
        places::remove_if_empty(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    runtime::sweep_abandoned();
    eprintln!("studies and checkpoints in your projects stay, and so does what cargo keeps in its own folder");
    Ok(())
}

fn plan() -> Result<Plan> {
    let inventory = places::survey()?;
    let mut staying: Vec<_> =
        inventory.strange.into_iter().map(|path| (path, "Ferrotune has not made it, as far as it can tell")).collect();
    let mut ours = Vec::new();
    for place in inventory.ours {
        if preludes::is_held(&place.path)? {
            staying.push((place.path, "another process makes or uses it; try again later"));
        } else {
            ours.push(place);
        }
    }
    let found = kernelspec::installed();
    let kernelspecs = found.iter().filter(|spec| spec.is_ours()).map(|spec| spec.folder.clone()).collect();
    let foreign = found.iter().filter(|spec| !spec.is_ours());
    staying.extend(foreign.map(|spec| (spec.folder.clone(), "it starts another program, or is part of a package")));
    Ok(Plan { places: ours, kernelspecs, staying })
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

    fn carry_out(&self) -> Result<()> {
        for folder in &self.kernelspecs {
            kernelspec::remove(folder)?;
            // Jupyter's own folders, which `install` has made if nobody else had.
            for parent in folder.ancestors().skip(1).take(2) {
                places::remove_if_empty(parent).with_context(|| format!("cannot remove {}", parent.display()))?;
            }
        }
        for place in &self.places {
            place.remove().with_context(|| format!("cannot remove {}", place.path.display()))?;
        }
        let bytes = self.places.iter().map(|place| place.bytes).sum();
        eprintln!("removed {}", format::bytes(bytes));
        Ok(())
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
