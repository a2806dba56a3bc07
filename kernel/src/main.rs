//! The `ferrotune` program: Jupyter kernel, installer, and the processes that the kernel starts from the same file.

mod allocator;
mod bound;
mod cell_supervisor;
mod chain;
mod commands;
mod compile;
mod completeness;
mod devices;
mod diagnostic;
mod disk;
mod engine;
mod environment;
mod execution;
mod failure;
mod folders;
mod objects;
mod placement;
mod prelude;
mod printer;
mod runtime;
mod search_process;
mod server;
mod statements;
mod toolchain;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use devices::DEVICES;
use ferrotune_tuner::supervisor::{Origin, Trust};
use objects::Objects;
use runtime::Runtime;
use search_process::EventFiles;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A Jupyter kernel that runs Rust, with hyper-parameter searches that cannot crash the notebook.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Install the kernel for Jupyter, and build the library that cells are linked with.
    Install(commands::install::Install),
    /// Remove the kernel from Jupyter, or everything that Ferrotune has written.
    Uninstall(commands::uninstall::Uninstall),
    /// Show what is installed, found and missing, and how to mend it, to paste into a report.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Install a Rust toolchain for Ferrotune alone, with rustup, beside the user's own.
    Setup {
        /// The version of Rust.
        #[arg(long, value_name = "VERSION", default_value = toolchain::own::VERSION)]
        toolchain: String,
    },
    /// Write Ferrotune's packages of candle into a folder, for `[patch.crates-io]` of Rust programs.
    Candle {
        /// A new folder, or one that this command has written.
        folder: PathBuf,
    },
    /// Write the model of a study's best trial into a folder, for programs without a notebook.
    Export(commands::export::Export),
    /// Continue a study without a notebook.
    Resume(commands::resume::Resume),
    /// Run trials of a study that another host has published.
    Worker(commands::worker::Worker),
    /// Run a program that ends with the process that has started it.
    #[command(hide = true)]
    Bound {
        parent: i32,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a kernel; Jupyter calls this.
    #[command(hide = true)]
    Kernel {
        /// The file in which Jupyter says where to listen.
        #[arg(long)]
        connection_file: PathBuf,
    },
    /// Supervise the processes of cells.
    #[command(hide = true)]
    CellSupervisor { standard_library: PathBuf, prelude: PathBuf },
    /// Print the best trial of a study for a cell, as JSON.
    #[command(hide = true)]
    Best { study: PathBuf },
    /// Pass lines between evcxr and the cell supervisor.
    #[command(hide = true)]
    CellRelay,
    /// Write what a package has beside this program.
    #[command(hide = true)]
    Package {
        /// A new folder.
        folder: PathBuf,
    },
    /// Print all magics as JSON, for the extension of Python notebooks.
    #[command(hide = true)]
    Magics,
    /// Choose the values of another program's trials, such as Optuna's.
    #[command(hide = true)]
    Oracle,
    /// Run cells.
    #[command(hide = true)]
    CellProcess { standard_library: PathBuf, prelude: PathBuf },
    /// Supervise a search.
    #[command(hide = true)]
    Supervise {
        study: PathBuf,
        /// The user trusts the search's code.
        #[arg(long)]
        trust: bool,
        /// The user trusts the search's mirror.
        #[arg(long)]
        trust_mirror: bool,
    },
    /// Read files of data for a dataset.
    #[command(hide = true)]
    Reader,
    /// Try a PJRT plugin, which may crash this process.
    #[command(hide = true)]
    Probe,
    /// Open a PJRT plugin for all processes of this user.
    #[command(hide = true)]
    Device {
        name: String,
        plugin: PathBuf,
        socket: PathBuf,
        #[arg(long)]
        detached: bool,
    },
    /// Run a trial.
    #[command(hide = true)]
    Trial {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Load a trial's objective, and run nothing of it.
    #[command(hide = true)]
    Load {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(code) = Path::new(&name).file_name().and_then(|name| compile::stand_in(name, &arguments)) {
        return code;
    }
    let filter = EnvFilter::try_from_env("FERROTUNE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferrotune: {}", chain::in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<ExitCode> {
    match Arguments::parse().command {
        Action::Install(request) => commands::install::run(request).map(|()| ExitCode::SUCCESS),
        Action::Uninstall(request) => commands::uninstall::run(request).map(|()| ExitCode::SUCCESS),
        Action::Doctor { json } => {
            commands::doctor::run(json).map(|can_run| if can_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::Setup { toolchain } => commands::setup::run(&toolchain).map(|()| ExitCode::SUCCESS),
        Action::Bound { parent, program, arguments } => match bound::run(parent, &program, &arguments)? {},
        Action::Candle { folder } => commands::candle::run(&folder).map(|()| ExitCode::SUCCESS),
        Action::Export(arguments) => commands::export::run(&arguments).map(|()| ExitCode::SUCCESS),
        Action::Resume(arguments) => commands::resume::run(&arguments),
        Action::Kernel { connection_file } => kernel(&connection_file, arguments).map(|()| ExitCode::SUCCESS),
        Action::CellSupervisor { standard_library, prelude } => cell_supervisor::run([standard_library, prelude]),
        Action::CellRelay => cell_supervisor::run_relay(),
        Action::Package { folder } => {
            commands::with_progress(|show| commands::package::write(&folder, show)).map(|()| ExitCode::SUCCESS)
        }
        Action::Oracle => commands::oracle::run().map(|()| ExitCode::SUCCESS),
        Action::Magics => magics().map(|()| ExitCode::SUCCESS),
        Action::CellProcess { standard_library, prelude } => {
            cell_supervisor::run_cells(&[standard_library, prelude]).map(|()| ExitCode::SUCCESS)
        }
        Action::Supervise { study, trust, trust_mirror } => {
            let origin = |is_users| if is_users { Origin::User } else { Origin::Study };
            let trust = Trust { mirror: origin(trust_mirror), ..search_process::trust(origin(trust)) };
            let mut event_files = EventFiles::of_file(&study);
            let listener = &mut |event: &_| event_files.take(event);
            Ok(ferrotune_tuner::supervisor::main(
                &study,
                &trust,
                &placement::engine_of,
                &Objects,
                Some(&DEVICES),
                listener,
            ))
        }
        Action::Best { study } => {
            writeln!(std::io::stdout(), "{}", engine::best_as_json(&engine::folder_named(&study))?)
                .map(|()| ExitCode::SUCCESS)
                .context("cannot print the best trial")
        }
        Action::Reader => reader(),
        Action::Probe => Ok(ferrotune_devices::probe::child::main()),
        Action::Device { detached: false, .. } => Ok(ferrotune_devices::process::start()),
        Action::Device { name, plugin, socket, .. } => {
            // A search holds some signals back, and its children inherit that.
            ferrotune_tuner::process::unblock_stop_signals().context("cannot unblock signals")?;
            Ok(ferrotune_devices::process::main(&name, &plugin, &socket))
        }
        Action::Trial { arguments } => ferrotune_tuner::process::worker_main(arguments),
        Action::Load { arguments } => match ferrotune_tuner::process::load_objective(arguments) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(reason) => {
                eprintln!("{reason}");
                Ok(ExitCode::FAILURE)
            }
        },
        Action::Worker(arguments) => commands::worker::run(&arguments),
    }
}

fn reader() -> Result<ExitCode> {
    if let Some(bytes) = environment::object_cache_bytes()? {
        ferrotune_reader::keep_objects(folders::cache()?.join("objects"), bytes);
    }
    Ok(ferrotune_reader::main())
}

fn magics() -> Result<()> {
    let described = |magic: &ferrotune_magics::Magic| {
        serde_json::json!({
            "forms": magic.forms,
            "summary": magic.summary,
            "help": ferrotune_magics::help(magic.name()),
        })
    };
    let magics: Vec<serde_json::Value> = ferrotune_magics::table().iter().map(described).collect();
    writeln!(std::io::stdout(), "{}", serde_json::Value::from(magics)).context("cannot print the magics")
}

fn kernel(connection_file: &Path, arguments: &[OsString]) -> Result<()> {
    let runtime = match Runtime::current()? {
        Some(runtime) => runtime,
        None => match Runtime::enter(arguments)? {},
    };
    let folder = runtime.clone();
    let result = serve(connection_file, runtime);
    folder.remove();
    result
}

fn serve(connection_file: &Path, runtime: Runtime) -> Result<()> {
    let tokio = tokio::runtime::Runtime::new().context("cannot start the server's threads")?;
    let result = tokio.block_on(server::serve(connection_file, move || {
        let interrupts = engine::Interrupts::default();
        let inspector = engine::Inspector::start();
        let work = engine::start(runtime, interrupts.clone(), inspector.clone());
        let ask = Box::new(move |question| inspector.ask(question));
        let end = Box::new({
            let interrupts = interrupts.clone();
            move || interrupts.end()
        });
        server::EngineHandle { work, ask, interrupt: Box::new(move |at| interrupts.interrupt(at)), end }
    }));
    // The shutdown does not wait for a cell that does not stop.
    tokio.shutdown_background();
    result
}
