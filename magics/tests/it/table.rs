//! Tests of the table of magics, and of the help and the completions that are made from it.

use expect_test::expect;
use ferrotune_magics::{Completion, Matches, complete, help, lsmagic, table};

#[test]
fn every_entry_is_coherent() {
    for magic in table() {
        let name = magic.name();
        let (line, cell) = (format!("%{name}"), format!("%%{name}"));
        assert!([vec![&*line], vec![&*cell], vec![&*line, &*cell]].iter().any(|forms| forms == magic.forms), "{name}");
        assert!(magic.usage().starts_with(magic.forms[0]), "{name}");
        assert!(magic.options.iter().all(|option| magic.usage().contains(option.name)), "{name}");
        assert!(help(name).is_some_and(|help| help.contains(&format!("Example\n  {}", magic.forms[0]))), "{name}");
    }
    assert!(table().is_sorted_by_key(|magic| magic.name()));
}

#[test]
fn lsmagic_lists_every_form() {
    expect![[r#"
        Line magics
          %bash         run a shell command or a script, and show what it writes at once
          %best         show the best trials of a study, and how to use them
          %cd           go to another folder, with cells, trials and the kernel
          %checkpoint   keep the variables as they are now
          %checkpoints  list the states that %undo and %restore can bring back
          %dep          add a crate in the newest version that this toolchain can build
          %device       show the device in use, or close it
          %devices      list the CPU, the cards and the TPU of this machine
          %doc          show the documentation of a name
          %env          list, show or set environment variables of cells, trials and cargo
          %export       write a study to a file that other programs read
          %gc           give memory that cells have freed back to the machine, and say how much that was
          %history      show the cells of this session
          %load         put a file into the cell, in place of what stands there
          %lsmagic      list the magics
          %memit        run a statement or a cell and say how much memory it takes at its peak
          %memory       show who holds how much memory, or limit what a cell may hold
          %opt          choose how far cells are optimised
          %plot         draw what a search has found
          %profile      show what the steps of a training spend their time on
          %reset        forget all variables, definitions and crates
          %restore      bring back the variables of a checkpoint
          %resume       go on with a study that was stopped, as it was begun
          %run          run a notebook or a file of Rust, as if it stood in this cell
          %space        show the search space of a study, as its trials have shown it
          %studies      list the studies of a folder
          %time         run a statement or a cell and say how long it took
          %timeit       run a statement or a cell many times and say how long one run takes
          %tpu_check    compile a program for a TPU that need not be there, and say whether it fits
          %tpu_connect  pick a TPU, else a card, else the CPU, and say why
          %trials       list the trials of a study, or show one
          %tune         search for the parameters with which a closure does best
          %undo         go back to the state before the last cells
          %who          list the variables by name
          %whos         list the variables with types, sizes and values

        Cell magics, on the first line of a cell
          %%bash       run a shell command or a script, and show what it writes at once
          %%html       show the cell as HTML
          %%latex      show the cell as LaTeX
          %%markdown   show the cell as Markdown
          %%memit      run a statement or a cell and say how much memory it takes at its peak
          %%profile    show what the steps of a training spend their time on
          %%time       run a statement or a cell and say how long it took
          %%timeit     run a statement or a cell many times and say how long one run takes
          %%tune       search for the parameters with which a closure does best
          %%writefile  write the cell to a file

        A question mark behind a name shows its help, as in %%tune?
    "#]]
    .assert_eq(&lsmagic());
}

#[test]
fn help_shows_usage_options_and_an_example() {
    expect![[r#"
        %tune status|wait|stop [--project NAME] [--directory FOLDER], or on the first line of a cell %%tune --objective NAME:max|min,… [--constraint NAME<=NUMBER,…] [--oracle NAME] [--pruner RULE] [--terminator RULE] [--max-trials N] [--executions N] [--fix NAME=VALUE,…] [--enqueue NAME=VALUE,…;…] [--tune-only NAME,…] [--from STUDY,…] [--seed N] [--project NAME] [--directory FOLDER] [--storage URL] [--heartbeat TIME] [--publish [URL]] [--on LAUNCHER] [--workers N] [--cpus N] [--gpus N] [--timeout TIME] [--trial-timeout TIME] [--memory SIZE] [--concurrency N] [--threads N] [--retries N] [--max-consecutive-failures N] [--keep-best N] [--worker-trials N] [--grace TIME] [--device-memory SIZE] [--device-wait TIME] [--mirror FOLDER] [--tensorboard FOLDER] [--profile N] [--debug-nans] [--background] [--continue] [--overwrite], and a closure |trial| { … } below

        search for the parameters with which a closure does best

        The cell is a closure that asks the trial for parameters, trains, and reports metrics. Each trial runs
        in a process of its own, and every fact is on disk the moment it is known: the same cell with the same
        --project goes on where it stopped. A TIME is 90s, 10m, 2h or 1d; a SIZE is 512MiB, 4GiB or 4GB.
        Of a search that runs, here or in another notebook, %tune status shows where it stands, %tune wait
        follows it to its end, and %tune stop stops it after the current step of each trial.
        A trial's value is the best report of the metric, the last or the mean with NAME:max:last or NAME:max:mean.
        With --storage several notebooks, programs and hosts work on one study at a time, and Optuna with them:
        all that have the same --project and --storage, each with a --directory of its own. With --on an engine
        runs the trials, as in --on slurm:partition=gpu --workers 16 --cpus 4 --memory 8GiB --gpus 1.
        Several objectives, as in --objective accuracy:max,size:min, are searched for their trade-offs.

        Settings of oracles, as in --oracle "hyperband:factor=4,iterations=2,min=1":
          hyperband, bohb, successive_halving  factor, min (epochs of the shortest trainings), iterations
          asha    factor, min (grace period), brackets
          pbt     population, interval, quantile, perturbation, resample, discrete=true
          pb2     population, interval, quantile
          tpe     startup, candidates, gamma
          cmaes   sigma0, population, separable=true
          gp      noise (0 to 1)
          nsga2   population
          nsga3   population, divisions
          grid    values of parameters, as in "grid:lr=0.001|0.01,units=32|64"

        Example
          %tune status --project digits

          %%tune --oracle hyperband --objective val_accuracy:max --max-trials 30 --project digits
          |trial| {
              let units = trial.int("units", 32..=512).step(32).get()?;
              let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
              let mut model = Mlp::new(units, trial.device()?)?;
              for epoch in trial.epochs(20) {
                  let accuracy = fit_one_epoch(&mut model, lr)?;
                  trial.report(epoch, [("val_accuracy", accuracy)])?;
              }
              trial.best("val_accuracy")
          }

        Options
          --objective NAME:max|min,…    the metrics to optimise and their directions; always needed
          --constraint NAME<=NUMBER,…   bounds of metrics, <= or >=, that a trial must keep to
          --oracle NAME                 how to search: auto, gp, tpe, cmaes, nsga2, nsga3, qmc, grid, random, hyperband, asha, bohb, …; settings below (default: auto)
          --pruner RULE                 give up trials that do badly: median, percentile, forecast, wilcoxon, patience or threshold
          --terminator RULE             end the search when no more is to be expected: stagnation or regret
          --max-trials N                how many trials to run (default: 10)
          --executions N                how often to run each trial, with other seeds; its value is the mean (default: 1)
          --fix NAME=VALUE,…            give parameters these values in every trial
          --enqueue NAME=VALUE,…;…      try these values first, a trial for each part between semicolons
          --tune-only NAME,…            tune these parameters; any other keeps its default, or its lowest value
          --from STUDY,…                learn from the trials of other studies, and try the best one of each first; a folder has a slash
          --seed N                      draw the same parameters on every run
          --project NAME                the study's name; without it the cell has a study of its own, named by a hash of the objective and how it is searched
          --directory FOLDER            the folder that holds the study (default: studies)
          --storage URL                 keep the study in this database, with Optuna's tables: postgresql://USER@HOST/DATABASE or sqlite:///FILE
          --heartbeat TIME              with --storage, how often other searches are told that this one lives (default: 30s)
          --publish [URL]               with --storage, give `ferrotune worker` on other hosts all that it runs: in the database, or below s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER
          --on LAUNCHER                 with --storage, have workers run the trials: local, slurm:partition=NAME, ray:http://HOST:8265 or kubernetes:image=NAME
          --workers N                   with --on, how many workers to place (default: 1)
          --cpus N                      with --on, processors of each worker
          --gpus N                      with --on, graphics processors of each worker
          --timeout TIME                end the search after this time
          --trial-timeout TIME          end a trial after this time
          --memory SIZE                 end a trial that takes more memory; with --on, the memory of each worker
          --concurrency N               trials that run side by side and share cores and memory (default: 1)
          --threads N                   threads of each trial; without it its share of the cores
          --retries N                   try a trial again that a signal ended, or that left without a result (default: 0)
          --max-consecutive-failures N  end the search after this many failures in a row
          --keep-best N                 how many trials keep their checkpoints (default: 3)
          --worker-trials N             on the file of a TPU's plugin, trials that one process runs before another one takes its place (default: 50)
          --grace TIME                  on the file of a TPU's plugin, how long a process may take to leave before it is killed (default: 20s)
          --device-memory SIZE          the memory of a shared card or TPU that a trial may use (default: an equal part of what is free)
          --device-wait TIME            on a TPU, how long to wait while another process uses it (default: 60s)
          --mirror FOLDER               copy the study to this folder as it grows, and go on from there
          --tensorboard FOLDER          write files for TensorBoard there while the search runs
          --profile N                   each trial records what its first N steps wait for; see %profile
          --debug-nans                  end a trial at the first operation that makes a NaN or an infinity, and name it
          --background                  give the notebook back at once; the search goes on without it
          --continue                    keep the trials so far although the objective's code has changed
          --overwrite                   delete an earlier study of that name first
    "#]].assert_eq(&help("%%tune").unwrap_or_default());
    assert_eq!(help("tune"), help("%%tune"));
    assert_eq!(help("nope"), None);
}

#[test]
fn completion_offers_magics_options_and_values() {
    let rows = [
        "%",
        "%%",
        "%t",
        "  %tu",
        "%%t",
        "%x",
        "%x --",
        "%%tune --m",
        "%%tune --seed 1 --or",
        "%%tune --seed",
        "%best 3 --p",
        "%%tune --oracle ",
        "%%tune --objective acc:max --oracle g",
        "%%tune --oracle=g",
        "%%tune --seed 1 ",
        "%tune st",
        "%plot ",
        "%plot --project d",
        "%plot --project digits ",
        "%export csv ",
        "%export csv out/ta",
        "%restore ",
        "%resume di",
        "%memory ",
        "%gc ",
        "%lsmagic t",
        "%time tensor.",
        "%%time",
        "%trials ",
    ];
    let shown = |row: &&str| match complete(row) {
        Completion { start, matches: Matches::Names(names) } => format!("{row}: {start} {}", names.join(" ")),
        Completion { start, matches } => format!("{row}: {start} {matches:?}"),
    };
    expect![[r#"
        %: 0 %%bash %%html %%latex %%markdown %%memit %%profile %%time %%timeit %%tune %%writefile %bash %best %cd %checkpoint %checkpoints %dep %device %devices %doc %env %export %gc %history %load %lsmagic %memit %memory %opt %plot %profile %reset %restore %resume %run %space %studies %time %timeit %tpu_check %tpu_connect %trials %tune %undo %who %whos
        %%: 0 %%bash %%html %%latex %%markdown %%memit %%profile %%time %%timeit %%tune %%writefile
        %t: 0 %time %timeit %tpu_check %tpu_connect %trials %tune
          %tu: 2 %tune
        %%t: 0 %%time %%timeit %%tune
        %x: 0 
        %x --: 5 
        %%tune --m: 7 --max-trials --memory --max-consecutive-failures --mirror
        %%tune --seed 1 --or: 16 --oracle
        %%tune --seed: 7 --seed
        %best 3 --p: 8 --project
        %%tune --oracle : 16 Of(Oracle)
        %%tune --objective acc:max --oracle g: 36 Of(Oracle)
        %%tune --oracle=g: 16 Of(Oracle)
        %%tune --seed 1 : 16 --objective --constraint --oracle --pruner --terminator --max-trials --executions --fix --enqueue --tune-only --from --project --directory --storage --heartbeat --publish --on --workers --cpus --gpus --timeout --trial-timeout --memory --concurrency --threads --retries --max-consecutive-failures --keep-best --worker-trials --grace --device-memory --device-wait --mirror --tensorboard --profile --debug-nans --background --continue --overwrite
        %tune st: 6 Of(Words(["status", "wait", "stop"]))
        %plot : 6 Of(Plot)
        %plot --project d: 16 Of(Study)
        %plot --project digits : 23 Of(Plot)
        %export csv : 12 Of(Path)
        %export csv out/ta: 12 Of(Path)
        %restore : 9 Of(Checkpoint)
        %resume di: 8 Of(Study)
        %memory : 8 Of(Words(["watch", "limit"]))
        %gc : 4 Of(Words(["all"]))
        %lsmagic t: 9 Of(Magic)
        %time tensor.: 6 Rust
        %%time: 0 %%time %%timeit
        %trials : 8 --sort --where --columns --limit --project --directory"#]].assert_eq(&rows.iter().map(shown).collect::<Vec<_>>().join("\n"));
}
