"""A study's results are those of the code that is shown: an objective that has changed is named, and a cell has its own study."""

import re

from test_tune import study, table, tune

OPTIONS = "--objective loss:min --max-trials 2 --seed 1"
CHANGED = "the objective has changed since trial 1; --overwrite begins anew, --continue keeps the trials so far"


def test_an_objective_that_has_changed_is_named_before_anything_runs(kernel):
    kernel.ok(tune("Ok(x)", OPTIONS, "changed"))
    # Comments and spaces are no change, nor is a search that goes on longer.
    kernel.ok(tune("// The same.\n    Ok( x )", "--objective loss:min --max-trials 3 --seed 1", "changed"))
    outcome = kernel.fails(tune("Ok(x + 1.)", OPTIONS, "changed"))
    assert CHANGED.replace("trial 1", "trial 2") in outcome.error, outcome.error
    assert len(table(kernel.ok("%trials --project changed").display)) == 3
    kept = kernel.ok(tune("Ok(x + 1.)", "--objective loss:min --max-trials 5 --seed 1 --continue", "changed"))
    assert "5/5 trials" in kept.display, kept.display
    # What was kept once is the study's own code now.
    kernel.ok(tune("Ok(x + 1.)", "--objective loss:min --max-trials 6 --seed 1", "changed"))
    anew = kernel.ok(tune("Ok(x + 2.)", f"{OPTIONS} --overwrite", "changed"))
    assert "2/2 trials" in anew.display, anew.display


def test_a_function_of_another_cell_is_a_part_of_the_objective(kernel):
    kernel.ok("fn helper(x: f64) -> f64 { x * 2. }\nfn measured(x: f64) -> f64 { helper(x) }\nfn unused() -> u8 { 1 }")
    cell = tune("Ok(measured(x))", OPTIONS, "functions")
    kernel.ok(cell)
    kernel.ok("fn unused() -> u8 { 2 }")
    assert "2/2 trials" in kernel.ok(cell).display
    kernel.ok("fn helper(x: f64) -> f64 { x * 3. }")
    assert CHANGED in kernel.fails(cell).error
    # The function as it was, though written in another way.
    kernel.ok("fn helper(x: f64) -> f64 {\n    // Twice.\n    x * 2.\n}")
    kernel.ok(cell)


def test_trials_without_a_result_hold_no_change_up(kernel):
    """The usual mistake: all trials fail, and the cell is mended and run again."""
    kernel.fails(tune('return Err("not yet".into());', "--objective loss:min --max-trials 5 --seed 1", "mended"))
    outcome = kernel.ok(tune("Ok(x)", "--objective loss:min --max-trials 5 --seed 1", "mended"))
    assert "5/5 trials" in outcome.display, outcome.display


def test_cells_without_a_project_have_studies_of_their_own(kernel):
    def project(cell):
        display = kernel.ok(cell).display
        return re.match(r"(untitled_[0-9a-f]{8}): 2/2 trials", display)[1]

    first = project(tune("Ok(x * 3.)", OPTIONS))
    assert project(tune("Ok(x * 3.)", OPTIONS)) == first
    others = {project(tune("Ok(x * 4.)", OPTIONS)), project(tune("Ok(x * 3.)", f"{OPTIONS} --oracle random"))}
    assert len(others | {first}) == 3
    assert all((study(kernel, name) / "journal.log").is_file() for name in others | {first})
    assert f"trial 1 of {sorted(others)[0]}" in kernel.ok(f"%trials 1 --project {sorted(others)[0]}").display


STALLING = """let weights = Tensor::new(&[x as f32], &Device::Cpu)?;
    for epoch in trial.epochs(20) {
        let loss = x + (epoch as f64 - 2.).abs();
        trial.report(epoch, [("loss", loss)])?;
        if epoch % 3 == 1 { trial.checkpoint(&weights)?; }
    }
    trial.best("loss")"""


def test_early_stopping_finishes_a_trial_with_its_best_value(kernel):
    kernel.ok("use candle_core::{Device, Tensor};")
    kernel.ok(tune(STALLING, "--objective loss:min --max-trials 4 --seed 1 --pruner patience:steps=3", "early"))
    rows = table(kernel.ok("%trials --project early").display)
    assert [row["ending"] for row in rows] == ["finished"] * 4
    # The best step is 2, and 5 is the last one.
    assert all(abs(float(row["loss"]) - float(row["x"])) < 1e-3 for row in rows), rows
    best = kernel.ok("%best --project early").display
    # Steps 1 and 4 have checkpoints.
    assert "(of step 1, where loss was " in best and "no checkpoint has the weights that gave the trial's value)" in best, best


def test_pruned_trials_are_the_second_choice(kernel):
    kernel.ok("use candle_core::{Device, Tensor};")
    options = "--objective loss:min --max-trials 2 --seed 1 --pruner threshold:upper=2.5"
    kernel.ok(tune(STALLING, options, "pruned"))
    assert {row["ending"] for row in table(kernel.ok("%trials --project pruned").display)} == {"pruned"}
    best = kernel.ok("%best --project pruned").display
    assert "no trial has finished; these were pruned, and their values are those of their reports" in best, best
    assert "weights of trial " in best, best
