"""Training steps in plain JAX, each the twin of a candle model in models.rs, as StableHLO: `twins.py MODEL DEPTH BATCH FILE`.

Everything is f32, as in models.rs. The step is jitted with its state donated, and lowered from shapes alone.
"""

import math
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

WIDTH, HEADS, TIME, VOCABULARY = 768, 12, 1024, 50257


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def adamw(p, state, g):
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    first, second = 1 - 0.9**t, 1 - 0.999**t
    new = lambda p, m, v: p * (1 - 1e-3 * 0.01) - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)  # noqa: E731
    return jax.tree.map(new, p, m, v), (m, v, t)


def momentum(p, m, g):
    m = jax.tree.map(lambda m, g, p: 0.9 * m + g + 1e-4 * p, m, g, p)
    return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m


def linear(inputs, outputs):
    return {"w": array(inputs, outputs), "b": array(outputs)}


def dense(p, x):
    return x @ p["w"] + p["b"]


def mlp(batch, _depth):
    p = [linear(784, 2048), linear(2048, 2048), linear(2048, 10)]

    def loss(p, _, x, y):
        for layer in p[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(p[-1], x), y), ()

    return p, (), loss, adamw, (p, p, array()), array(batch, 784), array(batch, dtype=jnp.uint32)


def convolution(inputs, outputs, kernel):
    p = {"k": array(kernel, kernel, inputs, outputs), "scale": array(outputs), "shift": array(outputs)}
    return p, {"mean": array(outputs), "variance": array(outputs)}


def convolve(p, running, x, stride):
    """A convolution and its batch norm; returns the new running statistics, too."""
    padding = [(p["k"].shape[0] // 2,) * 2] * 2
    x = jax.lax.conv_general_dilated(x, p["k"], (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = math.prod(x.shape[:3])
    new = {
        "mean": 0.9 * running["mean"] + 0.1 * mean,
        "variance": 0.9 * running["variance"] + 0.1 * variance * count / (count - 1),
    }
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["shift"], new


STAGES = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]


def resnet18(batch, depth):
    stages = STAGES[: 2 * depth]
    convolutions = [convolution(3, 64, 7)]
    for inputs, outputs, stride in stages:
        convolutions += [convolution(inputs, outputs, 3), convolution(outputs, outputs, 3)]
        convolutions += [convolution(inputs, outputs, 1)] if stride == 2 else []
    p, running = ([c[part] for c in convolutions] for part in range(2))
    p = {"convolutions": p, "head": linear(stages[-1][1], 1000)}

    def loss(p, running, x, y):
        left = iter(zip(p["convolutions"], running))
        statistics = []

        def next_convolution(x, stride):
            x, new = convolve(*next(left), x, stride)
            statistics.append(new)
            return x

        x = jax.nn.relu(next_convolution(x, 2))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
        for _, _, stride in stages:
            inner = next_convolution(jax.nn.relu(next_convolution(x, stride)), 1)
            x = jax.nn.relu(inner + (next_convolution(x, stride) if stride == 2 else x))
        return cross_entropy(dense(p["head"], x.mean((1, 2))), y), statistics

    return p, running, loss, momentum, p, array(batch, 224, 224, 3), array(batch, dtype=jnp.uint32)


def norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["shift"]


def attend(p, x):
    batch = x.shape[0]
    split = dense(p["mixed"], x).reshape(batch, TIME, 3, HEADS, WIDTH // HEADS)
    queries, keys, values = (split[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = queries @ keys.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((TIME, TIME), bool)), scores, -jnp.inf)
    heads = jax.nn.softmax(scores, -1) @ values
    return dense(p["output"], heads.transpose(0, 2, 1, 3).reshape(batch, TIME, WIDTH))


def gpt2(batch, depth):
    normal = {"scale": array(WIDTH), "shift": array(WIDTH)}
    shapes = {"mixed": (WIDTH, 3 * WIDTH), "output": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    block = {name: linear(*shape) for name, shape in shapes.items()} | {"norms": [normal, normal]}
    p = {"tokens": array(VOCABULARY, WIDTH), "positions": array(TIME, WIDTH), "blocks": [block] * depth, "norm": normal}

    def loss(p, _, ids, labels):
        x = p["tokens"][ids] + p["positions"]
        for b in p["blocks"]:
            x = x + attend(b, norm(b["norms"][0], x))
            x = x + dense(b["down"], jax.nn.gelu(dense(b["up"], norm(b["norms"][1], x))))
        logits = norm(p["norm"], x) @ p["tokens"].T
        return cross_entropy(logits.reshape(-1, VOCABULARY), labels), ()

    ids, labels = array(batch, TIME, dtype=jnp.uint32), array(batch * TIME, dtype=jnp.uint32)
    return p, (), loss, adamw, (p, p, array()), ids, labels


MODELS = {"mlp": mlp, "resnet18": resnet18, "gpt2": gpt2}


def text(name, depth, batch):
    """The StableHLO of the training step of that model, with so many of its layers or stages."""
    p, running, loss, optimise, moments, x, y = MODELS[name](batch, depth)

    def step(state, x, y):
        p, running, moments = state
        (value, running), g = jax.value_and_grad(loss, has_aux=True)(p, running, x, y)
        p, moments = optimise(p, moments, g)
        return (p, running, moments), value

    return jax.jit(step, donate_argnums=0).lower((p, running, moments), x, y).as_text()


if __name__ == "__main__":
    name, depth, batch, path = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:
        file.write(text(name, int(depth), int(batch)))
