"""A user's own loop in JAX, one process for each GPU, saved by rank 0; stopped, it ends with 99.

It leaves behind what `tests/job_wrappers/torch/train.py` leaves, but for weights.npz.
"""

import os
import signal
import sys
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.job_wrappers.words import end_step, given

jax.distributed.initialize(
    f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    num_processes=int(os.environ["WORLD_SIZE"]),
    process_id=int(os.environ["RANK"]),
    local_device_ids=int(os.environ["LOCAL_RANK"]),
)
told: list[int] = []
# After initialize(), which takes SIGTERM itself.
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: told.append(number))

rank, size = jax.process_index(), jax.process_count()
assert jax.device_count() == size
mesh = Mesh(jax.devices(), ("gpus",))
shared = NamedSharding(mesh, PartitionSpec("gpus"))

random = np.random.default_rng(3)
inputs = random.standard_normal((given.samples, 12), dtype=np.float32)
targets = np.tanh(inputs @ random.standard_normal(12, dtype=np.float32))
weights = {
    "w1": random.standard_normal((12, 24), dtype=np.float32) / 4,
    "w2": random.standard_normal((24,), dtype=np.float32) / 4,
}
momenta = jax.tree.map(np.zeros_like, weights)
step = 0
checkpoint = given.out / "checkpoint.npz"
if checkpoint.exists():
    saved = np.load(checkpoint)
    weights = {name: saved[name] for name in weights}
    momenta = {name: saved[f"m.{name}"] for name in momenta}
    step = int(saved["step"])


@jax.jit
def train(weights: Any, momenta: Any, x: Any, y: Any) -> Any:
    def loss_of(weights: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights["w1"]) @ weights["w2"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
    return loss, jax.tree.map(lambda w, m: w - 0.02 * m, weights, momenta), momenta


def save(path: Any) -> None:
    if rank == 0:
        state = {**weights, **{f"m.{name}": m for name, m in momenta.items()}}
        np.savez(path, step=step, **state)


losses = (given.out / "losses.txt").open("a", buffering=1)
each = given.global_batch // size
steps_of_an_epoch = given.samples // given.global_batch
while step < given.epochs * steps_of_an_epoch:
    epoch, done = divmod(step, steps_of_an_epoch)
    order = np.random.default_rng(epoch).permutation(given.samples)
    own = order[done * given.global_batch + rank * each :][:each]
    x, y = (jax.make_array_from_process_local_data(shared, a[own]) for a in (inputs, targets))
    loss, weights, momenta = train(weights, momenta, x, y)
    if rank == 0:
        losses.write(f"{step} {epoch} {float(loss)!r}\n")
    step += 1
    if multihost_utils.process_allgather(np.array(bool(told))).any():
        save(checkpoint)
        sys.exit(99)
    end_step(step)

save(given.out / "weights.npz")
