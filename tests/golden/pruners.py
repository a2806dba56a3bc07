"""At which step the pruners of Optuna 5.0 end each of 40 trials, which tuner/oracle/tests/it/pruner.rs runs alike; -1 for none."""

import optuna
from optuna import pruners

optuna.logging.set_verbosity(optuna.logging.ERROR)


def value(trial, step):
    return (trial * 37 + step * 11) % 23 / 10 + (trial * 13) % 7 / 4 - step * 0.15


def run(pruner, direction, mean=False):
    study = optuna.create_study(direction=direction, pruner=pruner)
    ends = []
    for number in range(40):
        trial = study.ask()
        end = -1
        for step in range(number % 3, 12, 1 + number % 2):
            report = value(number, step)
            trial.report(float("nan") if (number, step) == (20, 2) else report, step)
            if trial.should_prune():
                end = step
                break
        if end < 0:
            values = list(study.trials[number].intermediate_values.values())
            study.tell(trial, sum(values) / len(values) if mean else values[-1])
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        ends.append(end)
    return ends


for direction in ["minimize", "maximize"]:
    print(direction)
    print(run(pruners.MedianPruner(), direction))
    print(run(pruners.PercentilePruner(25, n_startup_trials=3, n_warmup_steps=3, interval_steps=4, n_min_trials=2), direction))
    print(run(pruners.WilcoxonPruner(p_threshold=0.2), direction, mean=True))
    print(run(pruners.PatientPruner(None, patience=2, min_delta=0.1), direction))
    percentile = pruners.PercentilePruner(50, n_startup_trials=3)
    print(run(pruners.PatientPruner(percentile, patience=2, min_delta=0.1), direction))
    print(run(pruners.ThresholdPruner(lower=-0.9, upper=3.3, n_warmup_steps=1, interval_steps=2), direction))
