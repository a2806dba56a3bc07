"""Results of a search, as tables, plots and files: the program for each format reads it, and the values are Optuna's."""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from wsgiref.simple_server import WSGIRequestHandler, make_server

import altair
import duckdb
import mlflow
import optuna
import optuna_dashboard
import pytest
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

from session import wait_for
from test_tune import study, table, tune

TRIALS = 24
PANICS = 5
# The report of the middle epoch is the best one, and the bias of the layer is the epoch.
SEARCH = f"""%%tune --objective accuracy:max --oracle random --max-trials {TRIALS} --seed 3 --project shown
|trial| {{
    let lr: f64 = trial.float("lr", 1e-4..=1e-1).log().get()?;
    let units: usize = trial.int("units", 4..=16).step(4).default(8).get()?;
    let kind = trial.choice("kind", ["plain", "wide"]).get()?;
    let shift: f64 = if kind == "wide" {{ trial.float("shift", 0.0..=0.5).get()? }} else {{ 0.0 }};
    if trial.number() == {PANICS} {{
        panic!("<b>boom</b>");
    }}
    let vars = candle_nn::VarMap::new();
    let builder = candle_nn::VarBuilder::from_varmap(&vars, candle_core::DType::F32, &candle_core::Device::Cpu);
    let _layer = candle_nn::linear(2, units, builder.pp("layer"))?;
    let best = 1.0 - (lr.log10() + 2.5).powi(2) / 10.0 - (units as f64 - 12.0).abs() / 100.0 - shift / 10.0;
    for epoch in trial.epochs(3) {{
        let accuracy = best * [0.8, 1.0, 0.9][epoch as usize];
        let bias = candle_core::Tensor::full(epoch as f32, units, &candle_core::Device::Cpu)?;
        vars.data().lock().unwrap()["layer.bias"].set(&bias)?;
        trial.report(epoch, [("accuracy", accuracy), ("loss", 1.0 - accuracy)])?;
        trial.checkpoint(&vars)?;
    }}
    trial.best("accuracy")
}}"""
PLOTS = ["history", "parallel", "slice", "contour", "importance", "intermediate", "edf", "timeline", "rank", "terminator", "model"]


@pytest.fixture(scope="module")
def shown(kernel):
    """The study, as Optuna loads it."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kernel.ok(SEARCH)
    return load(study(kernel, "shown") / "journal.log", "shown")


def load(journal, name):
    return optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(str(journal))))


def bundle(kernel, code):
    """All MIME types of the one display of a cell."""
    shown = []

    def take(message):
        if message["msg_type"] == "display_data":
            shown.append(message["content"]["data"])

    outcome = kernel.run(code, watch=take)
    assert outcome.error is None, outcome.traceback
    (data,) = shown
    return data


def complete(loaded):
    return [trial for trial in loaded.trials if trial.value is not None]


# Tables


def test_trials_are_sorted_and_chosen(kernel, shown):
    rows = table(kernel.ok('%trials --where "state=finished and lr<0.01" --sort accuracy:desc --columns trial,accuracy').display)
    expected = sorted((trial for trial in complete(shown) if trial.params["lr"] < 0.01), key=lambda trial: -trial.value)
    assert [row["trial"] for row in rows] == [str(trial.number) for trial in expected]
    assert [float(row["accuracy"]) for row in rows] == pytest.approx([trial.value for trial in expected], rel=1e-4)
    text = kernel.ok("%trials --limit 3").display
    assert len(table(text)) == 3 and f"3 of {TRIALS} trials are shown" in text
    (failed,) = table(kernel.ok("%trials --where state=failed").display)
    assert failed["trial"] == str(PANICS)
    # Texts from a trial are shown as text, never as HTML.
    assert "<b>" not in bundle(kernel, "%trials")["text/html"]


def test_snippet_of_the_best_trial_loads_its_weights(kernel, shown):
    best = shown.best_trial
    text = kernel.ok("%best").display
    (row,) = table(text)
    assert row["trial"] == str(best.number)
    snippet = text.split(f"// trial {best.number} of shown\n")[1].split("\n\n# ")[0]
    kernel.ok(snippet)
    assert kernel.ok("units").result == str(best.params["units"])
    assert kernel.ok("lr").result == repr(best.params["lr"])
    assert kernel.ok("kind").result == f'"{best.params["kind"]}"'
    # The weights are from the epoch whose report is the trial's value, which is not the last epoch.
    ones = str([1.0] * best.params["units"])
    assert kernel.ok('weights["layer.bias"].to_vec1::<f32>()?').result == ones
    (line,) = re.findall(r"vars\.load\(.*\)\?;", snippet)
    loaded = f"""{{
        let mut vars = candle_nn::VarMap::new();
        let builder = candle_nn::VarBuilder::from_varmap(&vars, candle_core::DType::F32, &candle_core::Device::Cpu);
        let layer = candle_nn::linear(2, units, builder.pp("layer"))?;
        {line}
        layer.bias().unwrap().to_vec1::<f32>()?
    }}"""
    assert kernel.ok(loaded).result == ones
    # The objective's own questions have the same answers, and its state is loaded.
    again = """{
        let units: usize = best.int("units", 4..=16).step(4).default(8).get()?;
        let vars = candle_nn::VarMap::new();
        let builder = candle_nn::VarBuilder::from_varmap(&vars, candle_core::DType::F32, &best.device()?);
        let layer = candle_nn::linear(2, units, builder.pp("layer"))?;
        assert!(best.restore(&vars)?);
        (best.choice("kind", ["plain", "wide"]).get()?, layer.bias().unwrap().to_vec1::<f32>()?)
    }"""
    assert kernel.ok(again).result == f'("{best.params["kind"]}", {ones})'
    # Other trials keep no weights.
    worst = min(complete(shown), key=lambda trial: trial.value)
    assert "weights" not in kernel.ok(f"%trials {worst.number}").display
    # Those in the notebook's folder have no longer path than they need.
    at = f"studies/shown/trials/{best.number}/checkpoint-"
    assert f"weights of trial {best.number}: {at}" in text and f'vars.load("{at}' in line
    assert f"weights: {at}" in kernel.ok(f"%trials {best.number}").display
    kernel.ok("%cd /usr")
    assert f"weights of trial {best.number}: {kernel.folder}/{at}" in kernel.ok("%best").display
    kernel.ok("%cd -")


def test_python_of_the_best_trial_loads_its_weights(kernel, shown, monkeypatch):
    pytest.importorskip("safetensors", reason="tests/requirements.txt has it")
    monkeypatch.chdir(kernel.folder)
    best, found = shown.best_trial, {}
    exec(kernel.ok("%best").display.split(f"# trial {best.number} of shown, in Python\n")[1], found)
    assert found["parameters"] == best.params
    assert found["weights"]["layer.bias"].tolist() == [1.0] * best.params["units"]


def test_exported_model_is_loaded_by_python_with_the_trial_as_its_metadata(kernel, shown):
    safe_open = pytest.importorskip("safetensors", reason="tests/requirements.txt has it").safe_open
    best = shown.best_trial
    for magic, path in (("%export model", "model.safetensors"), ("%export model best.safetensors --project shown", "best.safetensors")):
        assert f"wrote the model of trial {best.number} to {path}" in kernel.ok(magic).display
        with safe_open(kernel.folder / path, framework="np") as model:
            metadata = model.metadata()
            assert sorted(model.keys()) == ["layer.bias", "layer.weight"]
            assert model.get_tensor("layer.bias").tolist() == [1.0] * best.params["units"]
        (kernel.folder / path).unlink()
        assert (metadata["study"], metadata["trial"]) == ("shown", str(best.number))
        assert float(metadata["objective.accuracy"]) == best.value
        parameters = {name[6:]: text for name, text in metadata.items() if name.startswith("param.")}
        assert parameters.keys() == best.params.keys()
        assert float(parameters["lr"]) == best.params["lr"] and parameters["kind"] == best.params["kind"]


def test_space_is_what_the_trials_asked_for(kernel, shown):
    rows = {row["parameter"]: row for row in table(kernel.ok("%space shown").display)}
    assert set(rows) == {"kind", "lr", "shift", "units"}
    assert (rows["lr"]["kind"], rows["lr"]["range"], rows["lr"]["scale"]) == ("float", "0.0001..=0.1", "log")
    assert (rows["units"]["scale"], rows["units"]["default"], rows["lr"]["default"]) == ("step 4", "8", "")
    assert shown.trials[0].params["units"] == 8
    assert rows["shift"]["asked for"] == "if kind is wide" and rows["kind"]["asked for"] == "always"
    asked = sum("shift" in trial.params for trial in shown.trials)
    assert rows["shift"]["trials"] == str(asked)


def test_studies_lists_what_is_in_the_folder(kernel, shown):
    (kernel.folder / "studies" / "broken").mkdir(exist_ok=True)
    (kernel.folder / "studies" / "broken" / "journal.log").write_text("{\n{\n")
    text = kernel.ok("%studies").display
    shutil.rmtree(kernel.folder / "studies" / "broken")
    (row,) = table(text)
    assert (row["study"], row["objective"], row["oracle"]) == ("shown", "accuracy:max", "random")
    assert (row["trials"], row["finished"], row["failed"], row["search"]) == (f"{TRIALS}/{TRIALS}", str(TRIALS - 1), "1", "none")
    assert float(row["best"]) == pytest.approx(shown.best_value, rel=1e-4)
    assert "broken" in text


def test_kernel_that_has_run_no_search_names_the_studies_of_the_folder(kernel, shown, start):
    later = start(folder=kernel.folder)
    magics = ["%best", "%trials", "%plot history", "%space", "%export csv a.csv", "%tune status", "%tune wait", "%resume"]
    for magic in magics:
        error = later.fails(magic).error
        expected = "MagicError: no search has run in this notebook; name one of those in studies (--project NAME, %space NAME, "
        assert error.startswith(expected) and "shown" in error.rpartition(": ")[2], (magic, error)
    (kernel.folder / "empty").mkdir(exist_ok=True)
    empty = start(folder=kernel.folder / "empty")
    (kernel.folder / "empty").rmdir()
    assert empty.fails("%best").error.endswith("and there is none in studies; name its folder with --directory")


def test_parameters_of_the_best_trial_are_put_into_the_next_cell(kernel, shown):
    reply, _ = kernel.execute("%best --insert --project shown")
    (payload,) = reply["payload"]
    text = payload.pop("text")
    assert payload == {"source": "set_next_input", "replace": False}
    best = shown.best_trial
    comment, *lines = text.splitlines()
    assert comment == f"// trial {best.number} of shown"
    *parameters, trial, remark = lines
    assert sorted(parameters) == parameters, parameters
    assert all(re.fullmatch(r"let \w+(: \w+)? = .+;", line) for line in parameters), parameters
    assert trial == 'let best = ferrotune::best("shown")?;' and remark.startswith("// its model: best.model()?"), lines
    kernel.ok(text)
    for name, value in best.params.items():
        assert kernel.ok(name).result == (f'"{value}"' if isinstance(value, str) else repr(value))
    assert kernel.execute("%best --project shown")[0]["payload"] == []
    assert kernel.execute("%best --insert --project shwn")[0]["payload"] == []


# Plots


@pytest.mark.parametrize("plot", PLOTS)
def test_plot_has_a_form_for_every_front_end(kernel, shown, plot):
    forms = bundle(kernel, f"%plot {plot}")
    altair.Chart.from_dict(forms["application/vnd.vegalite.v5+json"], validate=True)
    assert forms["image/svg+xml"].startswith("<svg ") and "<b>" not in forms["image/svg+xml"]
    assert forms["text/plain"].startswith(f"{plot}: shown\n")


def values(forms, layer=0):
    return forms["application/vnd.vegalite.v5+json"]["layer"][layer]["data"]["values"]


def test_plots_show_the_numbers_of_optuna(kernel, shown):
    points = values(bundle(kernel, "%plot history"))
    assert {point["x"]: point["y"] for point in points} == {trial.number: trial.value for trial in complete(shown)}
    bars = {bar["y"]: bar["x2"] for bar in values(bundle(kernel, "%plot importance"))}
    expected = optuna.importance.get_param_importances(shown, evaluator=PedAnovaImportanceEvaluator())
    assert bars == pytest.approx(expected, abs=1e-9)
    corners = values(bundle(kernel, "%plot intermediate"))
    reported = {(trial.number, step): value for trial in shown.trials for step, value in trial.intermediate_values.items()}
    assert {(corner["shade"], corner["x"]): corner["y"] for corner in corners} == reported
    points = values(bundle(kernel, "%plot contour --params lr,units"), layer=1)
    assert {(point["x"], point["y"]) for point in points} == {(trial.params["lr"], trial.params["units"]) for trial in complete(shown)}


def test_optuna_draws_our_journal(shown):
    from optuna import visualization

    for draw in [
        visualization.plot_optimization_history,
        visualization.plot_parallel_coordinate,
        visualization.plot_slice,
        visualization.plot_contour,
        visualization.plot_intermediate_values,
        visualization.plot_edf,
        visualization.plot_timeline,
    ]:
        assert draw(shown).data, draw


def test_dashboard_serves_our_journal(kernel, shown, tmp_path):
    class Quiet(WSGIRequestHandler):
        def log_message(self, *_):
            pass

    journal = shutil.copy(study(kernel, "shown") / "journal.log", tmp_path)
    app = optuna_dashboard.wsgi(JournalStorage(JournalFileBackend(str(journal))))
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/api/studies"
            summaries = json.load(urllib.request.urlopen(address))["study_summaries"]
            assert [summary["study_name"] for summary in summaries] == ["shown"]
            detail = json.load(urllib.request.urlopen(f"{address}/{summaries[0]['study_id']}?after=0"))
        finally:
            server.shutdown()
            thread.join()
    rows = table(kernel.ok("%trials").display)
    assert len(detail["trials"]) == len(rows) == TRIALS
    for row, trial in zip(rows, detail["trials"]):
        assert row["trial"] == str(trial["number"])
        parameters = {parameter["name"]: parameter["param_external_value"] for parameter in trial["params"]}
        assert row["kind"] == parameters["kind"].strip("'\"") and row["units"] == parameters["units"]
        if trial["number"] != PANICS:
            assert float(row["accuracy"]) == pytest.approx(float(trial["values"][0]), rel=1e-4)


# Files


def test_tables_are_read_by_other_programs(kernel, shown):
    assert f"wrote {TRIALS} trials to shown.csv" in kernel.ok("%export csv shown.csv").display
    kernel.ok("%export parquet shown.parquet")
    kernel.ok("%export json shown.json")
    with open(kernel.folder / "shown.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    path = kernel.folder / "shown.parquet"
    columns = "number, state, values_accuracy, params_lr, params_units, params_kind, params_shift"
    stored = duckdb.sql(f"select {columns} from '{path}' order by number").fetchall()
    document = json.loads((kernel.folder / "shown.json").read_text())
    assert len(rows) == len(stored) == len(document["trials"]) == TRIALS
    for trial, row, record, entry in zip(shown.trials, rows, stored, document["trials"]):
        assert float(row["params_lr"]) == record[3] == entry["parameters"]["lr"] == trial.params["lr"]
        assert int(row["params_units"]) == record[4] == trial.params["units"]
        assert row["params_kind"] == record[5] == trial.params["kind"]
        assert (row["params_shift"] or None) == (record[6] and str(record[6])) and record[6] == trial.params.get("shift")
        assert record[2] == trial.value == entry["values"].get("accuracy")
        if trial.value is not None:
            assert float(row["values_accuracy"]) == trial.value
    assert stored[PANICS][1] == "failed" and "boom" in rows[PANICS]["ending"]
    # There are no other files, and these have the usual permissions.
    assert sorted(path.name for path in kernel.folder.iterdir() if path.is_file()) == ["shown.csv", "shown.json", "shown.parquet"]


def test_page_has_table_and_plots(kernel, shown):
    kernel.ok("%export html shown.html")
    page = (kernel.folder / "shown.html").read_text()
    (kernel.folder / "shown.html").unlink()
    assert page.count("<svg ") == len(PLOTS) and page.count("<tr>") == TRIALS + 1
    assert "&lt;b&gt;boom&lt;/b&gt;" in page


def read_tensorboard(folder):
    """The answer of TensorBoard's server to its HParams page."""
    runs = plugin_event_multiplexer.EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    provider = data_provider.MultiplexerDataProvider(runs, str(folder))
    backend = backend_context.Context(base_plugin.TBContext(logdir=str(folder), multiplexer=runs, data_provider=provider))
    request = context.RequestContext()
    experiment = get_experiment.Handler(request, backend, "it", api_pb2.GetExperimentRequest()).run()
    wanted = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=2 * TRIALS,
        allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_UNKNOWN],
        col_params=[api_pb2.ColParams(metric=metric.name) for metric in experiment.metric_infos],
        include_metrics=True,
    )
    groups = list_session_groups.Handler(request, backend, "it", wanted).run().session_groups
    return runs, experiment, {int(group.name): group for group in groups}


def test_tensorboard_reads_scalars_and_parameters(kernel, shown):
    kernel.ok("%export tensorboard runs")
    runs, experiment, groups = read_tensorboard(kernel.folder / "runs")
    assert {info.name for info in experiment.hparam_infos} == {"kind", "lr", "shift", "units"}
    assert [info.display_name for info in experiment.metric_infos] == ["accuracy"]
    assert sorted(groups) == [trial.number for trial in shown.trials]
    for trial in shown.trials:
        group = groups[trial.number]
        parameters = {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
        assert parameters == trial.params
        (session,) = group.sessions
        failed = trial.number == PANICS
        assert session.status == (api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS)
        if not failed:
            assert group.metric_values[0].value == pytest.approx(trial.value, rel=1e-6)
            scalars = runs.GetAccumulator(session.name).Tensors("accuracy")
            assert {event.step: event.tensor_proto.float_val[0] for event in scalars} == pytest.approx(trial.intermediate_values, rel=1e-6)


def test_mlflow_gets_the_trials_by_the_documented_program(kernel, shown, tmp_path):
    guide = pathlib.Path(__file__).parent.parent / "docs/results.md"
    (program,) = re.findall(r"```python\n(import time\nimport mlflow.*?)```", guide.read_text(), re.DOTALL)
    program = program.replace("studies/digits", str(study(kernel, "shown"))).replace('"digits"', '"shown"')
    address = f"sqlite:///{tmp_path}/mlflow.db"
    # MLflow makes its tables at the first call, and two programs that do so at once fail.
    assert runs_of(address) == []
    sender = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "MLFLOW_TRACKING_URI": address})
    try:
        wait_for(lambda: len(runs_of(address)) == TRIALS, "MLflow has all trials", 60)
    finally:
        sender.kill()
        sender.wait()
    runs = {run.info.run_name: run for run in runs_of(address)}
    best = shown.best_trial
    run = runs[f"trial-{best.number}"]
    assert run.data.params == {name: str(value) for name, value in best.params.items()}
    history = mlflow.MlflowClient(address).get_metric_history(run.info.run_id, "accuracy")
    assert {metric.step: metric.value for metric in history} == best.intermediate_values


def runs_of(address):
    client = mlflow.MlflowClient(address)
    return client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])


def test_event_files_are_appended_to(kernel, shown):
    kernel.ok("%export tensorboard grown")
    (path,) = (kernel.folder / "grown" / "trial-0000").iterdir()
    whole, inode = path.read_bytes(), path.stat().st_ino
    # The state after an export while the trial was still running.
    path.write_bytes(whole[: len(whole) // 2])
    kernel.ok("%export tensorboard grown")
    assert path.read_bytes() == whole and path.stat().st_ino == inode
    # TensorBoard would show events of another search with this study's parameters.
    (events,) = (kernel.folder / "grown").glob("events.*")
    events.rename(events.with_name("events.out.tfevents.1.ferrotune"))
    assert "has the events of another search" in kernel.fails("%export tensorboard grown").error


# Mistakes


@pytest.mark.parametrize(
    "code, error",
    [
        ("%plot pie", "there is no plot pie; choose from history, "),
        ("%plot pareto", "it needs two objectives"),
        ("%plot edf --evaluator fanova", "--evaluator measures importance"),
        ("%plot slice --params rate", "has no parameter rate; choose from kind, lr, shift, units"),
        ("%export xls a.xls", "there is no format xls; choose from csv, "),
        ("%export csv", "%export needs FILE to write to"),
        ("%export csv nowhere/a.csv", "cannot write nowhere/a.csv"),
        ("%trials --sort accurcy", "there is no column accurcy; choose from accuracy, "),
        ("%trials 3 --sort lr", "leave it out to sort and choose"),
        ("%studies --directory nowhere", "cannot read the folder nowhere"),
        ("%plot history --directory studies", "--directory alone names no study; name one of those in studies (--project NAME, "),
    ],
)
def test_mistake_is_one_line_with_the_cure(kernel, shown, code, error):
    assert error in kernel.fails(code).error


# What another study shows


def test_tensorboard_follows_a_search(kernel):
    objective = """
    for epoch in trial.epochs(2) { trial.report(epoch, [("loss", 0.5 - epoch as f64 / 10.)])?; }
    let go = trial.folder().join("../../../../go");
    while trial.number() == 1 && !go.exists() { std::thread::sleep(std::time::Duration::from_millis(20)); }
    trial.best("loss")"""
    kernel.ok_in_background(tune(objective, "--objective loss:min --max-trials 2 --tensorboard live --background", "live"))

    def statuses():
        try:
            groups = read_tensorboard(kernel.folder / "live")[2]
        except (ValueError, KeyError):
            return {}  # there is no experiment yet
        return {number: group.sessions[0].status for number, group in groups.items()}

    try:
        # TensorBoard knows the status of a run only once it has ended.
        wait_for(lambda: statuses() == {0: api_pb2.STATUS_SUCCESS, 1: api_pb2.STATUS_UNKNOWN}, "the files of a running trial")
    finally:
        (kernel.folder / "go").touch()
    kernel.ok("%tune wait --project live")
    assert statuses() == {0: api_pb2.STATUS_SUCCESS, 1: api_pb2.STATUS_SUCCESS}
    scalars = read_tensorboard(kernel.folder / "live")[0].GetAccumulator("trial-0001").Tensors("loss")
    assert [round(event.tensor_proto.float_val[0], 6) for event in scalars] == [0.5, 0.4]
    other = tune(objective, "--objective loss:min --max-trials 1 --tensorboard live", "other")
    assert "has the events of another search; name another folder" in kernel.fails(other).error
