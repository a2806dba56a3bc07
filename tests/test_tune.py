"""`%%tune` from end to end: searches, trials that end badly, and bad input, each with one clear error."""

import json
import pathlib
import re
import shutil

import pytest

from session import is_alive


def tune(body, options="--objective loss:min --max-trials 2 --seed 1", project=None, more=""):
    """The cell of a search whose objective asks for `x` and then runs `body`."""
    project = f" --project {project}" if project else ""
    return f"""%%tune {options}{project} {more}
|trial| {{
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    {body}
}}"""


def study(kernel, project):
    return kernel.folder / "studies" / project


def table(text):
    """Rows of a table of %trials or %best by column name, without the text below the table."""
    lines = text.split("\n\n")[0].splitlines()
    width = max(map(len, lines))
    # At least two places between columns are blank in every line.
    filled = "".join(" " if set(place) == {" "} else "#" for place in zip(*(line.ljust(width) for line in lines)))
    columns = [slice(*column.span()) for column in re.finditer("#+(?: #+)*", filled)]
    names, *rows = [[line[column].strip() for column in columns] for line in lines]
    return [dict(zip(names, row)) for row in rows]


def trials(kernel, project):
    return table(kernel.ok(f"%trials --project {project}").display)


# Searches


def test_search_finds_the_best_trial_and_shows_its_progress(kernel):
    outcome = kernel.ok(tune("Ok((x - 0.3).powi(2))", "--objective loss:min --max-trials 30 --seed 4", "parabola"))
    assert outcome.stderr == ""
    assert outcome.display.startswith("parabola: 30/30 trials")
    # 590 kB where a cell compiles what runs trials, too.
    assert (study(kernel, "parabola") / "objective.so").stat().st_size < 200_000
    assert "best: loss = " in outcome.display
    rows = trials(kernel, "parabola")
    assert [row["trial"] for row in rows] == [str(number) for number in range(30)]
    assert {row["ending"] for row in rows} == {"finished"}
    (best,) = table(kernel.ok("%best").display)
    assert abs(float(best["x"]) - 0.3) < 0.1
    assert float(best["loss"]) == min(float(row["loss"]) for row in rows)


def test_several_executions_have_a_mean_and_a_spread_and_fixed_values_stay(kernel):
    body = 'let n: i64 = trial.int("n", 1..=9).get()?; Ok(n as f64 + trial.execution() as f64)'
    options = "--objective loss:min --max-trials 2 --seed 1 --executions 3 --fix n=4 --tune-only x"
    outcome = kernel.ok(tune(body, options, "executions"))
    assert "best: loss = 5 ± 1 in trial " in outcome.display, outcome.display
    assert [(row["loss"], row["n"]) for row in trials(kernel, "executions")] == [("5", "4")] * 2
    for option, words in [("--oracle asha --executions 2", "--executions 2 runs whole trainings"), ("--oracle pbt", "compares")]:
        more = ",size:min" if words == "compares" else ""
        outcome = kernel.fails(tune("Ok(x)", f"--objective loss:min{more} {option}", "refused"))
        assert words in outcome.error, outcome.error
    assert not study(kernel, "refused").exists()


def test_same_seed_draws_the_same_parameters(kernel):
    values = []
    for project in ("seed-a", "seed-b"):
        kernel.ok(tune("Ok(x)", "--objective loss:min --max-trials 4 --seed 11", project))
        values.append([row["x"] for row in trials(kernel, project)])
    assert values[0] == values[1]
    assert len(set(values[0])) == 4


def test_search_learns_from_another_study_and_writes_nothing_there(kernel):
    kernel.ok(tune("Ok((x - 0.3).powi(2))", "--objective loss:min --max-trials 12 --seed 4", "before"))
    journal = (study(kernel, "before") / "journal.log").read_bytes()
    kernel.ok(tune("Ok((x - 0.3).powi(2))", "--objective loss:min --max-trials 3 --seed 5 --from before", "after"))
    (best,) = table(kernel.ok("%best --project before").display)
    first, *others = trials(kernel, "after")
    assert first["x"] == best["x"] and len(others) == 2
    assert (study(kernel, "before") / "journal.log").read_bytes() == journal
    outcome = kernel.fails(tune("Ok(x)", "--objective accuracy:max --from before", "misfit"))
    assert "--from before: it optimises loss:min, not accuracy:max" in outcome.error, outcome.error
    assert not study(kernel, "misfit").exists()


def test_captured_variables_arrive_as_they_were(kernel):
    kernel.ok("use candle_core::{Device, Tensor};")
    kernel.ok("let numbers = Tensor::new(&[[1f32, 2.0], [3.0, 4.0]], &Device::Cpu)?;")
    kernel.ok('let (factor, names) = (0.5f64, vec!["one".to_string(), "two".to_string()]);')
    kernel.ok(tune("Ok(numbers.sum_all()?.to_scalar::<f32>()? as f64 * factor + names.join(\"\").len() as f64)", project="captured"))
    assert {row["loss"] for row in trials(kernel, "captured")} == {"11"}
    # The variables still exist in the notebook.
    assert kernel.ok("names.len()").result == "2"


def test_same_project_goes_on_where_it_stopped(kernel):
    kernel.ok(tune("Ok(x)", "--objective loss:min --max-trials 3 --seed 5", "continued"))
    before = trials(kernel, "continued")
    outcome = kernel.ok(tune("Ok(x)", "--objective loss:min --max-trials 5 --seed 5", "continued"))
    assert "3 earlier trials" in outcome.stdout
    after = trials(kernel, "continued")
    assert len(after) == 5 and after[:3] == before
    # Nothing is left to do: what the study holds is shown.
    best = next(line for line in outcome.display.splitlines() if line.startswith("best: loss = "))
    again = kernel.ok(tune("Ok(x)", "--objective loss:min --max-trials 5 --seed 5", "continued"))
    resumed = kernel.ok("%resume continued")
    assert trials(kernel, "continued") == after
    status = kernel.ok("%tune status --project continued")
    for outcome in (again, resumed, status):
        headline, *lines = outcome.display.splitlines()
        assert re.fullmatch(r"continued: 5/5 trials, which took \d+\.\d s together, done", headline), headline
        assert best in lines, lines
    (study(kernel, "continued") / "status.json").unlink()
    assert "5/5 trials" in kernel.ok("%tune status").display


def test_display_shows_the_compilation_and_then_the_running_trial(kernel):
    body = """for epoch in trial.epochs(8) {
        std::thread::sleep(std::time::Duration::from_millis(300));
        trial.report(epoch, [("loss", x)])?;
    }
    trial.best("loss")"""
    shown = []

    def watch(message):
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append((message["msg_type"], message["content"]))

    outcome = kernel.run(tune(body, "--objective loss:min --max-trials 1 --seed 2", "early"), watch)
    assert outcome.error is None, outcome
    assert [kind for kind, _ in shown] == ["display_data"] + ["update_display_data"] * (len(shown) - 1)
    assert len({content["transient"]["display_id"] for _, content in shown}) == 1
    assert shown[0][1]["data"]["text/plain"].startswith("early: compiling the objective")
    running = r"early: 0/1 trials, [\d.]+ s\ntrial 0, epoch [1-7]/8, loss=0\.\d+, [\d.]+ .iB \(x=0\.\d+\)"
    assert any(re.fullmatch(running, display) for display in outcome.displays), outcome.displays
    assert not any("compiling" in display for display in outcome.displays[1:]), outcome.displays


def test_cell_that_does_not_compile_says_that_its_search_did_not_begin(kernel):
    outcome = kernel.run(tune("Ok(no_such_name)", project="broken"))
    assert "no_such_name" in outcome.error, outcome
    assert outcome.displays[-1] == "broken: did not begin", outcome.displays


def test_study_can_be_read_by_a_later_kernel(kernel, start):
    kernel.ok(tune("Ok(x)", project="later"))
    session = start(folder=kernel.folder)
    assert trials(session, "later") == trials(kernel, "later")


def test_interrupted_search_goes_on_later(kernel):
    body = """trial.report(0, [("loss", x)])?;
    if trial.number() == 1 && !std::path::Path::new("go-on").exists() {
        for epoch in 1.. {
            std::thread::sleep(std::time::Duration::from_millis(20));
            trial.report(epoch, [("loss", x)])?;
        }
    }
    Ok(x)"""
    cell = tune(body, "--objective loss:min --max-trials 3 --seed 2", "interrupted")
    has_one = lambda message: "1/3 trials" in message["content"].get("data", {}).get("text/plain", "")
    outcome = kernel.interrupt(cell, has_one)
    assert outcome.error.startswith("Interrupted: "), outcome
    assert len(trials(kernel, "interrupted")) == 2
    (kernel.folder / "go-on").touch()
    kernel.ok(cell)
    assert [row["ending"] for row in trials(kernel, "interrupted")] == 3 * ["finished"]


# Processes


def test_worker_is_started_by_the_supervisor_and_no_fork_of_the_cells(kernel):
    body = """let parent = std::os::unix::process::parent_id();
    let facts = [
        std::fs::read_link("/proc/self/exe")?.display().to_string(),
        std::fs::read_to_string("/proc/self/cmdline")?.replace('\\0', " "),
        std::fs::read_link(format!("/proc/{parent}/exe"))?.display().to_string(),
        std::fs::read_to_string(format!("/proc/{parent}/cmdline"))?.replace('\\0', " "),
        std::process::id().to_string(),
        parent.to_string(),
    ];
    std::fs::write(trial.folder().join("facts"), facts.join("\\n"))?;
    Ok(x)"""
    kernel.ok(tune(body, project="processes"))
    cells_pid = kernel.ok("std::process::id()").result
    for number in range(2):
        facts = (study(kernel, "processes") / f"trials/{number}/facts").read_text().splitlines()
        exe, command, parent_exe, parent_command, pid, parent = facts
        assert pathlib.Path(exe).name == "ferrotune" == pathlib.Path(parent_exe).name
        assert command.split()[1] == "trial"
        assert parent_command.split()[1] == "supervise"
        assert cells_pid not in (pid, parent)
        assert not is_alive(int(pid)) and not is_alive(int(parent))


def test_trials_that_end_badly_are_recorded_and_the_search_goes_on(kernel):
    body = """match trial.number() {
        1 => panic!("boom"),
        2 => std::process::abort(),
        3 => std::process::exit(3),
        4 => loop { std::thread::sleep(std::time::Duration::from_secs(1)) },
        5 => unsafe { (8 as *mut u8).write_volatile(1) },
        6 => std::fs::write("/dev/null/nowhere", "")?,
        7 => { std::hint::black_box(vec![1u8; 3 << 30]); }
        _ => {}
    }
    Ok(x)"""
    options = "--objective loss:min --max-trials 9 --seed 3 --trial-timeout 3s --memory 1GiB"
    outcome = kernel.ok(tune(body, options, "crashes"))
    assert "9/9 trials, 7 failed" in outcome.display, outcome.display
    rows = trials(kernel, "crashes")
    endings = [row["ending"] for row in rows]
    assert endings[0] == endings[8] == "finished"
    assert endings[1].startswith("panicked: boom")
    assert endings[2] == "killed by SIGABRT"
    assert endings[3].startswith("exited with 3")
    assert endings[4] == "timed out after 3 s"
    assert endings[5] == "killed by SIGSEGV"
    assert "Not a directory" in endings[6]
    assert endings[7].startswith("out of memory"), endings[7]
    assert len({row["x"] for row in rows}) == 9
    assert kernel.ok("1 + 1").result == "2"


@pytest.mark.parametrize(
    "first, options, ending",
    [
        ("return Ok((f64::NAN, x));", "--objective loss:min,size:min", "returned NaN for the objective 'loss'"),
        ("return Ok((x, f64::NEG_INFINITY));", "--objective loss:min,size:min --concurrency 2", "returned -inf for the objective 'size'"),
        ("return Ok(f64::INFINITY);", "--objective loss:min --executions 3", "returned inf"),
        ('trial.report(0, [("acc", 0.5)])?; return Ok(f64::NAN);', "--objective loss:min", "returned NaN"),
        ('trial.report(0, [("loss", f64::NAN)])?; return Ok(trial.best("loss")?);', "--objective loss:min", "has no finite value"),
    ],
)
def test_a_first_trial_that_diverges_costs_itself_alone(kernel, first, options, ending):
    rest = "(x, x)" if "size" in options else "x"
    body = f"if trial.number() == 0 {{ {first} }}\n    Ok({rest})"
    outcome = kernel.ok(tune(body, f"{options} --max-trials 4 --seed 1"))
    assert "4/4 trials, 1 failed" in outcome.display, outcome.display
    rows = table(kernel.ok("%trials").display)
    assert ending in rows[0]["ending"] and [row["ending"] for row in rows[1:]] == ["finished"] * 3, rows


def test_what_a_trial_printed_is_with_the_trial(kernel):
    kernel.ok(tune('println!("x is {x}"); Ok(x)', project="printed"))
    assert "output:\nx is 0." in kernel.ok("%trials 1 --project printed").display


# Bad input


def test_type_error_in_the_objective_points_at_the_users_line_and_column(kernel):
    outcome = kernel.fails(tune("let y: usize = x;\n    Ok(y as f64)"))
    assert outcome.error.startswith("CompilationError: "), outcome.error
    assert "mismatched types" in outcome.error and "(line 4, column 20)" in outcome.error, outcome.error
    assert "let y: usize = x;" in outcome.traceback


def test_objective_that_is_never_reported_is_named(kernel):
    body = 'trial.report(0, [("accuracy", x)])?;\n    Ok(())'
    outcome = kernel.fails(tune(body, project="never"))
    assert outcome.error.startswith("TuneError: the objective 'loss' was never reported"), outcome.error
    assert "accuracy" in outcome.error and "--objective" in outcome.error


def test_empty_search_space_is_named(kernel):
    outcome = kernel.fails("%%tune --objective loss:min --project empty\n|trial| Ok(0.5)")
    assert outcome.error.startswith("TuneError: the search space is empty"), outcome.error


@pytest.mark.parametrize(
    "line, words",
    [
        ("--objective loss:min --max-trials 0", ["--max-trials 0", "at least 1", "%tune? lists all options"]),
        ("--objective loss", ["--objective loss", "%tune? lists all options"]),
        ("", ["--objective", "%tune? lists all options"]),
        ("--objective loss:min --oracel random", ["--oracel", "--oracle"]),
        ("--objective loss:min --oracle bayesian", ["bayesian", "random", "hyperband"]),
    ],
)
def test_bad_option_of_tune_is_named(kernel, line, words):
    outcome = kernel.fails(tune("Ok(x)", line, project="options"))
    assert all(word in outcome.error for word in words), outcome.error
    assert not study(kernel, "options").exists()


def test_folder_that_cannot_be_written_is_named(kernel):
    (kernel.folder / "file").write_text("")
    outcome = kernel.fails(tune("Ok(x)", more="--directory file/studies", project="nowhere"))
    assert "file/studies/nowhere cannot be written" in outcome.error, outcome.error
    assert "--directory" in outcome.error


def test_study_of_a_newer_version_is_left_alone(kernel):
    kernel.ok(tune("Ok(x)", project="newer"))
    journal = study(kernel, "newer") / "journal.log"
    newer = {"op_code": 2, "worker_id": "somebody-else", "study_id": 0, "user_attr": {"ferrotune:journal": 99}}
    text = journal.read_text() + json.dumps(newer) + "\n"
    journal.write_text(text)
    for cell in (tune("Ok(x)", project="newer"), "%trials --project newer"):
        outcome = kernel.fails(cell)
        assert "journal version 99" in outcome.error and "update ferrotune" in outcome.error, outcome.error
    assert journal.read_text() == text


def test_study_that_is_not_there_is_named(kernel):
    outcome = kernel.fails("%best --project nothing-here")
    assert "nothing-here" in outcome.error and "%%tune" in outcome.error, outcome.error


def test_captured_variable_that_cannot_travel_is_named(kernel):
    kernel.ok('let file = std::fs::File::open("/dev/null")?;')
    outcome = kernel.fails(tune("let _ = &file;\n    Ok(x)", project="stuck"))
    assert "`file`" in outcome.error, outcome.error
    assert "cannot travel" in outcome.traceback
    assert not study(kernel, "stuck").exists()


STRUCT = "#[derive(Debug)] struct {name} {{ rates: Vec<f64>, title: String }}"
FIELDS = "{name} {{ rates, title }}"
SPELLINGS = {
    "Same": [STRUCT + "\nferrotune::share_fields!(" + FIELDS + ");"],
    "Later": [STRUCT, "ferrotune::share_fields!(" + FIELDS + ");"],
    "Braces": [STRUCT + "\nferrotune::share_fields! {{ " + FIELDS + " }}"],
    "Public": ["pub " + STRUCT.replace("rates", "pub rates").replace("#[derive(Debug)] ", ""), "ferrotune::share_fields![" + FIELDS + "]"],
    "Imported": ["use ferrotune::share_fields;\n" + STRUCT + " share_fields!(\n    " + FIELDS + "\n);\nlet unrelated = 1;"],
    "Before": ["ferrotune::share_fields!(" + FIELDS + ");\n" + STRUCT + "\nimpl {name} {{ fn first(&self) -> f64 {{ self.rates[0] }} }}"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_struct_with_shared_fields_travels_however_that_is_written(kernel, name):
    for cell in SPELLINGS[name]:
        kernel.ok(cell.format(name=name))
    kernel.ok(f'let given = {name} {{ rates: vec![0.25, 0.5], title: "two".to_owned() }};')
    body = "Ok(given.rates[1] + given.title.len() as f64)"
    kernel.ok(tune(body, project=f"shared-{name}"))
    assert [row["loss"] for row in trials(kernel, f"shared-{name}")] == ["3.5", "3.5"]
    assert kernel.ok("given.rates.len()").result == "2"


def test_shared_struct_is_undone_and_defined_anew_like_any_other(start):
    kernel = start()
    cell = "struct Point { x: f64 }\nferrotune::share_fields!(Point { x });\nlet point = Point { x: 2.0 };"
    for _ in range(2):
        kernel.ok(cell)
    kernel.ok("let y = 3.0;")
    kernel.ok("%undo")
    kernel.ok(tune("Ok(point.x)", project="undone"))
    assert [row["loss"] for row in trials(kernel, "undone")] == ["2", "2"]
    kernel.ok("struct Point { y: i32, z: i32 }\nlet point = Point { y: 1, z: 2 };")
    outcome = kernel.fails(tune("Ok(point.y as f64)", project="redefined"))
    assert outcome.error.startswith("CompilationError: variable `point`: "), outcome.error
    kernel.ok("ferrotune::share_fields!(Point { y, z });")
    kernel.ok(tune("Ok(point.z as f64)", project="redefined"))


def test_compiler_says_how_a_struct_travels_and_what_an_objective_returns(kernel):
    kernel.ok("struct Kept { at: f64 }\nlet kept = Kept { at: 0.5 };")
    outcome = kernel.fails(tune("Ok(kept.at)", project="kept"))
    assert outcome.error.startswith("CompilationError: variable `kept`: "), outcome.error
    assert "the variable of type `Kept` cannot travel to a trial" in outcome.traceback
    # The macro call in the note works.
    (spelling,) = set(re.findall(r"note: for a struct of your own: `(.*?)`", outcome.traceback))
    kernel.ok(spelling.replace("field, other_field", "at"))
    kernel.ok(tune("Ok(kept.at)", project="kept"))
    outcome = kernel.fails(tune('Ok("text")', project="text"))
    assert "an objective cannot return `&str`" in outcome.error, outcome.error
    assert "note: return `Ok(value)` with an f64 or f32, " in outcome.traceback, outcome.traceback
    assert "this error originates" not in outcome.traceback


def test_wrong_field_of_a_shared_struct_is_placed_in_the_cell(kernel):
    kernel.ok("struct Wrong { at: f64 }")
    outcome = kernel.fails("ferrotune::share_fields!(Wrong { ta });")
    assert "(line 1, column 34)" in outcome.error, outcome.error
    assert "   1 | ferrotune::share_fields!(Wrong { ta });" in outcome.traceback, outcome.traceback
    assert "ferrotune_share" not in outcome.traceback, outcome.traceback


@pytest.mark.parametrize(
    "cell, words",
    [
        ("%tpu_conect", ["MagicError", "%tpu_conect", "did you mean %tpu_connect?"]),
        ("%%tun --objective loss:min\n|trial| Ok(1.0)", ["MagicError", "did you mean %%tune?"]),
        ("let a: i32 = \"text\";", ["CompilationError", "mismatched types", "line 1, column 14"]),
        ("let a = 1;\n\nno_such_function();", ["CompilationError", "no_such_function", "line 3, column 1"]),
    ],
)
def test_cell_that_cannot_run_is_one_error(kernel, cell, words):
    outcome = kernel.fails(cell)
    assert all(word in outcome.error for word in words), outcome.error


def test_damaged_journal_is_named_with_its_line(kernel):
    kernel.ok(tune("Ok(x)", project="damaged"))
    journal = study(kernel, "damaged") / "journal.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b'"op_code":4', b'"op_code":5', 1))
    outcome = kernel.fails("%trials --project damaged")
    assert "is damaged" in outcome.error and "line " in outcome.error, outcome.error
    journal.write_bytes(whole)
    assert len(trials(kernel, "damaged")) == 2


def test_study_can_be_moved(kernel):
    kernel.ok(tune("Ok(x)", project="moved"))
    before = trials(kernel, "moved")
    (kernel.folder / "elsewhere").mkdir()
    shutil.move(study(kernel, "moved"), kernel.folder / "elsewhere/moved")
    assert table(kernel.ok("%trials --project moved --directory elsewhere").display) == before
