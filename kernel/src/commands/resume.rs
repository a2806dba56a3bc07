//! `ferrotune resume FOLDER`: continues a study in this process, which becomes its supervisor, or in a background process
//! without a terminal. Needs no kernel, no toolchain and no prelude: the study's folder has everything that its trials
//! need. Runs no code from that folder that this user has neither compiled nor trusted.

use crate::devices::DEVICES;
use crate::execution::{LiveDisplay, Output};
use crate::objects::Objects;
use crate::printer::Printer;
use crate::search_process::{EventFiles, SearchProcess, trust};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use ferrotune_machine::own;
use ferrotune_space::event::Finish;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::supervisor::{Origin, Trust, Workers, spec_of, supervise};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The study, and the settings that change.
#[derive(Args)]
pub(crate) struct Resume {
    /// The study's folder, with journal.log in it.
    folder: PathBuf,
    /// How many trials to run in all; without it as many as before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_trials: Option<u64>,
    /// End the search after this time, such as 90s, 10m, 2h or 1d.
    #[arg(long, value_name = "TIME", value_parser = ferrotune_magics::seconds)]
    timeout: Option<f64>,
    /// Another folder for the second copy of the study.
    #[arg(long, value_name = "FOLDER")]
    mirror: Option<PathBuf>,
    /// Another folder for TensorBoard's files, which grow while the search runs.
    #[arg(long, value_name = "FOLDER")]
    tensorboard: Option<PathBuf>,
    /// Run the code in the folder although this user did not compile it: it can do whatever you can. Asked once.
    #[arg(long)]
    trust: bool,
    /// Give the terminal back at once; the search goes on without it, also when it is closed.
    #[arg(long)]
    background: bool,
}

/// Runs the search to its end, and prints a line on standard error for each trial. The first Ctrl-C stops the search after the
/// current step of each trial, the second at once.
pub(crate) fn run(arguments: &Resume) -> Result<ExitCode> {
    let mut spec = spec_of(&arguments.folder)?;
    spec.max_trials = arguments.max_trials.unwrap_or(spec.max_trials);
    spec.timeout_s = arguments.timeout.or(spec.timeout_s);
    spec.supervision.background = arguments.background;
    let mut trust = trust(if arguments.trust { Origin::User } else { Origin::Study });
    if let Some(mirror) = &arguments.mirror {
        spec.supervision.mirror = Some(std::path::absolute(mirror)?);
        trust.mirror = Origin::User;
    }
    if let Some(folder) = &arguments.tensorboard {
        spec.supervision.tensorboard = Some(std::path::absolute(folder)?);
    }
    EventFiles::check(&spec)?;
    if arguments.background {
        return go_on_in_background(spec, &trust);
    }
    let mut printer = Printer::new(&spec, "stopped; run it again to go on");
    let (program, devices) = (Path::new(own::PROGRAM), Some(&DEVICES as _));
    let workers = Workers::Program { program, trust: &trust, objects: &Objects, devices };
    let mut event_files = EventFiles::of(&spec);
    let finish = supervise(spec, workers, &mut printer, &mut |event| event_files.take(event))?;
    Ok(if finish == Finish::Interrupted { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Starts the search's supervisor in a new process, and returns once the supervisor has opened the study. A shell makes this
/// process the leader of a process group, which cannot leave its terminal's session; a process that this one starts can.
fn go_on_in_background(spec: StudySpec, trust: &Trust) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder; free some space, or set TMPDIR")?;
    let search = SearchProcess::start(spec, trust, folder.path())?;
    let pid = search.pid();
    let print = |output: Output| {
        if let Output::Stream(_, text) = output {
            eprint!("{text}");
        }
    };
    // This process ends before the search.
    let unseen = LiveDisplay::new("ferrotune-search".to_owned());
    if let Err(failure) = search.detach(&print, unseen, |_| {}) {
        bail!("process {pid} goes on with the search, but: {}", failure.text);
    }
    eprintln!("without a notebook, kill -INT {pid} stops it");
    Ok(ExitCode::SUCCESS)
}
