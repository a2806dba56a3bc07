//! A stand-in for the `ferrotune` program in the tests of trial supervision: `objective supervise SPEC` runs a search,
//! and `objective worker … --symbol SCENARIO` is its worker, which plays the scenario of that name instead of loading
//! a library; in the scenario `library` it loads it. Never used outside tests.

use candle_core::{DType, Device, Tensor};
use candle_nn::{Optimizer as _, ParamsAdamW, VarMap};
use ferrotune_trial::{AdamW, Result, Share, Shared, Trial, run_objective};
use ferrotune_tuner::process::{set_up_worker, worker_main};
use ferrotune_tuner::supervisor::{Origin, Trust};
use rustix::process::{Signal, getpid, getppid, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("supervise") => {
            // A folder of what is known may follow, and then who the code comes from.
            let origin = if args.get(3).is_some_and(|from| from == "study") { Origin::Study } else { Origin::User };
            let trust = Trust { known: args.get(2).map(PathBuf::from), code: origin, mirror: origin };
            ferrotune_tuner::supervisor::main(Path::new(&args[1]), &trust)
        }
        Some("worker") => {
            let scenario = args.last().and_then(|arg| arg.to_str()).unwrap_or_default().to_owned();
            if scenario == "library" {
                worker_main(args.into_iter().skip(1));
            }
            if let Err(reason) = set_up_worker() {
                eprintln!("{reason}");
                return ExitCode::FAILURE;
            }
            let status = match scenario.as_str() {
                "trade_off" => run_objective(|trial, _| trade_off(trial)),
                _ => run_objective(|trial, shared| play(&scenario, trial, shared)),
            };
            if scenario == "lingering" {
                std::thread::sleep(Duration::from_secs(1000));
            }
            ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
        }
        _ => ExitCode::FAILURE,
    }
}

fn play(scenario: &str, trial: &Trial, shared: &Shared) -> Result<Option<f64>> {
    match scenario {
        "quick" | "lingering" => quick(trial),
        "faults" => faults(trial),
        "train" => train(trial, Duration::ZERO),
        "slow" => train(trial, Duration::from_millis(10)),
        "peaked" => peaked(trial),
        "heavy" => heavy(trial),
        "short_of_files" => short_of_files(trial),
        "heedless" => {
            let x = quick_parameter(trial)?;
            let mut seen = 0_u64;
            // Goes on as if there were no checkpoint, whatever is said.
            trial.restore(&mut seen).unwrap_or_default();
            for step in 0..100 {
                std::thread::sleep(Duration::from_millis(10));
                if trial.report(step, [("val_accuracy", x)]).is_ok() {
                    trial.checkpoint(&seen).unwrap_or_default();
                }
            }
            Ok(None)
        }
        "long" => long(trial),
        "deaf" => {
            quick(trial)?;
            std::thread::sleep(Duration::from_secs(1000));
            Ok(None)
        }
        "one_based" => {
            let x = quick_parameter(trial)?;
            trial.epochs(27).try_for_each(|epoch| trial.report(epoch + 1, [("val_accuracy", x)]))?;
            Ok(None)
        }
        "homeless" => {
            std::fs::remove_dir_all(trial.folder())?;
            writeln!(std::io::stdout(), "output without a place")?;
            quick(trial)
        }
        "greedy" => {
            quick_parameter(trial)?;
            std::hint::black_box(vec![1_u8; 4 << 30]);
            Ok(None)
        }
        "threads" => {
            quick_parameter(trial)?;
            loop {
                std::thread::Builder::new()
                    .stack_size(16 << 10)
                    .spawn(|| std::thread::sleep(Duration::from_secs(9)))?;
            }
        }
        "unsteady" => {
            quick_parameter(trial)?;
            // One byte more for each worker.
            let workers = trial.folder().join("workers");
            let mut seen = std::fs::read(&workers).unwrap_or_default();
            seen.push(b'w');
            std::fs::write(&workers, &seen)?;
            if trial.number() > 0 || seen.len() < 3 {
                die_of_a_fault()?;
            }
            Ok(Some(0.5))
        }
        "sized" => {
            let mib: usize = trial.int("mib", 20..=400).log().get()?;
            let held = vec![1_u8; mib << 20];
            // Long enough for the watch to see it.
            std::thread::sleep(Duration::from_millis(30));
            Ok(Some(f64::from(std::hint::black_box(held)[mib])))
        }
        "deadly" => {
            let x = quick_parameter(trial)?;
            if trial.number() == 0 {
                leave_a_daemon()?;
                kill_process(getppid().ok_or("no supervisor")?, Signal::KILL)?;
                std::thread::sleep(Duration::from_secs(1000));
            }
            Ok(Some(x))
        }
        "decimals" => decimals(trial),
        "population" => population(trial),
        "executions" => execution(trial),
        "empty" => Ok(Some(1.0)),
        "misnamed" => {
            quick_parameter(trial)?;
            trial.report(0, [("loss", 0.5), ("acc", 0.5)])?;
            Ok(None)
        }
        "inconsistent" => {
            let first: f64 = trial.float("lr", 0.1..=1.0).get()?;
            trial.float("lr", 0.1..=2.0).get()?;
            Ok(Some(first))
        }
        "fickle" => {
            if trial.number() == 0 {
                trial.float("depth", 0.1..=0.9).get().map(Some)
            } else {
                Ok(Some(f64::from(trial.int("depth", 1..=9).get()?)))
            }
        }
        "conditional" => {
            trial.choice("optimiser", ["adam", "sgd"]).get()?;
            let momentum = trial.float("momentum", 0.5..=0.9).step(0.4).when("optimiser", "sgd").default(0.9);
            let momentum = momentum.get()?;
            trial.bool("nesterov").when("momentum", 0.5).get()?;
            Ok(Some(momentum))
        }
        "orphan" => trial.float("momentum", 0.5..=0.9).when("optimiser", "sgd").get().map(Some),
        "misspelt" => {
            trial.choice("optimiser", ["adam", "sgd"]).get()?;
            trial.float("momentum", 0.5..=0.9).when("optimiser", "sdg").get().map(Some)
        }
        "impossible" => Ok(Some(f64::from(trial.int("units", 9..=9).step(0).get()?))),
        "shared" => look_at_shared(trial, shared),
        "shared_memory" => leave_shared_memory(trial),
        _ => Err(format!("no scenario {scenario}").into()),
    }
}

/// The larger, the better and the slower; the second trial leaves it all to its reports.
fn trade_off(trial: &Trial) -> Result<(Option<f64>, Option<f64>)> {
    let x = quick_parameter(trial)?;
    trial.report(0, [("accuracy", x), ("size", x * x), ("latency", 10.0 * x)])?;
    if trial.number() == 1 { Ok((None, None)) } else { Ok((Some(trial.best("accuracy")?), Some(trial.best("size")?))) }
}

fn quick_parameter(trial: &Trial) -> Result<f64> {
    trial.float("x", 0.0..=1.0).get()
}

/// Ranges in single precision, and bounds that sums have put beside their decimals.
fn decimals(trial: &Trial) -> Result<Option<f64>> {
    let rate: f32 = trial.float("rate", 0.1..=0.5).step(0.1).default(0.3).get()?;
    let tenth = 0.1;
    let summed: f64 = trial.float("summed", tenth + tenth + tenth..=0.9).step(tenth).get()?;
    let shift: f32 = trial.float("shift", -0.6..=0.6).step(0.2).get()?;
    let lr: f32 = trial.float("lr", 1e-4..=1e-1).log().get()?;
    let share: f32 = trial.choice("share", [0.1, 0.7]).get()?;
    // A condition on what was asked for in the other precision.
    let near: i64 = trial.int("near", 1..=9).when("rate", tenth + tenth + tenth).get()?;
    let points = [0.1_f32, 0.2, 0.3, 0.4, 0.5];
    if !points.contains(&rate) || !(1e-4..=1e-1).contains(&lr) || ![0.1, 0.7].contains(&share) || shift.abs() > 0.6 {
        return Err(format!("{rate} {lr} {share} {shift} are not the values of their ranges").into());
    }
    Ok(Some(f64::from(rate) + summed + near as f64))
}

fn quick(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let units: usize = trial.int("units", 1..=20_000).log().get()?;
    // Trials of different sizes, as in a real search.
    let weights = Tensor::ones((units, 64), DType::F32, &trial.device()?)?;
    std::hint::black_box(weights.sum_all()?.to_scalar::<f32>()?);
    trial.report(0, [("val_accuracy", x)])?;
    Ok(Some(x))
}

/// Every trial fails in another way, except the first and the last.
fn faults(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    match trial.number() {
        1 => panic!("injected panic"),
        2 => std::process::abort(),
        3 => std::process::exit(0),
        4 => std::process::exit(3),
        5 => die_of_a_fault()?,
        6 => std::thread::sleep(Duration::from_secs(1000)),
        7 => allocate_for_ever(),
        8 => {
            leave_a_daemon()?;
            std::thread::sleep(Duration::from_secs(1000));
        }
        9 => return Err("injected error".into()),
        10 => leave_a_daemon()?,
        11 => (0..200_000).try_for_each(|line| writeln!(std::io::stdout(), "line {line} of much output"))?,
        _ => {}
    }
    Ok(Some(x))
}

fn die_of_a_fault() -> Result<()> {
    loop {
        // Rust's own handler gives the first one back to the default.
        kill_process(getpid(), Signal::SEGV)?;
    }
}

/// At most 1 GB/s: what a busy machine holds up is not caught up with, for the supervisor was held up as well.
fn allocate_for_ever() {
    let mut held = Vec::new();
    loop {
        held.push(vec![1_u8; 10_000_000]);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Leaves a file in shared memory that it has made, and uses one that somebody else makes meanwhile.
fn leave_shared_memory(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let supervisor = getppid().ok_or("no supervisor")?;
    let name = |what: &str| format!("/dev/shm/ferrotune-test-{supervisor}-{what}");
    let own = File::create_new(name("own"))?;
    own.set_len(4096)?;
    // Steps with some work in them: a busy machine looks at such files only now and then.
    for step in 0..200 {
        std::thread::sleep(Duration::from_millis(10));
        trial.report(step, [("val_accuracy", x)])?;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let foreign = loop {
        match File::options().read(true).write(true).open(name("foreign")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => break opened?,
        }
    };
    trial.report(200, [("val_accuracy", x)])?;
    std::mem::forget((own, foreign));
    Ok(Some(x))
}

/// A grandchild in a session of its own, which no process group reaches.
fn leave_a_daemon() -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "setsid sleep 1000 & setsid sleep 1000 &"]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status()?;
    Ok(())
}

/// Counts epochs in a model of one number, and finds out where a checkpoint was not what it should have been.
fn train(trial: &Trial, work: Duration) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let vars = VarMap::new();
    let count = vars.get(1, "count", candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)?;
    let mut done: f32 = if trial.restore(&vars)? { count_of(&vars)? } else { count.to_vec1::<f32>()?[0] };
    for epoch in trial.epochs(27) {
        if done as usize != epoch {
            return Err(format!("the model has seen {done} epochs at epoch {epoch}").into());
        }
        std::thread::sleep(work);
        done += 1.0;
        set_count(&vars, done)?;
        trial.report(epoch, [("val_accuracy", x * f64::from(done) / 27.0), ("done", f64::from(done))])?;
        trial.checkpoint(&vars)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// Is at its best at the second epoch.
fn peaked(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let mut seen = 0_u64;
    trial.restore(&mut seen)?;
    for epoch in trial.epochs(27) {
        std::thread::sleep(Duration::from_millis(20));
        seen += 1;
        trial.report(epoch, [("val_accuracy", if epoch == 1 { 1.0 + x } else { x })])?;
        trial.checkpoint(&seen)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// Has a state of 480 MiB. Dies after its first checkpoint, and reports what it took to restore that.
fn heavy(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let (model, small) = (VarMap::new(), VarMap::new());
    let make = |vars: &VarMap, name: usize, mib: usize| {
        vars.get((mib, 1 << 18), &name.to_string(), candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)
    };
    (0..6).try_for_each(|name| make(&model, name, 64).map(drop))?;
    (0..4).try_for_each(|name| make(&small, name, 8).map(drop))?;
    let mut optimiser = AdamW::new(small.all_vars(), ParamsAdamW::default())?;
    let before_kib = status_kib("VmData:")?;
    let is_restored = trial.restore((&model, &mut optimiser))?;
    let grown_mib = (status_kib("VmData:")? - before_kib) / 1024.0;
    for epoch in trial.epochs(2) {
        for var in model.all_vars() {
            var.set(&(var.as_tensor() + 1.0)?)?;
        }
        let losses = small.all_vars().iter().map(|var| var.sum_all()).collect::<Result<Vec<_>, _>>()?;
        optimiser.backward_step(&Tensor::stack(&losses, 0)?.sum_all()?)?;
        let largest =
            model.all_vars().iter().map(|var| var.max_all()?.to_scalar::<f32>()).collect::<Result<Vec<_>, _>>()?;
        let same = f64::from(largest.iter().all(|value| *value == epoch as f32 + 1.0));
        trial.report(epoch, [("val_accuracy", x), ("grown_mib", grown_mib), ("same", same)])?;
        trial.checkpoint((&model, &optimiser))?;
        if !is_restored {
            die_of_a_fault()?;
        }
    }
    Ok(Some(x))
}

/// Reports 101 metrics in each of 1,500 steps, all at once, which come to megabytes.
fn long(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let names: Vec<String> = (0..100).map(|index| format!("gradient_of_layer_{index}")).collect();
    for step in 0..1500 {
        let others = names.iter().map(|name| (name.as_str(), x + f64::from(step) / 7.0));
        trial.report(step as usize, others.chain([("val_accuracy", x)]))?;
    }
    Ok(Some(x))
}

/// Trains as `slow` does, and the first of its workers that finds a checkpoint has no file left to open.
fn short_of_files(trial: &Trial) -> Result<Option<f64>> {
    let was_short = trial.folder().join("was-short");
    let has_checkpoint = std::fs::read_dir(trial.folder())?
        .flatten()
        .any(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".safetensors")));
    if has_checkpoint && !was_short.exists() {
        std::fs::write(was_short, "")?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = rustix::process::Rlimit { current: Some(100), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
        std::mem::forget((0..100).map_while(|_| std::fs::File::open("/dev/null").ok()).collect::<Vec<_>>());
    }
    train(trial, Duration::from_millis(10))
}

/// Trains a model that knows how many epochs it has seen, and in which trial it began.
fn population(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let vars = VarMap::new();
    let count = vars.get(1, "count", candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)?;
    let origin = candle_nn::Init::Const(trial.number() as f64);
    let origin = vars.get(1, "origin", origin, DType::F32, &Device::Cpu)?;
    trial.restore(&vars)?;
    let value_of = |var: &Tensor| Ok::<_, candle_core::Error>(f64::from(var.to_vec1::<f32>()?[0]));
    for epoch in trial.epochs(20) {
        if value_of(&count)? as usize != epoch {
            return Err(format!("the model has seen {} epochs at epoch {epoch}", value_of(&count)?).into());
        }
        let step = Tensor::new(&[epoch as f32 + 1.0], &Device::Cpu)?;
        vars.data().lock().map_err(|_| "poisoned")?["count"].set(&step)?;
        trial.report(epoch, [("val_accuracy", x + epoch as f64), ("origin", value_of(&origin)?)])?;
        trial.checkpoint(&vars)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// Fails where it finds what another execution has left.
fn execution(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let mut begun_by: u64 = trial.execution();
    trial.restore(&mut begun_by)?;
    if begun_by != trial.execution() {
        return Err(format!("execution {} goes on from {begun_by}", trial.execution()).into());
    }
    for epoch in trial.epochs(5) {
        std::thread::sleep(Duration::from_millis(40));
        let seed = (trial.seed() % 1_000_000) as f64;
        trial.report(epoch, [("val_accuracy", x + trial.execution() as f64), ("seed", seed)])?;
        trial.checkpoint(&begun_by)?;
    }
    Ok(None)
}

fn count_of(vars: &VarMap) -> Result<f32> {
    Ok(vars.all_vars()[0].to_vec1::<f32>()?[0])
}

fn set_count(vars: &VarMap, count: f32) -> Result<()> {
    Ok(vars.all_vars()[0].set(&Tensor::new(&[count], &Device::Cpu)?)?)
}

/// Maps the shared data once more and reports what that cost.
fn look_at_shared(trial: &Trial, shared: &Shared) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let given = Tensor::unpack("data", shared)?;
    let path = std::env::var_os("FERROTUNE_SHARED").ok_or("nothing shared")?;
    let (start, before) = (Instant::now(), anonymous_kib()?);
    let again = Tensor::unpack("data", &Shared::open(Path::new(&path))?)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let last = again.narrow(0, again.dim(0)? - 1, 1)?.flatten_all()?.to_vec1::<f32>()?;
    let grown_kib = anonymous_kib()? - before;
    let same = f64::from(given.dims() == again.dims() && last.iter().all(|value| *value == 7.0));
    trial.report(0, [("val_accuracy", x), ("open_ms", open_ms), ("grown_kib", grown_kib), ("same", same)])?;
    Ok(None)
}

fn anonymous_kib() -> Result<f64> {
    status_kib("RssAnon:")
}

fn status_kib(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
