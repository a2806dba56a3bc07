"""A training program of `cargo xtask bench steps`: PyTorch, MODE default or fused. See steps.py for what it is told and answers."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import steps

HEADS, WIDTH, TIME, VOCABULARY = steps.HEADS, steps.WIDTH, steps.TIME, steps.VOCABULARY


def linear(weights, inputs, outputs, bias=True):
    layer = nn.Linear(inputs, outputs, bias=bias)
    load(layer, weights, inputs)
    return layer


def load(layer, weights, fan_in):
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights.next(tuple(layer.weight.shape), fan_in)))
        if getattr(layer, "bias", None) is not None:
            layer.bias.zero_()


def mlp(weights, batch):
    model = nn.Sequential(
        linear(weights, 784, 512), nn.ReLU(), linear(weights, 512, 512), nn.ReLU(), linear(weights, 512, 10)
    )
    return model, torch.from_numpy(weights.inputs((batch, 784))), torch.from_numpy(steps.labels(batch))


def convolution(weights, inputs, outputs):
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    load(layer, weights, inputs * 9)
    return layer


def cnn(weights, batch):
    model = nn.Sequential(
        convolution(weights, 1, 16), nn.ReLU(), nn.AvgPool2d(2),
        convolution(weights, 16, 32), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), linear(weights, 32 * 7 * 7, 128), nn.ReLU(), linear(weights, 128, 10),
    )  # fmt: skip
    return model, torch.from_numpy(weights.inputs((batch, 1, 28, 28))), torch.from_numpy(steps.labels(batch))


class Block(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.queries_keys_values = linear(weights, WIDTH, 3 * WIDTH)
        self.output = linear(weights, WIDTH, WIDTH)
        self.up = linear(weights, WIDTH, 4 * WIDTH)
        self.down = linear(weights, 4 * WIDTH, WIDTH)

    def forward(self, values):
        batch, time, width = values.shape
        split = self.queries_keys_values(self.norms[0](values)).reshape(batch, time, 3, HEADS, width // HEADS)
        queries, keys, found = (split[:, :, part].transpose(1, 2) for part in range(3))
        mixed = F.scaled_dot_product_attention(queries, keys, found, is_causal=True)
        values = values + self.output(mixed.transpose(1, 2).reshape(batch, time, width))
        return values + self.down(F.gelu(self.up(self.norms[1](values))))


class Transformer(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        load(self.tokens, weights, WIDTH)
        self.positions = nn.Parameter(torch.from_numpy(weights.next((TIME, WIDTH), WIDTH)))
        self.blocks = nn.Sequential(*[Block(weights) for _ in range(6)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = linear(weights, WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions))).flatten(0, 1)


def transformer(weights, batch):
    ids, targets = steps.tokens(batch)
    return Transformer(weights), torch.from_numpy(ids), torch.from_numpy(targets)


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def make(mode, kind, batch, weights):
    model, inputs, labels = MODELS[kind](weights, batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=mode == "fused")

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


torch.set_num_threads(steps.THREADS)
steps.serve(sys.argv[1], sys.argv[2], make)
