"""Loads a Ferrotune journal with the real Optuna and prints what it sees. Changes nothing in the journal.

Usage: python tests/journal_optuna.py STUDY/journal.log      (needs `pip install optuna`)
"""

import collections
import json
import pathlib
import sys
import tempfile

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState


def main(journal: pathlib.Path) -> int:
    lines = journal.read_text(encoding="utf-8").splitlines()

    def refuse_constant(name: str) -> None:
        raise ValueError(f"bare {name} in the journal")

    for number, line in enumerate(lines, start=1):
        entry = json.loads(line, parse_constant=refuse_constant)
        if "crc" not in entry and entry["worker_id"].startswith("ferrotune-"):
            raise ValueError(f"line {number} has no checksum")

    storage = JournalStorage(JournalFileBackend(str(journal)))
    (name,) = [study.study_name for study in storage.get_all_studies()]
    study = optuna.load_study(study_name=name, storage=storage)
    states = collections.Counter(trial.state.name for trial in study.trials)
    print(f"study {name}, {study.direction.name.lower()}, {len(lines)} lines, journal version "
          f"{study.user_attrs['ferrotune:journal']}")
    print("trials: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    if states[TrialState.COMPLETE.name]:
        best = study.best_trial
        print(f"best value {best.value!r} in trial {best.number} with {best.params}")
    for trial in study.trials:
        for parameter, distribution in trial.distributions.items():
            internal = distribution.to_internal_repr(trial.params[parameter])
            if not distribution._contains(internal):
                raise ValueError(f"trial {trial.number}: {parameter} is outside {distribution}")
        ending = trial.user_attrs.get("ferrotune:ending", {"how": "none"})
        print(f"  {trial.number} {trial.state.name} {trial.value} steps {sorted(trial.intermediate_values)} "
              f"ending {ending['how']}")

    # Optuna goes on where Ferrotune stopped, in a copy.
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "journal.log"
        copy.write_bytes(journal.read_bytes())
        storage = JournalStorage(JournalFileBackend(str(copy)))
        study = optuna.load_study(study_name=name, storage=storage)
        before = len(study.trials)
        distributions = {}
        for trial in study.trials:
            distributions.update(trial.distributions)
        asked = study.ask(distributions)
        study.tell(asked, 0.5)
        print(f"continued by Optuna: trial {asked.number} of {before + 1}, {asked.params}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sys.exit(main(pathlib.Path(sys.argv[1])))
