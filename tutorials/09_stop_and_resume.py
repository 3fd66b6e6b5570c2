# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Stop, resume, and lose a worker
#
# In this tutorial, you stop training in the middle of an epoch, resume it with a different number of workers, and kill
# a worker. The losses are bit-identical to those of an uninterrupted run.
#
# This works because a mini-batch depends only on the pipeline, the random seed, the epoch and its index. It makes no
# difference which worker produces it, or when.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import json
import os
import signal
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader

# %% [markdown]
# ## The task
#
# The task is the one from [the first tutorial](01_first_pipeline.ipynb), with the pipeline of the README: predict the
# field of a meaning from its definition and those of broader meanings.

# %%
wordnet = gf.datasets.wordnet()
pipe = gf.ItemSampler(wordnet.train_set, batch_size=1024, shuffle=True)
pipe = pipe.sample_neighbor(wordnet.graph, fanouts=[10])
pipe = pipe.fetch_feature(wordnet.feature, node_feature_keys={"synset": ["feat"]})


class Training:
    """A model, its optimizer, and the losses so far."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(2048, wordnet.metadata["num_classes"])
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.02)
        self.losses: list[float] = []

    def step(self, minibatch: gf.MiniBatch) -> None:
        labels = minibatch.labels["synset"]
        scores = self.net(minibatch.node_features["synset", "feat"].float())
        above = minibatch.sampled_subgraphs[0].sampled_csc["synset:rev_hypernym:synset"]
        scores = scores[: len(labels)] + torch.segment_reduce(scores[above.indices], "sum", offsets=above.indptr)
        loss = functional.cross_entropy(scores, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


# %% [markdown]
# First, we train for an epoch without interruption.

# %%
undisturbed = Training()
with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    for minibatch in loader:
        undisturbed.step(minibatch)
print(f"{len(loader)} steps; the loss went from {undisturbed.losses[0]:.1f} to {undisturbed.losses[-1]:.1f}")

# %% tags=["remove-cell"]
assert undisturbed.losses[-1] < 1.3

# %% [markdown]
# ## Stop
#
# The second run stops after 25 steps, as if its time on the machine had run out. `state_dict()` returns the position of
# the loader. We save it together with the model and the optimizer.

# %%
stopped = Training()
with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    for minibatch in loader:
        stopped.step(minibatch)
        if len(stopped.losses) == 25:
            break
    state = loader.state_dict()

Path("scratch").mkdir(exist_ok=True)
nets = {"net": stopped.net.state_dict(), "optimizer": stopped.optimizer.state_dict()}
torch.save({**nets, "losses": stopped.losses, "loader": state}, "scratch/checkpoint.pt")

# %% [markdown]
# Three numbers describe the position in training. The state also contains a fingerprint of the pipeline.

# %% tags=["exact"]
print({name: state[name] for name in ("seed", "epoch", "index")})
print(len(json.dumps(state)), "characters as JSON")

# %% [markdown]
# ## Resume
#
# A new process would do the following: create everything from scratch, and load the checkpoint. This loader has three
# workers instead of two. It starts at the 26th mini-batch, without producing the earlier ones again.

# %%
checkpoint = torch.load("scratch/checkpoint.pt", weights_only=True)
resumed = Training()
resumed.net.load_state_dict(checkpoint["net"])
resumed.optimizer.load_state_dict(checkpoint["optimizer"])
resumed.losses = checkpoint["losses"]

with gf.DataLoader(pipe, num_workers=3, seed=0) as loader:
    loader.load_state_dict(checkpoint["loader"])
    for minibatch in loader:
        resumed.step(minibatch)

# %% tags=["exact"]
print("the same losses: ", resumed.losses == undisturbed.losses)
print("the same weights:", torch.equal(resumed.net.weight, undisturbed.net.weight))

# %% tags=["remove-cell"]
assert resumed.losses == undisturbed.losses

# %% [markdown]
# ## The state of a different pipeline
#
# Here, the fan-out has changed in the meantime. Resuming would mix two different epochs, so the loader raises an error
# that describes the difference.

# %% tags=["exact"]
changed = gf.ItemSampler(wordnet.train_set, batch_size=1024, shuffle=True)
changed = changed.sample_neighbor(wordnet.graph, fanouts=[5])
changed = changed.fetch_feature(wordnet.feature, node_feature_keys={"synset": ["feat"]})
try:
    gf.DataLoader(changed, num_workers=0).load_state_dict(state)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Kill a worker
#
# Workers are threads unless you request processes. A process may die: the system kills it when memory runs out, or one
# of your stages crashes. Here, we kill it ourselves after 10 steps. The loader starts another process, and produces the
# lost mini-batches again.

# %%
hit = Training()
killed = []
with gf.ProcessExecutor(2) as executor, gf.DataLoader(pipe, num_workers=2, executor=executor, seed=0) as loader:
    for minibatch in loader:
        hit.step(minibatch)
        if len(hit.losses) == 10:
            killed.append(executor.pids()[0])
            os.kill(killed[0], signal.SIGKILL)
    print("the killed process is among the workers:", killed[0] in executor.pids())

# %% tags=["exact"]
print("the same losses:", hit.losses == undisturbed.losses)

# %% tags=["remove-cell"]
assert hit.losses == undisturbed.losses

# %% [markdown]
# Three runs, one curve: each line covers the one below it.

# %%
figure, axes = plt.subplots(figsize=(7, 3.6))
axes.plot(undisturbed.losses, color="#bdd7e7", linewidth=8, label="undisturbed")
axes.plot(resumed.losses, color="#3182bd", linewidth=4, label="stopped after 25 steps, and resumed")
axes.plot(hit.losses, color="#d94801", linewidth=1, label="a worker was killed after 10 steps")
axes.axvline(24.5, color="#3182bd", linestyle=":")
axes.axvline(9.5, color="#d94801", linestyle=":")
axes.set(xlabel="step", ylabel="loss", title="Losses of three trainings")
axes.legend()
plt.show()

# %% [markdown]
# ## What next
#
# - [Many machines](10_many_machines.ipynb): a sampling server is killed, and another one takes over.
# - With torchdata, pass `loader.as_node()` to its `Loader`, whose state then includes the state of this loader.
# - [ARCHITECTURE.md](../ARCHITECTURE.md#five-ideas) explains how random numbers are drawn to make this possible.
