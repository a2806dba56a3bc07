"""A notebook's study in a database, which Optuna searches, too."""

import optuna

CELL = """%%tune --oracle random --objective loss:min --max-trials {trials} --project shared --storage {url}
|trial| {{
    let x = trial.float("x", -4.0..=4.0).get()?;
    trial.report(0, [("loss", x * x)])?;
    trial.best("loss")
}}"""


def test_a_notebook_and_optuna_share_a_study(start, tmp_path):
    url = f"sqlite:///{tmp_path}/studies.db"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    session = start()
    session.ok(CELL.format(trials=4, url=url))
    study = optuna.load_study(study_name="shared", storage=url)
    assert len(study.trials) == 4
    study.enqueue_trial({"x": 0.25})
    assert "5/5 trials, 4 of them earlier" in session.ok(CELL.format(trials=5, url=url)).display
    assert study.trials[4].params == {"x": 0.25} and study.best_value <= 0.0625
    table = session.ok("%trials").display
    assert "0.0625" in table and len(table.splitlines()) == 6, table
    assert 'let best = ferrotune::Trial::of([("x", ' in session.ok("%best").display
    session.ok("%plot history")
    study.optimize(lambda trial: trial.suggest_float("x", -4.0, 4.0) ** 2, n_trials=1)
    # Another kernel finds it by its folder.
    again = start()
    assert len(again.ok("%trials --project shared").display.splitlines()) == 7
    assert "8/8 trials, 6 of them earlier" in again.ok("%resume shared --max-trials 8").display
    assert len(study.trials) == 8
    assert "shared" in again.ok("%studies").display
