//! Tests of the errors of magics: each error is one line that names the mistake and shows the cure.

use expect_test::{Expect, expect};
use ferrotune_magics::parse;

const TUNE: &str = "%%tune --objective a:max";

/// The error as `line: text`, with the usage of `%%tune` shortened.
fn error(cell: &str) -> String {
    let error = parse(cell).expect_err(cell);
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    let long = ferrotune_magics::table().iter().find(|magic| magic.name() == "tune").map(|magic| magic.usage());
    format!("{}: {}", error.line, text.replace(&long.unwrap_or_default(), "USAGE"))
}

fn check(cells: &[&str], expected: Expect) {
    let lines: Vec<String> = cells.iter().map(|cell| error(cell)).collect();
    expected.assert_eq(&lines.join("\n"));
}

fn check_tune(options: &[&str], expected: Expect) {
    let lines: Vec<String> = options.iter().map(|options| error(&format!("{TUNE} {options}\n|trial| {{}}"))).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn characters_that_end_or_overwrite_a_line_are_shown_as_escapes() {
    check(&["%undo \u{0}\rx\u{1b}[2K"], expect![[r#"1: unexpected argument x\u{1b}[2K; usage: %undo [COUNT]"#]]);
}

#[test]
fn an_unknown_magic_is_answered_with_the_nearest() {
    check(
        &[
            "%tpu_conect",
            "let a = 1;\n\n  %Devices",
            "%tpu-connect",
            "%tun",
            "%%tunee --objective a:max\n1",
            "%timit 1",
            "%%timeti\n1",
            "%matplotlib inline",
            "%träume",
            "%nope?",
            "?%nope",
            "%lsmagic nope",
            "1;\n%%nope",
        ],
        expect![[r#"
            1: unknown magic %tpu_conect; did you mean %tpu_connect? %lsmagic lists them all
            3: unknown magic %Devices; did you mean %devices? %lsmagic lists them all
            1: unknown magic %tpu-connect; did you mean %tpu_connect? %lsmagic lists them all
            1: unknown magic %tun; did you mean %tune? %lsmagic lists them all
            1: unknown magic %%tunee; did you mean %%tune? %lsmagic lists them all
            1: unknown magic %timit; did you mean %timeit? %lsmagic lists them all
            1: unknown magic %%timeti; did you mean %%timeit? %lsmagic lists them all
            1: unknown magic %matplotlib; %lsmagic lists them all
            1: unknown magic %träume; %lsmagic lists them all
            1: unknown magic %nope; %lsmagic lists them all
            1: unknown magic %nope; %lsmagic lists them all
            1: unknown magic %nope; %lsmagic lists them all
            2: unknown magic %%nope; %lsmagic lists them all"#]],
    );
}

#[test]
fn a_magic_without_a_name_is_refused() {
    check(
        &["%", "%%", "%%%tune", "let a = 1;\n% device", "%1", "%?", "?%", "%%\nlet a = 1;"],
        expect![[r#"
            1: % needs a name right behind it, as in %device; %lsmagic lists them all
            1: %% needs a name right behind it, as in %device; %lsmagic lists them all
            1: %% needs a name right behind it, as in %device; %lsmagic lists them all
            2: % needs a name right behind it, as in %device; %lsmagic lists them all
            1: % needs a name right behind it, as in %device; %lsmagic lists them all
            1: % needs a name right behind it, as in %device; %lsmagic lists them all
            1: % needs a name right behind it, as in %device; %lsmagic lists them all
            1: %% needs a name right behind it, as in %device; %lsmagic lists them all"#]],
    );
}

#[test]
fn the_wrong_form_says_which_is_right() {
    check(
        &[
            "%tune --objective a:max",
            "%%device",
            "let a = 1;\n%%tune --objective a:max\n|trial| {}",
            "// note\n%%time\nf()",
            "let a = 1;\n%%best",
            "%%time\nlet a = 1;\n%device\n",
            "%%time\n%%tune",
        ],
        expect![[r#"
            1: %tune is a cell magic: write %%tune on the first line of a cell and its code below
            1: %%device is a line magic: write %device
            2: %%tune must be on the first line of its cell; move what stands above it to a cell of its own
            2: %%time must be on the first line of its cell; move what stands above it to a cell of its own
            2: %%best is a line magic: write %best
            3: %device cannot stand inside %%time; move it to a cell of its own
            2: %%tune cannot stand inside %%time; move it to a cell of its own"#]],
    );
}

#[test]
fn arguments_that_a_magic_has_no_place_for_are_refused() {
    check(
        &[
            "%device cpu",
            "%device;",
            "%trials 1 2",
            "%time? x",
            "%%time x\nf()",
            "%tpu_connect --requires",
            "%device -v",
            "%devices all",
            "%tpu_check --tpu v5e:2x2",
            "%tpu_check step.mlir",
            "%tpu_check --tpu v5e:2x2 step --trial 3",
            "%tpu_check --tpu v5e:2x2 step --project digits",
            "%tpu_connect --plugin libtpu.so --tpu local",
        ],
        expect![[r#"
            1: close cpu: %device takes `close`, --report, or nothing; usage: %device [close] [--report]
            1: unexpected argument ;; usage: %device [close] [--report]
            1: unexpected argument 2; usage: %trials [ID] [--sort COLUMN] [--where CONDITION] [--columns NAMES] [--limit N] [--project NAME] [--directory FOLDER]
            1: unexpected argument x; usage: %time STATEMENT, or %%time on the first line of a cell
            1: unexpected argument x; usage: %time STATEMENT, or %%time on the first line of a cell
            1: unknown option --requires; did you mean --require? usage: %tpu_connect [--tpu NAME|local] [--require] [--plugin cuda|rocm|oneapi|cpu|FILE] [--selftest]
            1: unknown option -v; usage: %device [close] [--report]
            1: unexpected argument all; usage: %devices
            1: %tpu_check needs STEP|FILE to compile; usage: %tpu_check --tpu TYPE [--project NAME] [--trial ID] [--directory FOLDER] [STEP|FILE]
            1: %tpu_check needs --tpu TYPE; usage: %tpu_check --tpu TYPE [--project NAME] [--trial ID] [--directory FOLDER] [STEP|FILE]
            1: --trial 3: says more of a study; name that with --project; usage: %tpu_check --tpu TYPE [--project NAME] [--trial ID] [--directory FOLDER] [STEP|FILE]
            1: STEP|FILE step: cannot be used with --project; usage: %tpu_check --tpu TYPE [--project NAME] [--trial ID] [--directory FOLDER] [STEP|FILE]
            1: --plugin libtpu.so: cannot be used with --tpu; usage: %tpu_connect [--tpu NAME|local] [--require] [--plugin cuda|rocm|oneapi|cpu|FILE] [--selftest]"#]],
    );
}

#[test]
fn a_bad_objective_shows_both_directions() {
    check(
        &[
            "%%tune\n|trial| {}",
            "%%tune --objective\n|trial| {}",
            "%%tune --objective --seed 1\n|trial| {}",
            "%%tune --objective val_accuracy\n|trial| {}",
            "%%tune --objective val_accuracy:biggest\n|trial| {}",
            "%%tune --objective val_accuracy:\n|trial| {}",
            "%%tune --objective :max\n|trial| {}",
            "%%tune --objective ''\n|trial| {}",
            "%%tune --objective a:max,b\n|trial| {}",
            "%%tune --objective a:max,\n|trial| {}",
            "%%tune --objective a:max:worst\n|trial| {}",
            "%%tune --objective a:max --objective b:min\n|trial| {}",
            "%%tune --objective a:max --constraint size\n|trial| {}",
            "%%tune --objective a:max --constraint size<=ten\n|trial| {}",
            "%%tune --objective a:max --constraint <=3\n|trial| {}",
            "%%tune --objective a:max --fix lr\n|trial| {}",
            "%%tune --objective a:max --enqueue lr=1;\n|trial| {}",
            "%%tune --objective a:max --tune-only lr,,b\n|trial| {}",
            "%%tune --objective a:max --executions 0\n|trial| {}",
            "%%tune --objective a:max --workers 4 --storage sqlite:///a.db\n|trial| {}",
            "%%tune --objective a:max --on slurm --workers 4\n|trial| {}",
            "%%tune --objective a:max --publish\n|trial| {}",
            "%%tune --objective a:max --storage sqlite:///a.db --publish https://host/folder\n|trial| {}",
            "%%tune --objective a:max --storage sqlite:///a.db --publish /folder\n|trial| {}",
        ],
        expect![[r#"
            1: %%tune needs --objective NAME:max|min,…; %tune? lists all options
            1: --objective needs a value: --objective NAME:max|min,…; %tune? lists all options
            1: --objective needs a value: --objective NAME:max|min,…; %tune? lists all options
            1: --objective val_accuracy: the direction is missing; write --objective val_accuracy:max or --objective val_accuracy:min; %tune? lists all options
            1: --objective val_accuracy:biggest: the direction is min or max, as in --objective val_accuracy:max; %tune? lists all options
            1: --objective val_accuracy:: the direction is min or max, as in --objective val_accuracy:max; %tune? lists all options
            1: --objective :max: the metric's name is missing, as in --objective val_accuracy:max; %tune? lists all options
            1: --objective "": give a value that is not blank; %tune? lists all options
            1: --objective a:max,b: the direction is missing; write --objective b:max or --objective b:min; %tune? lists all options
            1: --objective a:max,: the direction is missing; write --objective val_accuracy:max or --objective val_accuracy:min; %tune? lists all options
            1: --objective a:max:worst: worst is none of best, last and mean, as in --objective a:max:last; %tune? lists all options
            1: --objective is given twice; write all of it once, with commas between; %tune? lists all options
            1: --constraint size: a constraint is a metric and its bound, as in --constraint "latency<=10"; %tune? lists all options
            1: --constraint size<=ten: the bound "ten" is not a number; %tune? lists all options
            1: --constraint <=3: a constraint is a metric and its bound, as in --constraint "latency<=10"; %tune? lists all options
            1: --fix lr: "lr" is not a parameter and its value, as in lr=0.01; %tune? lists all options
            1: --enqueue lr=1;: "" is not a parameter and its value, as in lr=0.01; %tune? lists all options
            1: --tune-only lr,,b: a name is missing between the commas; %tune? lists all options
            1: --executions 0: give at least 1; %tune? lists all options
            1: --workers needs --on LAUNCHER; %tune? lists all options
            1: --on needs --storage URL; %tune? lists all options
            1: --publish needs --storage URL; %tune? lists all options
            1: --publish https://host/folder: no store; write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER, or leave it out for the study's database; %tune? lists all options
            1: --publish /folder: no store; write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER, or leave it out for the study's database; %tune? lists all options"#]],
    );
}

#[test]
fn a_bad_option_names_itself_and_the_usage() {
    check_tune(
        &[
            "--max-trials 0",
            "--max-trials ten",
            "--max-trials=-3",
            "--max-trials",
            "--max-trial 3",
            "--max-trials 99999999999999999999",
            "--seed +1",
            "--seed 1.5",
            "--seed 1 --seed 2",
            "--overwrite=yes",
            "--timeout soon",
            "--timeout 0",
            "--trial-timeout 1y",
            "--memory much",
            "--memory 0",
            "--memory 4XB",
            "--project ../up",
            "--project=",
            "--directory ' '",
            "--oracle \"random",
            "stray",
            "--",
        ],
        expect![[r#"
            1: --max-trials 0: give at least 1; %tune? lists all options
            1: --max-trials ten: not a whole number; %tune? lists all options
            1: --max-trials -3: not a whole number; %tune? lists all options
            1: --max-trials needs a value: --max-trials N; %tune? lists all options
            1: unknown option --max-trial; did you mean --max-trials? %tune? lists all options
            1: --max-trials 99999999999999999999: too large; %tune? lists all options
            1: --seed +1: not a whole number; %tune? lists all options
            1: --seed 1.5: not a whole number; %tune? lists all options
            1: --seed is given twice; keep one; %tune? lists all options
            1: --overwrite takes no value, but got yes; %tune? lists all options
            1: --timeout soon: not a duration; write it as 90s, 10m, 2h or 1d; %tune? lists all options
            1: --timeout 0: give more than 0; %tune? lists all options
            1: --trial-timeout 1y: not a duration; write it as 90s, 10m, 2h or 1d; %tune? lists all options
            1: --memory much: not a size; write it as 512MiB, 4GiB, 4GB or a number of bytes; %tune? lists all options
            1: --memory 0: give more than 0; %tune? lists all options
            1: --memory 4XB: not a size; write it as 512MiB, 4GiB, 4GB or a number of bytes; %tune? lists all options
            1: --project ../up: a project is a name, not a path; the folder above it is --directory; %tune? lists all options
            1: --project "": give a value that is not blank; %tune? lists all options
            1: --directory " ": give a value that is not blank; %tune? lists all options
            1: the quote " has no end; %tune? lists all options
            1: unexpected argument stray; %tune? lists all options
            1: unknown option --; %tune? lists all options"#]],
    );
}

#[test]
fn something_to_run_is_needed() {
    check(
        &[
            TUNE,
            "%%tune --objective a:max\n\n  // later\n",
            "%%time",
            "%%time\n\n",
            "%time",
            "%time  // later",
            "%time for i in 0..3 {",
        ],
        expect![[r#"
            1: %%tune has nothing to run; %tune? lists all options
            1: %%tune has nothing to run; %tune? lists all options
            1: %%time has nothing to run; usage: %time STATEMENT, or %%time on the first line of a cell
            1: %%time has nothing to run; usage: %time STATEMENT, or %%time on the first line of a cell
            1: %time has nothing to run; usage: %time STATEMENT, or %%time on the first line of a cell
            1: %time has nothing to run; usage: %time STATEMENT, or %%time on the first line of a cell
            1: the statement of %time goes on below its line; write %%time on the first line of a cell for several lines"#]],
    );
}

#[test]
fn counts_and_ids_are_whole_numbers() {
    check(
        &["%best 0", "%best many", "%trials first"],
        expect![[r#"
            1: COUNT 0: give at least 1; usage: %best [COUNT] [--insert] [--project NAME] [--directory FOLDER]
            1: COUNT many: not a whole number; usage: %best [COUNT] [--insert] [--project NAME] [--directory FOLDER]
            1: ID first: not a whole number; usage: %trials [ID] [--sort COLUMN] [--where CONDITION] [--columns NAMES] [--limit N] [--project NAME] [--directory FOLDER]"#]],
    );
}

#[test]
fn a_shell_command_needs_something_to_run_and_its_own_cell() {
    check(
        &["!", "let a = 1;\n  ! ", "%bash", "%%bash\n \n", "%%bash -e\nls", "%%time\n!ls", "%time !ls"],
        expect![[r#"
            1: ! has nothing to run; usage: !COMMAND
            2: ! has nothing to run; usage: !COMMAND
            1: %bash has nothing to run; usage: %bash COMMAND, or %%bash on the first line of a cell
            1: %%bash has nothing to run; usage: %bash COMMAND, or %%bash on the first line of a cell
            1: unexpected argument -e; usage: %bash COMMAND, or %%bash on the first line of a cell
            2: !ls cannot stand inside %%time; move it to a cell of its own
            1: !ls cannot stand inside %time; move it to a cell of its own"#]],
    );
}

#[test]
fn timing_says_what_is_wrong_with_its_rust_and_its_counts() {
    check(
        &[
            "%timeit",
            "%timeit -n 5",
            "%timeit -n 0 1",
            "%timeit -n5 -n6 1",
            "%timeit --nmber 5 1",
            "%timeit f(",
            "%%timeit",
            "%%timeit f(\n1",
            "%%timeit\n%device",
            "%timeit(1)",
        ],
        expect![[r#"
            1: %timeit has nothing to run; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: %timeit has nothing to run; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: -n 0: give at least 1; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: -n is given twice; keep one; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: unknown option --nmber; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: the statement of %timeit goes on below its line; write %%timeit on the first line of a cell for several lines
            1: %%timeit has nothing to run; usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell
            1: the statement of %timeit goes on below its line; write %%timeit on the first line of a cell for several lines
            2: %device cannot stand inside %%timeit; move it to a cell of its own
            1: unexpected argument (1); usage: %timeit [-n N] [-r N] STATEMENT, or %%timeit [-n N] [-r N] [SETUP] on the first line of a cell"#]],
    );
}

#[test]
fn magics_of_files_name_what_is_missing() {
    check(
        &[
            "%writefile a",
            "%%writefile\n1",
            "%%writefile a b\n1",
            "%%writefile --append a\n1",
            "1;\n%%html",
            "%%html x\n1",
            "%load",
            "%load a -r 0",
            "%load a -r 3-2",
            "%load a -r x",
            "%%load a",
        ],
        expect![[r#"
            1: %writefile is a cell magic: write %%writefile on the first line of a cell and its code below
            1: %%writefile needs PATH of the file; usage: %%writefile [-a] PATH on the first line of a cell, and the text below
            1: unexpected argument b; usage: %%writefile [-a] PATH on the first line of a cell, and the text below
            1: unknown option --append; usage: %%writefile [-a] PATH on the first line of a cell, and the text below
            2: %%html must be on the first line of its cell; move what stands above it to a cell of its own
            1: unexpected argument x; usage: %%html on the first line of a cell, and HTML below
            1: %load needs PATH of the file; usage: %load PATH [-r FIRST-LAST]
            1: -r 0: "0" is no number from 1: give at least 1; usage: %load PATH [-r FIRST-LAST]
            1: -r 3-2: the last number is below the first; usage: %load PATH [-r FIRST-LAST]
            1: -r x: "x" is no number from 1: not a whole number; usage: %load PATH [-r FIRST-LAST]
            1: %%load is a line magic: write %load"#]],
    );
}

#[test]
fn magics_of_the_session_say_what_they_take() {
    check(
        &[
            "%run",
            "%run a.rs b.rs",
            "%history 3-1",
            "%history x",
            "%history --numbered",
            "%reset all",
            "%dep",
            "%dep a/b",
            "%dep serde --featurs derive",
            "%opt",
            "%opt 4",
            "%doc",
            "%opt 2\n%rest",
        ],
        expect![[r#"
            1: %run needs PATH of a notebook or of a file of Rust; usage: %run PATH
            1: unexpected argument b.rs; usage: %run PATH
            1: FIRST-LAST 3-1: the last number is below the first; usage: %history [FIRST-LAST] [-n] [-f FILE]
            1: FIRST-LAST x: "x" is no number from 1: not a whole number; usage: %history [FIRST-LAST] [-n] [-f FILE]
            1: unknown option --numbered; usage: %history [FIRST-LAST] [-n] [-f FILE]
            1: unexpected argument all; usage: %reset [-f]
            1: %dep needs NAME of the crate; usage: %dep NAME[@VERSION] [--features NAME,…]
            1: NAME a/b: write the crate's name, as in %dep serde or %dep serde@1.0; usage: %dep NAME[@VERSION] [--features NAME,…]
            1: unknown option --featurs; did you mean --features? usage: %dep NAME[@VERSION] [--features NAME,…]
            1: %opt needs LEVEL of optimisation, from 0 to 3; usage: %opt 0|1|2|3
            1: LEVEL 4: choose 0, 1, 2 or 3; usage: %opt 0|1|2|3
            1: %doc needs NAME of what is documented; usage: %doc NAME
            2: unknown magic %rest; did you mean %restore? %lsmagic lists them all"#]],
    );
}
