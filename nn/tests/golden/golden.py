"""Writes golden.json: inputs, and the values of scikit-learn 1.9 (metrics) and PyTorch 2.15 (losses, with gradients, and a model).
Also writes torch.safetensors: the model's variables, as PyTorch has them.

    pip install scikit-learn torch safetensors && python nn/tests/golden/golden.py > nn/tests/golden/golden.json
"""
import json
import math
import pathlib
import warnings

import numpy as np
import safetensors.torch
import sklearn.metrics as sk
import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")
rng = np.random.default_rng(7)


def plain(value):
    """JSON without NaN: a NaN is null."""
    value = np.asarray(value, dtype=float).tolist()
    clean = lambda v: [clean(x) for x in v] if isinstance(v, list) else (None if math.isnan(v) else v)
    return clean(value)


def averages(classes):
    return [("class 1", dict(average=None, labels=[1]))] + [(n, dict(average=n)) for n in ("macro", "micro", "weighted")]


def class_scores(targets, predicted, weights, classes):
    values = {}
    functions = {"precision": sk.precision_score, "recall": sk.recall_score, "f1": sk.f1_score,
                 "f0.5": lambda *a, **k: sk.fbeta_score(*a, beta=0.5, **k)}
    for name, function in functions.items():
        for zero in (0.0, 1.0, float("nan")):
            own = {}
            for average, options in averages(classes):
                value = function(targets, predicted, sample_weight=weights, zero_division=zero, **options)
                own[average] = plain(np.ravel(value)[0])
            each = function(targets, predicted, sample_weight=weights, zero_division=zero, average=None, labels=range(classes))
            own["each"] = plain(each)
            values[f"{name} {'nan' if zero != zero else int(zero)}"] = own
    return values


def classifier(name, scores, targets, weights=None):
    """Scores of shape (n, classes), or (n,) for one logit."""
    wide = np.stack([np.zeros_like(scores), scores], 1) if scores.ndim == 1 else scores
    classes = wide.shape[1]
    predicted = wide.argmax(1)
    labels = range(classes)
    top = {str(k): plain(sk.top_k_accuracy_score(targets, wide if classes > 2 else wide[:, 1] - wide[:, 0], k=k,
                         sample_weight=weights, labels=labels)) for k in range(1, classes) if classes > 2}
    if classes == 2:
        area = sk.roc_auc_score(targets, wide[:, 1] - wide[:, 0], sample_weight=weights) if len(set(targets)) == 2 else math.nan
        each = None
    else:
        probabilities = np.exp(wide - wide.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        each = [sk.roc_auc_score(targets == c, probabilities[:, c], sample_weight=weights) if (targets == c).any()
                and not (targets == c).all() else math.nan for c in labels]
        area = math.nan if np.isnan(each).any() else sk.roc_auc_score(
            targets, probabilities, sample_weight=weights, multi_class="ovr", labels=list(labels))
    return dict(name=name, scores=plain(scores), targets=targets.tolist(), weights=None if weights is None else plain(weights),
                accuracy=plain(sk.accuracy_score(targets, predicted, sample_weight=weights)), top=top,
                scored=class_scores(targets, predicted, weights, classes), auc=plain(area),
                auc_each=None if each is None else plain(each),
                confusion=plain(sk.confusion_matrix(targets, predicted, labels=labels, sample_weight=weights)))


def eighths(*shape):
    """Numbers that bf16 has exactly, with ties."""
    return np.round(rng.normal(size=shape) * 8) / 8


def classifiers():
    yield classifier("binary logits", eighths(40), rng.integers(0, 2, 40))
    yield classifier("binary logits with weights", eighths(40), rng.integers(0, 2, 40), rng.integers(1, 9, 40) / 4)
    yield classifier("two classes", eighths(33, 2), rng.integers(0, 2, 33))
    yield classifier("five classes", eighths(60, 5), rng.integers(0, 5, 60))
    yield classifier("five classes with weights", eighths(60, 5), rng.integers(0, 5, 60), rng.integers(1, 9, 60) / 4)
    missing = eighths(30, 6)
    missing[:, 4] -= 20
    yield classifier("a class that is never predicted, one that never occurs", missing, rng.choice([0, 1, 2, 4], 30))
    missing[:, 5] -= 20
    yield classifier("a class that neither occurs nor is predicted", missing, rng.choice([0, 1, 2, 4], 30))
    yield classifier("one class only", eighths(12) - 9, np.zeros(12, dtype=int))
    yield classifier("one row", eighths(1, 3), np.array([2]))
    yield classifier("all scores equal", np.zeros((9, 3)), rng.integers(0, 3, 9))


def regression(name, outputs, targets, weights=None):
    options = dict(sample_weight=weights)
    raw = dict(multioutput="raw_values", **options)
    functions = dict(mae=sk.mean_absolute_error, mse=sk.mean_squared_error, rmse=sk.root_mean_squared_error, r2=sk.r2_score)
    values = {n: dict(value=plain(f(targets, outputs, **options)), each=plain(f(targets, outputs, **raw)))
              for n, f in functions.items()}
    return dict(name=name, outputs=plain(outputs), targets=plain(targets), weights=None if weights is None else plain(weights), **values)


def regressions():
    yield regression("one column", eighths(50), eighths(50))
    yield regression("one column with weights", eighths(50), eighths(50), rng.integers(1, 9, 50) / 4)
    yield regression("three columns", eighths(50, 3), eighths(50, 3) * [1, 10, 0.25])
    yield regression("three columns with weights", eighths(50, 3), eighths(50, 3), rng.integers(1, 9, 50) / 4)
    yield regression("far from 0", eighths(64) + 4096, eighths(64) + 4096)
    yield regression("equal targets", eighths(7), np.full(7, 0.125))
    yield regression("exact and equal", np.full(7, 0.125), np.full(7, 0.125))


def with_gradient(function, inputs):
    inputs = torch.tensor(inputs, dtype=torch.float64, requires_grad=True)
    loss = function(inputs)
    loss.backward()
    return dict(value=loss.item(), gradient=plain(inputs.grad.numpy()))


def losses():
    logits = rng.normal(size=(7, 4)) * 3
    labels = torch.tensor([0, 3, -100, 1, 2, 2, 1])
    class_weights = torch.tensor([0.5, 1.0, 2.0, 0.25], dtype=torch.float64)
    entropies = []
    for smoothing in (0.0, 0.1):
        for weights in (None, class_weights):
            for ignored in (-100, 1):
                used = torch.where(labels == -100, 1, labels) if ignored == 1 else labels
                f = lambda x: F.cross_entropy(x, used, weight=weights, ignore_index=ignored, label_smoothing=smoothing)
                entropies.append(dict(smoothing=smoothing, ignored=ignored, labels=used.tolist(),
                                      weights=None if weights is None else weights.tolist(), **with_gradient(f, logits)))
    x = rng.normal(size=(6, 3)) * 3
    t = torch.tensor(rng.integers(0, 2, (6, 3)), dtype=torch.float64)
    soft = torch.tensor(rng.uniform(size=(6, 3)))
    pos = torch.tensor([0.5, 3.0, 1.0], dtype=torch.float64)
    binary = [dict(targets=targets.tolist(), pos_weight=None if weight is None else weight.tolist(),
                   **with_gradient(lambda x: F.binary_cross_entropy_with_logits(x, targets, pos_weight=weight), x))
              for targets in (t, soft) for weight in (None, pos)]

    def sigmoid_focal(x, targets, alpha, gamma):
        """torchvision.ops.sigmoid_focal_loss with reduction="mean"."""
        p = torch.sigmoid(x)
        ce = F.binary_cross_entropy_with_logits(x, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        loss = ce * ((1 - p_t) ** gamma)
        if alpha >= 0:
            loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
        return loss.mean()

    def focal(x, targets, gamma, weights):
        log_p = F.log_softmax(x, 1).gather(1, targets[:, None])[:, 0]
        of_rows = torch.ones_like(log_p) if weights is None else weights[targets]
        return (-of_rows * (1 - log_p.exp()) ** gamma * log_p).sum() / of_rows.sum()

    binary_focal = [dict(targets=t.tolist(), alpha=alpha, gamma=gamma, **with_gradient(lambda x: sigmoid_focal(x, t, alpha, gamma), x))
                    for alpha, gamma in ((0.25, 2.0), (-1.0, 2.0), (0.75, 0.5), (-1.0, 0.0))]
    whole = torch.where(labels == -100, 1, labels)
    multi_focal = [dict(labels=whole.tolist(), gamma=gamma, weights=None if w is None else w.tolist(),
                        **with_gradient(lambda x: focal(x, whole, gamma, w), logits))
                   for gamma in (0.0, 0.5, 2.0) for w in (None, class_weights)]
    y = torch.tensor(rng.normal(size=(6, 3)))
    numbers = [dict(kind=kind, targets=y.tolist(), **with_gradient(function, x)) for kind, function in (
        ("mse", lambda x: F.mse_loss(x, y)), ("mae", lambda x: F.l1_loss(x, y)),
        ("huber", lambda x: F.huber_loss(x, y, delta=1.5)))]
    return dict(logits=plain(logits), inputs=plain(x), cross_entropy=entropies, binary=binary, binary_focal=binary_focal,
                focal=multi_focal, numbers=numbers)


def model():
    """The layers of `nn::cnn([1, 6, 5], &[2], 3).batch_norm().hidden(&[4])`, after a few steps of training."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, padding=1), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(12, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    images = torch.tensor(eighths(5, 1, 6, 5), dtype=torch.float32)
    for _ in range(5):
        optimiser.zero_grad()
        F.cross_entropy(net(images), torch.tensor([0, 1, 2, 1, 0])).backward()
        optimiser.step()
    safetensors.torch.save_file(net.state_dict(), pathlib.Path(__file__).with_name("torch.safetensors"))
    in_evaluation = net.eval()(images).detach().numpy()
    trained = net.train()(images).detach().numpy()
    after = {name: plain(value.numpy()) for name, value in net.state_dict().items() if "running" in name}
    return dict(images=plain(images.flatten(1).numpy()), in_evaluation=plain(in_evaluation), trained=plain(trained), after=after)


print(json.dumps(dict(classifiers=list(classifiers()), regressions=list(regressions()), losses=losses(), model=model())))
