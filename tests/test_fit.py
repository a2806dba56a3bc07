"""`Fit` in cells and in trials: curves, interrupts, and searches whose trials stop and continue."""

import json
import pathlib
import subprocess

import pytest

from session import FERROTUNE, TARGET, Session
from test_guide import GUIDE, blocks
from test_tune import study, table

EXAMPLE = TARGET / "release/examples/exported"
SOURCE = pathlib.Path(__file__).parent.parent / "tuner/trial/examples/exported.rs"

SETUP = """
use ferrotune::prelude::*;
ferrotune::seed(7)?;
let [train, valid] = data::digits()?.split([0.8, 0.2], 7)?;
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    session = Session(tmp_path_factory.mktemp("fit"))
    session.ok(SETUP)
    yield session
    session.close()


def run_program(notebook, *arguments):
    return subprocess.run([FERROTUNE, *arguments], cwd=notebook.folder, capture_output=True, text=True, timeout=60)


def records(notebook, project):
    """The lines of a study's journal."""
    return [json.loads(line) for line in (study(notebook, project) / "journal.log").read_text().splitlines()]


def attributes(notebook, project):
    """What the journal says of trials beside parameters and reports, as (trial, name, value)."""
    lines = [line for line in records(notebook, project) if line["op_code"] == 8]
    return [(line["trial_id"], name, value) for line in lines for name, value in line["user_attr"].items()]


def reports(notebook, project):
    """The reports of the objective in their order, as (trial, epoch, value)."""
    lines = records(notebook, project)
    return [(line["trial_id"], line["step"], line["intermediate_value"]) for line in lines if line["op_code"] == 7]


def search(objective, options, project):
    return f"%%tune {options} --project {project}\n|trial| {{\n{objective}\n}}"


def epochs_of(found):
    """The epochs that each trial has reported, in their order."""
    epochs = {}
    for trial, epoch, _ in found:
        epochs.setdefault(trial, []).append(epoch)
    return epochs


# Cells


def test_a_cell_shows_the_progress_and_then_the_history_as_curves_and_a_table(notebook):
    notebook.ok("let model = nn::mlp(64, &[32], 10).build(&Device::Cpu)?;")
    reply, published = notebook.execute(
        "Fit::classifier(&model).optimizer(AdamW::lr(1e-2)).epochs(12).run(&train, &valid)?"
    )
    assert reply["status"] == "ok", reply
    # The last progress may come after the result.
    shown = [content for kind, content in published if kind in ("display_data", "update_display_data")]
    (result,) = [content for kind, content in published if kind == "execute_result"]
    assert len(shown) == len(published) - 1 and shown[-1]["data"]["text/plain"].startswith("epochs 100% 12/12"), published
    html, text = result["data"]["text/html"], result["data"]["text/plain"]
    # The loss and the accuracy, each of both data.
    assert html.startswith("<svg") and html.count("<polyline") == 4 and "<table" in html, html
    first, *rows, last = text.splitlines()
    assert first.split() == ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"], text
    assert [row.split()[0] for row in rows] == [*"01234", "…", "7", "8", "9", "10", "11"] and last == "12 epochs", text
    assert float(rows[-1].split()[3]) > 0.93, text


def test_a_history_is_shown_in_the_same_way_where_the_last_expression_moves_a_variable(notebook):
    notebook.ok("let closed = nn::mlp(64, &[8], 10).build(&Device::Cpu)?;")
    outcome = notebook.ok("""
        let probability = metrics::mean(|outputs, targets| ops::softmax(outputs, 1)?.gather(&targets.unsqueeze(1)?, 1));
        let fit = Fit::classifier(&closed).metric("probability", probability);
        fit.epochs(2).run(&train, None)?""")
    assert outcome.result.splitlines()[0].split() == ["epoch", "accuracy", "loss", "probability"], outcome.result


def test_an_interrupted_training_returns_its_history_and_the_best_weights(notebook):
    notebook.ok("let kept = 5; let long = nn::mlp(64, &[32], 10).build(&Device::Cpu)?;")
    shown = []

    def has_trained(message):
        shown.append(message["content"].get("data", {}).get("text/plain", ""))
        return "val_loss" in shown[-1]

    outcome = notebook.interrupt(
        """let history = Fit::classifier(&long).epochs(1_000_000).early_stop("val_loss", 1_000_000).run(&train, &valid)?;
        history.sentence()""",
        has_trained,
    )
    assert outcome.error is None and outcome.seconds < 2, outcome
    assert ", interrupted; the model has the weights of epoch " in outcome.result, outcome.result
    assert notebook.ok("kept").result == "5"
    best = 'history.value("val_loss") == history.get("val_loss").into_iter().reduce(f64::min)'
    assert notebook.ok(f"history.best_epoch.is_some() && {best}").result == "true"
    accuracy = """{
        let (rows, labels) = valid.to_tensors()?;
        let mut accuracy = metrics::accuracy();
        accuracy.update(&long.predict(&rows)?, &labels)?;
        Some(accuracy.value()?) == history.value("val_accuracy")
    }"""
    assert notebook.ok(accuracy).result == "true"


# Searches

# Its curves depend on the first weights, on the dropout, on the order of the batches, on the schedule and on a callback. Some trials
# stop early.
DROPPING = """
    let lr = trial.float("lr", 2e-2..=2e-1).log().get()?;
    let model = nn::mlp(64, &[32], 10).dropout(0.3).build(&trial.device()?)?;
    let marker = trial.folder().join("crashed");
    Fit::classifier(&model)
        .optimizer(AdamW::lr(lr))
        .schedule(optim::cosine(0.5).warm_up(0.1))
        .batch(64)
        .epochs(24)
        .early_stop("val_loss", 4)
        .callback(ferrotune::fit::CsvLog::new(trial.folder().join("log.csv")))
        .callback(ferrotune::fit::ReduceOnPlateau::new("val_loss", 0.5, 2))
        .on_epoch(|epoch, _| {
            if CRASHES && epoch == 4 && !marker.exists() {
                std::fs::write(&marker, "")?;
                std::process::abort();
            }
            Ok(())
        })
        .run_in(trial, &train, &valid)"""


def test_a_trial_that_is_killed_has_the_reports_of_one_that_never_stopped(notebook):
    options = "--oracle random --objective val_loss:min --max-trials 4 --retries 1 --seed 5"
    notebook.ok(search(DROPPING.replace("CRASHES", "false"), options, "whole"))
    notebook.ok(search(DROPPING.replace("CRASHES", "true"), options, "killed"))
    whole, killed = reports(notebook, "whole"), reports(notebook, "killed")
    assert killed == whole
    assert len(list((study(notebook, "killed") / "trials").glob("*/crashed"))) == 4
    lengths = {len(epochs) for epochs in epochs_of(whole).values()}
    assert min(lengths) > 5 and min(lengths) < 24, f"no trial has stopped early after its crash: {lengths}"
    others = lambda project: [found for found in attributes(notebook, project) if found[1].startswith("ferrotune:metrics:")]
    assert others("killed") == others("whole") and len(others("whole")) == len(whole)
    logs = lambda project: [(study(notebook, project) / f"trials/{trial}/log.csv").read_text() for trial in range(4)]
    assert logs("killed") == logs("whole")


def test_a_promoted_trial_continues_at_its_epoch(notebook):
    objective = """
    let units = trial.int("units", 8..=64).get()?;
    let model = nn::mlp(64, &[units], 10).build(&trial.device()?)?;
    Fit::classifier(&model).batch(64).epochs(9).run_in(trial, &train, &valid)"""
    notebook.ok(search(objective, "--oracle hyperband --objective val_accuracy:max --max-trials 20 --seed 3", "promoted"))
    epochs = epochs_of(reports(notebook, "promoted"))
    assert all(seen == list(range(len(seen))) for seen in epochs.values()), epochs
    waited = {trial for trial, name, value in attributes(notebook, "promoted") if name == "ferrotune:paused_at" and value is not None}
    continued = {trial for trial in waited if len(epochs[trial]) == 9}
    assert continued and len(waited) > len(continued), epochs


def test_a_pruned_trial_is_pruned_and_a_loss_that_is_nan_has_its_cure_in_the_record(notebook):
    objective = """
    let lr = trial.float("lr", 1e-3..=1e-2).get()?;
    let lr = if trial.number() == 1 { 1e30 } else { lr };
    let model = nn::mlp(64, &[16], 10).build(&trial.device()?)?;
    let fit = Fit::classifier(&model).optimizer(optim::SGD::lr(if trial.number() == 2 { 1e-12 } else { lr }));
    fit.epochs(6).run_in(trial, &train, &valid)"""
    options = "--oracle random --objective loss:min --max-trials 4 --seed 1 --pruner threshold:upper=2.2,warmup=2"
    outcome = notebook.ok(search(objective, options, "ends"))
    assert "4/4 trials, 1 pruned, 1 failed" in outcome.display, outcome.display
    endings = [row["ending"] for row in table(notebook.ok("%trials").display)]
    assert endings[0] == endings[3] == "finished" and endings[2].startswith("pruned"), endings
    assert endings[1].startswith("the loss of epoch 0 is NaN; lower the learning rate, clip gradients with"), endings
    epochs = epochs_of(reports(notebook, "ends"))
    assert 1 not in epochs and len(epochs[0]) == len(epochs[3]) == 6 > len(epochs[2]), epochs


def test_an_optimiser_that_is_asked_for_has_the_parameters_of_its_kind(notebook):
    objective = """
    let model = nn::mlp(64, &[8], 10).build(&trial.device()?)?;
    let optimizer = optim::ask(trial, ["adamw", "sgd", "lion"])?;
    Fit::classifier(&model).optimizer(optimizer).batch(256).epochs(1).run_in(trial, &train, &valid)"""
    notebook.ok(search(objective, "--oracle random --objective val_loss:min --max-trials 12 --seed 2", "asked"))
    found = {}
    for line in records(notebook, "asked"):
        if line["op_code"] == 5:
            found.setdefault(line["trial_id"], set()).add(line["param_name"])
    kinds = [{"adamw_lr"}, {"sgd_lr", "sgd_momentum"}, {"lion_lr"}]
    assert len(found) == 12 and all(names - {"optimizer"} in kinds and "optimizer" in names for names in found.values()), found
    # Each of them was chosen.
    assert all(any(names == kind | {"optimizer"} for names in found.values()) for kind in kinds), found
    rows = table(notebook.ok("%trials").display)
    for row in rows:
        is_sgd = row["optimizer"] == "sgd"
        assert bool(row["sgd_momentum"]) == bool(row["sgd_lr"]) == is_sgd, row


# The best trial and its model


BEST = """
    let units = trial.int("units", 4..=32).get()?;
    let model = nn::mlp(64, &[units], 10).batch_norm().build(&trial.device()?)?;
    Fit::classifier(&model)
        .optimizer(optim::ask(trial, ["adamw", "sgd"])?)
        .optimizer_of("0.", AdamW::lr(2e-3))
        .schedule(optim::cosine(0.1))
        .batch(16).accumulate(2).clip_norm(1.0)
        .epochs(3)
        .run_in(trial, &train, &valid)"""


@pytest.fixture(scope="module")
def found(notebook):
    notebook.ok(search(BEST, "--oracle random --objective val_accuracy:max --max-trials 3 --seed 3", "found"))
    return notebook


def test_the_best_trial_builds_its_model_and_trains_another_one(found):
    found.ok("""
        let best = ferrotune::best("found")?;
        let model = best.model()?;
        let measured = Fit::classifier(&model).evaluate(&valid)?;
        assert_eq!(measured["accuracy"], best.metrics["val_accuracy"]);
        assert_eq!(model.trainable()[0].dims(), [best.int("units", 4..=32).get()?]);
        ferrotune::seed(7)?;
        let last = best.new_model()?;
        assert!(Fit::classifier(&last).evaluate(&valid)?["accuracy"] < 0.5);
        let history = best.fit(&last)?.metric("accuracy", metrics::accuracy()).run(&train, &valid)?;
        assert_eq!(history.len(), 3);
        let reached = history.value("val_accuracy").unwrap_or(0.0);
        assert!((reached - best.metrics["val_accuracy"]).abs() < 0.1, "{:?} beside {:?}", history, best.metrics);
        let rate = history.epochs[2].learning_rate;""")
    # The schedule ends at a tenth of the rate that the trial asked for.
    rates = found.ok('let asked = match best.choice("optimizer", ["adamw", "sgd"]).get()?.as_str() {\n'
                     '    "sgd" => best.float("sgd_lr", 1e-4..=1.0).log().get()?,\n'
                     '    _ => best.float("adamw_lr", 1e-5..=1e-1).log().get()?,\n};\n(rate, asked)').result
    rate, asked = json.loads(rates.replace("(", "[").replace(")", "]"))
    assert 0.09 * asked < rate < 0.2 * asked, rates


def test_what_a_checkpoint_does_not_say_is_an_error_with_the_cure(found):
    error = found.fails('ferrotune::best("found")?.prep()?;').error
    assert "has saved no Prep; call `.prep(&prep)` of `Fit` in the objective before `.run_in`" in error, error
    objective = """
    trial.int("unused", 1..=2).get()?;
    let model = nn::model(&trial.device()?, |vb| Ok(nn::seq().add(linear(64, 10, vb)?).add(|xs: &Tensor| xs * 0.5)))?;
    Fit::classifier(&model).epochs(1).run_in(trial, &train, &valid)"""
    found.ok(search(objective, "--objective val_loss:min --max-trials 1", "closure"))
    error = found.fails('ferrotune::best("closure")?.model()?;').error
    assert "layer 1 is a closure; build it with the objective's function, and call best.restore(model.vars())?" in error, error
    by_hand = """
    let model = nn::mlp(64, &[trial.int("units", 4..=8).get()?], 10).build(&trial.device()?)?;
    trial.report(0, [("loss", 1.0)])?;
    trial.checkpoint(model.vars())?;
    Ok(1.0)"""
    found.ok(search(by_hand, "--objective loss:min --max-trials 1", "byhand"))
    error = found.fails('ferrotune::best("byhand")?.model()?;').error
    assert "does not say how it was trained" in error and "best.restore(model.vars())?" in error, error


def test_a_trial_with_several_optimisers_that_is_killed_has_the_reports_of_one_that_never_stopped(found):
    for project, crashes in [("several", "false"), ("severalkilled", "true")]:
        objective = f"""
    let marker = trial.folder().join("crashed");
    let model = nn::mlp(64, &[trial.int("units", 4..=16).get()?], 10).build(&trial.device()?)?;
    Fit::new(&model)
        .optimizer_of("0.", AdamW::lr(1e-2))
        .optimizer_of("2.", optim::ParamsSGD {{ lr: 0.1, momentum: 0.9, ..Default::default() }})
        .step(|model, batch| {{
            let outputs = model.forward(&batch.inputs, batch.train)?;
            batch.log("wrong", &outputs.argmax(1)?.ne(&batch.targets)?)?;
            candle_nn::loss::cross_entropy(&outputs, &batch.targets)
        }})
        .batch(50).accumulate(2).epochs(6)
        .on_epoch(|epoch, _| {{
            if {crashes} && epoch == 3 && !marker.exists() {{
                std::fs::write(&marker, "")?;
                std::process::abort();
            }}
            Ok(())
        }})
        .run_in(trial, &train, &valid)"""
        found.ok(search(objective, "--objective val_wrong:min --max-trials 1 --retries 1 --seed 5", project))
    assert reports(found, "severalkilled") == reports(found, "several")
    assert len(reports(found, "several")) == 6


EXPORTED = """
    let model = nn::mlp(3, &[8], 1).build(&trial.device()?)?;
    let optimizer = AdamW::lr(trial.float("lr", 1e-3..=1e-1).log().get()?);
    Fit::regressor(&model).optimizer(optimizer).prep(&prep).epochs(4).run_in(trial, &train_rows, &valid_rows)"""


def test_an_export_is_read_by_a_program_with_candle_alone_and_by_another_notebook(found):
    found.ok("""
        let rows: Vec<String> = (0..200).map(|row| format!("{},{},{},{}", row % 7, row % 5, row % 3, 2 * (row % 7) + row % 3)).collect();
        std::fs::write("sums.csv", format!("a,b,c,sum\\n{}\\n", rows.join("\\n")))?;
        let sums = data::csv("sums.csv").target("sum")?;
        let [train_part, valid_part] = sums.split([0.8, 0.2], 7)?;
        let prep = Prep::fit(&train_part)?;
        let (train_rows, valid_rows) = (prep.apply(&train_part)?, prep.apply(&valid_part)?);""")
    found.ok(search(EXPORTED, "--objective val_mae:min --max-trials 2", "sums"))
    told = run_program(found, "export", "sums", "--to", "model")
    assert told.returncode == 0, told.stderr
    first, *files = told.stdout.splitlines()
    assert first.startswith("trial ") and first.endswith(" of sums is in model"), told.stdout
    assert [line.split(",")[0] for line in files] == ["trial.json", "model.safetensors", "model.safetensors.json", "prep.json"]
    about = json.loads((found.folder / "model/trial.json").read_text())
    best = found.ok('let best = ferrotune::best("sums")?;\n(best.trial, best.metrics["val_mae"])').result
    assert best == f'({about["trial"]}, {about["metrics"]["val_mae"]!r})', about
    shown = found.ok("""
        let exported = nn::open("model/model.safetensors", &Device::Cpu)?;
        let again = Prep::load("model/prep.json")?;
        let (one, other) = (best.prep()?.row([("a", 3.into())])?, again.row([("a", 3.into())])?);
        assert_eq!(one.to_vec2::<f32>()?, other.to_vec2::<f32>()?);
        assert_eq!(exported.predict(&one)?.to_vec2::<f32>()?, best.model()?.predict(&one)?.to_vec2::<f32>()?);
        exported.predict(&Tensor::new(&[[0.5f32, -1.0, 2.0]], &Device::Cpu)?)?.to_vec2::<f32>()?[0][0]""").result
    program = subprocess.run([EXAMPLE], cwd=found.folder, capture_output=True, text=True, check=True)
    assert float(program.stdout) == pytest.approx(float(shown), rel=1e-6)
    (page,) = [block for block in blocks(GUIDE / "tables.md") if block.startswith("use candle_core::{DType, Device, Result")]
    assert SOURCE.read_text(encoding="utf-8").endswith(page)
    # A second export replaces the first one, and nothing else.
    assert run_program(found, "export", "sums", "--to", "model").returncode == 0
    (shown,) = found.ok("%export model model/ --project sums").displays
    assert shown.splitlines()[0] == f"{first}/"
    # Another study has no preparation, and that of the first one does not stay.
    assert run_program(found, "export", "studies/found", "--to", "model").returncode == 0
    assert {path.name for path in (found.folder / "model").iterdir()} == {"trial.json", "model.safetensors", "model.safetensors.json"}
    (found.folder / "mine").mkdir()
    (found.folder / "mine/notes.txt").write_text("mine")
    told = run_program(found, "export", "sums", "--to", "mine")
    assert told.returncode == 1 and "mine has files that `ferrotune export` did not write; name another folder with --to" in told.stderr
    told = run_program(found, "export", "nosuch", "--to", "other")
    assert told.returncode == 1 and told.stderr.startswith("ferrotune: there is no study in studies/nosuch;"), told.stderr
    assert not (found.folder / "other").exists()
