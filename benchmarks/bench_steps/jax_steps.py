"""A training program of `cargo xtask bench steps`: JAX, each step compiled as one, its state donated.
It uses as many threads as the process has cores. See steps.py for what it is told and answers."""

import os
import sys

import steps

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

HEADS, WIDTH, TIME, VOCABULARY = steps.HEADS, steps.WIDTH, steps.TIME, steps.VOCABULARY


def linear(weights, inputs, outputs):
    return {"w": jnp.asarray(weights.next((outputs, inputs), inputs).T), "b": jnp.zeros(outputs)}


def dense(p, x):
    return x @ p["w"] + p["b"]


def mlp(weights, batch):
    p = [linear(weights, 784, 512), linear(weights, 512, 512), linear(weights, 512, 10)]

    def scores(p, x):
        for layer in p[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return dense(p[-1], x)

    return p, scores, weights.inputs((batch, 784)), steps.labels(batch)


def kernel(weights, inputs, outputs):
    return {"w": jnp.asarray(weights.next((outputs, inputs, 3, 3), inputs * 9)), "b": jnp.zeros((outputs, 1, 1))}


def convolve(p, x):
    return jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME") + p["b"]


def pool(x):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4


def cnn(weights, batch):
    p = [kernel(weights, 1, 16), kernel(weights, 16, 32), linear(weights, 32 * 49, 128), linear(weights, 128, 10)]

    def scores(p, x):
        for layer in p[:2]:
            x = pool(jax.nn.relu(convolve(layer, x)))
        return dense(p[3], jax.nn.relu(dense(p[2], x.reshape(len(x), -1))))

    return p, scores, weights.inputs((batch, 1, 28, 28)), steps.labels(batch)


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["w"] + p["b"]


def block(weights):
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "output": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {name: linear(weights, *shape) for name, shape in shapes.items()} | {"norms": [new_norm(), new_norm()]}


def new_norm():
    return {"w": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}


def attend(p, x):
    batch = x.shape[0]
    split = dense(p["qkv"], x).reshape(batch, TIME, 3, HEADS, WIDTH // HEADS)
    queries, keys, found = (split[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = queries @ keys.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((TIME, TIME), bool)), scores, -1e9)
    mixed = jax.nn.softmax(scores, -1) @ found
    return dense(p["output"], mixed.transpose(0, 2, 1, 3).reshape(batch, TIME, WIDTH))


def transformer(weights, batch):
    p = {
        "tokens": jnp.asarray(weights.next((VOCABULARY, WIDTH), WIDTH)),
        "positions": jnp.asarray(weights.next((TIME, WIDTH), WIDTH)),
        "blocks": [block(weights) for _ in range(6)],
        "norm": new_norm(),
        "head": jnp.asarray(weights.next((VOCABULARY, WIDTH), WIDTH).T),
    }

    def scores(p, ids):
        x = p["tokens"][ids] + p["positions"]
        for b in p["blocks"]:
            x = x + attend(b, norm(b["norms"][0], x))
            x = x + dense(b["down"], jax.nn.gelu(dense(b["up"], norm(b["norms"][1], x)), approximate=False))
        return (norm(p["norm"], x) @ p["head"]).reshape(-1, VOCABULARY)

    return p, scores, *steps.tokens(batch)


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def make(_mode, kind, batch, weights):
    p, scores, x, y = MODELS[kind](weights, batch)

    def loss(p, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(scores(p, x)), y[:, None], 1).mean()

    def adamw(state, x, y):
        p, m, v, t = state
        value, g = jax.value_and_grad(loss)(p, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        first, second = 1 - 0.9**t, 1 - 0.999**t
        new = lambda p, m, v: p * (1 - 1e-3 * 0.01) - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)  # noqa: E731
        return (jax.tree.map(new, p, m, v), m, v, t), value

    compiled = jax.jit(adamw, donate_argnums=0)
    state = [(p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.float32(0))]
    x, y = jnp.asarray(x), jnp.asarray(y)

    def step():
        state[0], value = compiled(state[0], x, y)
        return float(value)

    return step


steps.serve(sys.argv[1], sys.argv[2], make)
