//! `ferrotune worker`: runs trials of a study of another host. It fetches what the study's owner has published into its own folder,
//! runs trials until the study ends, and removes the folder. It runs nothing that is not signed with the study's token.

mod folder;

use crate::devices::DEVICES;
use crate::objects::Objects;
use crate::placement;
use crate::printer::Printer;
use anyhow::{Context as _, Result};
use clap::Args;
use ferrotune_launchers::{Resources, launcher};
use ferrotune_machine::own;
use ferrotune_space::event::Finish;
use ferrotune_tuner::process::Signals;
use ferrotune_tuner::supervisor::{Fetched, Token, Workers, fetch, store_of, supervise};
use folder::{WorkerFolder, remove_those_of_the_dead};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The study, and what this host gives it.
#[derive(Args)]
pub(crate) struct Worker {
    /// The address of the study's database, as in `%%tune --storage`.
    #[arg(long, value_name = "URL")]
    storage: String,
    /// The study's name, as in `%%tune --project`.
    #[arg(long, value_name = "NAME")]
    study: String,
    /// The file `token` of the search that was started with `--publish`; without it, the variable FERROTUNE_TOKEN is the token.
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// An existing folder for the trials' files, which may be on a shared disk: other hosts go on from the checkpoints there.
    /// Without it, the system's folder for temporary files.
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Trials that run side by side; without it as many as in the search.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    concurrency: Option<u64>,
    /// Threads of each trial; without it its share of the cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// End a trial that takes more memory, such as 4GiB; with `--on`, the memory of each worker.
    #[arg(long, value_name = "SIZE", value_parser = ferrotune_magics::bytes)]
    memory: Option<u64>,
    /// The trials' device: cpu, cuda, …; without it that of the search.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Stop after this time, such as 90s, 10m, 2h or 1d.
    #[arg(long, value_name = "TIME", value_parser = ferrotune_magics::seconds)]
    timeout: Option<f64>,
    /// Place workers there instead of working here: `local`, `slurm`, `slurm:partition=NAME,time=2:00:00` (options of sbatch),
    /// `ray:http://HOST:8265` or `kubernetes:image=NAME`. This program and the folder of `--directory` must be on all hosts.
    #[arg(long, value_name = "LAUNCHER", requires = "directory")]
    on: Option<String>,
    /// How many workers to place.
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    workers: u64,
    /// Processors of each worker.
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u64).range(1..))]
    cpus: Option<u64>,
    /// Graphics processors of each worker.
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u64).range(1..))]
    gpus: Option<u64>,
}

impl Worker {
    fn place(&self, on: &str, token: &Token) -> Result<ExitCode> {
        let folder = self.directory.clone().unwrap_or_default();
        let folder = folder.canonicalize().with_context(|| format!("cannot find the folder {}", folder.display()))?;
        let launcher = launcher(on)?;
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let options = [
            ("--concurrency", number(self.concurrency)),
            ("--threads", number(self.threads)),
            ("--device", self.device.clone()),
            ("--timeout", self.timeout.map(|seconds| format!("{seconds}s"))),
        ];
        let resources = Resources { cpus: self.cpus, memory_bytes: self.memory, gpus: self.gpus };
        let store = store_of(&self.storage, &self.study, token)?;
        let study = (self.storage.as_str(), self.study.as_str(), store.as_deref());
        let job = placement::job(study, &options, token, &folder, resources)?;
        placement::follow(launcher, job, self.workers)
    }
}

/// Works until the study has all its trials, and prints a line on standard error for each trial of this worker. The first SIGINT
/// or SIGTERM stops the worker after the current step of each trial, the second at once; other workers go on with these trials.
pub(crate) fn run(arguments: &Worker) -> Result<ExitCode> {
    let token = Token::find(arguments.token.as_deref())?;
    if let Some(on) = &arguments.on {
        return arguments.place(on, &token);
    }
    // A signal that comes before the search begins must not leave the folder behind.
    let signals = Signals::hold().context("cannot hold signals back")?;
    let directory = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let folder = WorkerFolder::make(&directory)?;
    let root = folder.path()?;
    let fetched = fetch(&arguments.storage, &arguments.study, &token, &Objects, &root)?;
    let program = Path::new(own::PROGRAM);
    fetched.check_that_it_loads(program)?;
    let Fetched { mut spec, code } = fetched;
    spec.timeout_s = arguments.timeout;
    spec.memory_budget_bytes = arguments.memory.or(spec.memory_budget_bytes);
    spec.device = arguments.device.clone().unwrap_or(spec.device);
    spec.supervision.concurrency = arguments.concurrency.unwrap_or(spec.supervision.concurrency);
    spec.supervision.threads = arguments.threads;
    if signals.take().context("cannot read a signal")? > 0 {
        anyhow::bail!("stopped before it had begun a trial");
    }
    remove_those_of_the_dead(&directory).iter().for_each(|line| eprintln!("{line}"));
    let mut printer = Printer::new(&spec, "stopped; other workers go on with its trials");
    let study = spec.directory.join(&spec.project);
    let finish =
        supervise(spec, Workers::Fetched { program, code, devices: Some(&DEVICES) }, &mut printer, &mut |_| {})?;
    folder.leave(&study)?;
    Ok(if finish == Finish::Interrupted { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
