"""Writes the tables of learning curves that `cargo bench -p ferrotune-oracle --bench curves` searches.

Each line of a table has the levels of its parameters and the validation log loss after each of 27 epochs (or trees). Every
combination of levels is trained once, with one split and one seed. Needs NumPy and scikit-learn and nothing else: the
data sets are those that scikit-learn brings along. Arguments: the tables to write, or none for all of them.
"""

import itertools
import pathlib
import sys
import warnings

import numpy
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

EPOCHS = 27
FOLDER = pathlib.Path(__file__).parent / "curves"
# A model that diverges is no better than this, and no worse.
WORST = 9.999


def split(load):
    x, y = load(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(x, y, test_size=0.4, random_state=0, stratify=y)
    scaler = StandardScaler().fit(x)
    return scaler.transform(x), scaler.transform(x_valid), y, y_valid


def loss(y, probabilities):
    probabilities = numpy.nan_to_num(probabilities, nan=1e-5)
    return min(log_loss(y, numpy.clip(probabilities, 1e-5, 1), labels=numpy.unique(y)), WORST)


def by_epochs(model, data):
    x, x_valid, y, y_valid = data
    for _ in range(EPOCHS):
        try:
            model.partial_fit(x, y, classes=numpy.unique(y))
            yield loss(y_valid, model.predict_proba(x_valid))
        except ValueError:  # Its weights have become infinite.
            yield WORST


def sgd(data, alpha, eta0, l1_ratio, schedule):
    model = SGDClassifier(
        loss="log_loss", penalty="elasticnet", alpha=10.0 ** (alpha - 6), eta0=10.0 ** (0.5 * eta0 - 4),
        l1_ratio=[0.0, 0.15, 0.5, 1.0][l1_ratio], learning_rate=["constant", "invscaling"][schedule], random_state=0,
    )
    return by_epochs(model, data)


def mlp(data, units, rate, alpha, batch):
    model = MLPClassifier(
        hidden_layer_sizes=(2 ** (units + 3),), learning_rate_init=10.0 ** (0.5 * rate - 4.5), alpha=10.0 ** (alpha - 4),
        batch_size=16 * 4**batch, random_state=0,
    )
    return by_epochs(model, data)


def boosting(data, rate, depth, subsample, leaf):
    x, x_valid, y, y_valid = data
    model = GradientBoostingClassifier(
        n_estimators=EPOCHS, learning_rate=10.0 ** (0.25 * rate - 2), max_depth=depth + 1,
        subsample=[0.5, 0.75, 1.0][subsample], min_samples_leaf=3**leaf, random_state=0,
    )
    model.fit(x, y)
    return (loss(y_valid, probabilities) for probabilities in model.staged_predict_proba(x_valid))


# The trainer, the data, and the number of levels of each parameter.
TABLES = {
    "sgd-wine": (sgd, datasets.load_wine, {"alpha": 7, "eta0": 9, "l1_ratio": 4, "schedule": 2}),
    "boosting-cancer": (boosting, datasets.load_breast_cancer, {"rate": 9, "depth": 6, "subsample": 3, "leaf": 4}),
    "mlp-digits": (mlp, datasets.load_digits, {"units": 5, "rate": 8, "alpha": 4, "batch": 3}),
}


def write(name):
    trainer, load, levels = TABLES[name]
    data = split(load)
    lines = [",".join([f"{parameter}:{count}" for parameter, count in levels.items()])]
    for combination in itertools.product(*(range(count) for count in levels.values())):
        curve = (f"{value:.4f}" for value in trainer(data, *combination))
        lines.append(",".join([*map(str, combination), *curve]))
    (FOLDER / f"{name}.csv").write_text("\n".join(lines) + "\n")


def main():
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or TABLES:
        write(name)


if __name__ == "__main__":
    main()
