//! `ferrotune uninstall --all`: removes everything that Ferrotune has written outside of its package and of the user's projects.
//!
//! The command first lists what it will remove. It removes nothing that Ferrotune cannot have made, nothing while a kernel runs,
//! and no study.

use crate::commands::install::Target;
use crate::commands::kernelspec;
use crate::folders::holds::{self, folder_of};
use crate::folders::{self, Item, shortened};
use crate::runtime;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use ferrotune_devices::runtime::{Running, running};
use ferrotune_machine::format;
use std::fs::File;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    from: From,
    /// Do not ask before everything is removed.
    #[arg(long, requires = "all")]
    yes: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct From {
    /// The kernelspecs of this program, and everything that it keeps outside of your projects. Lists it first.
    #[arg(long)]
    all: bool,
    /// From the current user.
    #[arg(long)]
    user: bool,
    /// From DIR/share/jupyter.
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// From the Python environment in use.
    #[arg(long)]
    sys_prefix: bool,
}

/// Removes what is asked for.
pub(crate) fn run(Uninstall { from: From { all, user, prefix, sys_prefix }, yes }: Uninstall) -> Result<()> {
    if all {
        return everything(yes);
    }
    let removed = kernelspec::uninstall(&Target { user, prefix, sys_prefix }.place())?;
    eprintln!("{removed}");
    Ok(())
}

/// What is to be removed.
struct Plan {
    items: Vec<Item>,
    kernelspecs: Vec<PathBuf>,
    /// The device processes to end.
    devices: Vec<Running>,
    /// The paths that stay, each with the reason.
    staying: Vec<(PathBuf, &'static str)>,
}

/// Removes everything, after a question unless the user has already agreed.
fn everything(is_agreed: bool) -> Result<()> {
    let plan = plan()?;
    plan.list();
    let mut failures = Vec::new();
    if plan.items.is_empty() && plan.kernelspecs.is_empty() && plan.devices.is_empty() {
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
    for folder in folders::all()? {
        if let Err(error) = folders::remove_if_empty(&folder) {
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
    let inventory = folders::survey()?;
    let strange = inventory.strange.into_iter();
    let mut staying: Vec<_> = strange.map(|path| (path, "Ferrotune has not made it, as far as it can tell")).collect();
    let (ours, foreign): (Vec<_>, Vec<_>) = kernelspec::installed().into_iter().partition(|spec| spec.is_ours());
    let foreign = foreign.into_iter();
    staying.extend(foreign.map(|spec| (spec.folder, "it starts another program, is a link, or is part of a package")));
    let kernelspecs = ours.into_iter().map(|spec| spec.folder).collect();
    Ok(Plan { items: inventory.ours, kernelspecs, devices: device_processes()?, staying })
}

fn device_processes() -> Result<Vec<Running>> {
    running().context("cannot find the device processes that run")
}

impl Plan {
    fn list(&self) {
        for item in &self.items {
            eprintln!("{:>9}  {}  ({})", format::bytes(item.bytes), shortened(&item.path), item.kind.text());
        }
        for folder in &self.kernelspecs {
            eprintln!("{:>9}  {}  (registration of the kernel)", "", shortened(folder));
        }
        for device in &self.devices {
            eprintln!("     ends  the device {device}");
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
        for device in &device_processes()? {
            if device.report.is_err() {
                bail!(
                    "nothing was removed, since a device process cannot be asked who uses it; end it, then try again: {device}"
                );
            }
            let users = device.users();
            if !users.is_empty() {
                bail!(
                    "nothing was removed, since {} use the device {device}; end these, then try again",
                    users.join(", ")
                );
            }
        }
        let mut locks = Vec::new();
        for items in self.items.chunk_by(|one, other| folder_of(&one.path) == folder_of(&other.path)) {
            let Some(folder) = items.first().map(|item| folder_of(&item.path)) else { continue };
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
        for device in &self.devices {
            if let Err(error) = device.close() {
                failures.push(format!("cannot end the device {device}: {error}"));
            }
        }
        for folder in &self.kernelspecs {
            match kernelspec::remove(folder) {
                Ok(removed) => eprintln!("{removed}"),
                Err(error) => failures.push(error.to_string()),
            }
        }
        let mut bytes = 0;
        for item in &self.items {
            match item.remove() {
                Ok(()) => bytes += item.bytes,
                Err(error) => failures.push(format!("cannot remove {}: {error}", item.path.display())),
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
