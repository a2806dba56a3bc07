"""Times the training steps of training.py in a peer, on the same device: `peers.py jax|torch cpu|card MODEL:BATCH STEPS`.

JAX's steps are those of tests/jax_twins/twins.py, whose step is compiled and takes its state over. PyTorch's run eagerly, as most
code does, with TF32 as XLA has it. Both make their weights before the time to the first loss begins; Ferrotune's time has them, too.
"""

import math
import pathlib
import sys
import time

DEPTHS = {"mlp": 3, "resnet18": 4, "gpt2": 12}
CLASSES = {"mlp": 10, "resnet18": 1000, "gpt2": 50257}


def main():
    peer, place, work, steps = sys.argv[1:]
    name, batch = work.split(":")
    step = (of_jax if peer == "jax" else of_torch)(name, int(batch), place == "cpu")
    begun = time.perf_counter()
    first = float(step())
    compiled_s = time.perf_counter() - begun
    for _ in range(3):
        last = float(step())
    times_ms = []
    for _ in range(-(-int(steps) // 10)):
        begun = time.perf_counter()
        for _ in range(9):
            step()
        last = float(step())
        times_ms.append((time.perf_counter() - begun) * 100)
    times_ms.sort()
    print(f"{peer} {work}: first loss after {compiled_s:.2f} s, loss {first:.4f} -> {last:.4f}, ", end="")
    print(f"{times_ms[len(times_ms) // 2]:.3f} ms a step (least {times_ms[0]:.3f})")
    if not math.isfinite(last):
        sys.exit("the loss is no number")


def of_jax(name, batch, on_cpu):
    """A function that runs one step and returns its loss."""
    import jax

    jax.config.update("jax_platforms", "cpu" if on_cpu else None)
    # The twins are lowered for the CPU elsewhere, so they set JAX's platform; JAX has read it by then.
    jax.devices()
    import jax.numpy as jnp

    sys.path.insert(0, str(pathlib.Path(__file__).parent / "tests/jax_twins"))
    import twins

    p, running, loss, optimise, moments, x, y = twins.MODELS[name](batch, DEPTHS[name])
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 10_000))

    def weights(s):
        return 0.02 * jax.random.normal(next(keys), s.shape, s.dtype) if len(s.shape) > 1 else jnp.ones(s.shape, s.dtype)

    def data(s, below):
        if s.dtype == jnp.uint32:
            return jax.random.randint(next(keys), s.shape, 0, below).astype(s.dtype)
        return jax.random.uniform(next(keys), s.shape, s.dtype)

    def zeros(tree):
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), tree)

    def train(state, x, y):
        p, running, moments = state
        (value, running), g = jax.value_and_grad(loss, has_aux=True)(p, running, x, y)
        p, moments = optimise(p, moments, g)
        return (p, running, moments), value

    compiled = jax.jit(train, donate_argnums=0)
    held = {"state": (jax.tree.map(weights, p), zeros(running), zeros(moments))}
    x, y = data(x, CLASSES[name]), data(y, CLASSES[name])

    def step():
        held["state"], value = compiled(held["state"], x, y)
        return value

    return step


def of_torch(name, batch, on_cpu):
    """A function that runs one step and returns its loss."""
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = "cpu" if on_cpu else "cuda"
    if name == "gpt2":
        x = torch.randint(0, CLASSES[name], (batch, 1024), device=device)
        y = torch.randint(0, CLASSES[name], (batch * 1024,), device=device)
    else:
        x = torch.rand(batch, *((784,) if name == "mlp" else (3, 224, 224)), device=device)
        y = torch.randint(0, CLASSES[name], (batch,), device=device)
    model = torch_model(name).to(device)
    if name == "resnet18":
        optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    else:
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01, fused=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        logits = model(x)
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def torch_model(name):
    import torch
    from torch import nn
    from torch.nn import functional

    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    if name == "resnet18":
        import torchvision

        return torchvision.models.resnet18()
    width, heads = 768, 12

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.mixed, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            split = self.mixed(self.norms[0](x)).view(batch, length, 3, heads, width // heads)
            queries, keys, values = split.permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            x = x + self.output(attended.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(CLASSES[name], width), nn.Parameter(torch.zeros(1024, width))
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(12))), nn.LayerNorm(width)
            nn.init.normal_(self.tokens.weight, std=0.02)

        def forward(self, ids):
            return self.norm(self.blocks(self.tokens(ids) + self.positions)) @ self.tokens.weight.t()

    return Gpt2()


if __name__ == "__main__":
    main()
