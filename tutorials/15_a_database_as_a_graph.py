# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A database as a graph
#
# In this tutorial, you train a model on a graph that never leaves its SQLite database: one class presents the tables as
# a graph, another one as features. Two processes train the model together, once with PyTorch's
# `DistributedDataParallel` and once with Lightning, and both runs produce the same model.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import cloudpickle
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import graphfeed as gf
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## The database
#
# We fill three tables from WordNet, which is included in graphfeed: meanings of words (synsets) and their subject
# fields, relations between synsets, and the words of their definitions. In your case, the tables already exist.

# %%
wordnet = gf.datasets.wordnet()
count = wordnet.metadata["num_nodes"]["synset"]
fields = torch.empty(count, dtype=torch.int64)
for items in (wordnet.train_set, wordnet.validation_set, wordnet.test_set):
    synsets, labels = items[:]["synset"]
    fields[synsets] = labels
ends = to_coo(wordnet.graph)
relations = [name for name in wordnet.metadata["edge_types"] if "word" not in name]
sources = torch.cat([ends[name].sources for name in relations])
destinations = torch.cat([ends[name].destinations for name in relations])
owners, words = wordnet.feature.read("node", "synset", "feat").nonzero(as_tuple=True)

# %% [markdown]
# Lookups need an index: edges by their destination, and words by their synset.

# %%
path = Path("scratch/wordnet.sqlite").absolute()
path.parent.mkdir(exist_ok=True)
path.unlink(missing_ok=True)
with closing(sqlite3.connect(path)) as db:
    db.executescript(
        """
        CREATE TABLE synset (id INTEGER PRIMARY KEY, field INTEGER);
        CREATE TABLE edge (id INTEGER PRIMARY KEY, source INTEGER, destination INTEGER);
        CREATE TABLE definition (synset INTEGER, word INTEGER);
        """
    )
    db.executemany("INSERT INTO synset VALUES (?, ?)", enumerate(fields.tolist()))
    edges = zip(range(len(sources)), sources.tolist(), destinations.tolist(), strict=True)
    db.executemany("INSERT INTO edge VALUES (?, ?, ?)", edges)
    db.executemany("INSERT INTO definition VALUES (?, ?)", zip(owners.tolist(), words.tolist(), strict=True))
    db.execute("CREATE INDEX edge_by_destination ON edge (destination, source)")
    db.execute("CREATE INDEX definition_by_synset ON definition (synset, word)")
    db.commit()
    for table in ("synset", "edge", "definition"):
        print(table, *db.execute(f"SELECT count(*) FROM {table}").fetchone())


# %% [markdown]
# ## A graph
#
# A custom graph derives from `SamplingGraph`. It defines the numbers of nodes and edges, and a method that samples one
# hop. All samplers for graphs without timestamps are based on these.
#
# `look_up` opens a separate connection in each call, so worker threads and processes can query concurrently. Only the
# path is sent to them.


# %%
def look_up(path: Path, query: str, ids: torch.Tensor) -> torch.Tensor:
    """Return the result of a query that has a list of ids as its parameter."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(query, [json.dumps(ids.tolist())]).fetchall()
    width = query.partition("FROM")[0].count(",") + 1
    return torch.from_numpy(np.array(rows, dtype=np.int64).reshape(-1, width))


class DatabaseGraph(gf.SamplingGraph):
    """The synsets of the database, and the edges between them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as db:
            self.counts: list[int] = [
                db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("synset", "edge")
            ]

    @property
    def num_nodes(self) -> int:
        return self.counts[0]

    @property
    def num_edges(self) -> int:
        return self.counts[1]

    def sample_neighbors(
        self,
        seeds: torch.Tensor | dict[str, torch.Tensor],
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        """Return up to `fanouts` in-edges of each seed."""
        if replace or probs_name is not None or key is None or isinstance(seeds, dict):
            raise NotImplementedError("sampling needs a key, and supports no types, replacement or weights")
        rows = look_up(
            self.path,
            "SELECT destination, source, id FROM edge WHERE destination IN (SELECT value FROM json_each(?))",
            seeds,
        )
        # Shuffle the edges of each column, so that the first ones are a random sample.
        chances = torch.rand(len(rows), generator=torch.Generator().manual_seed(key))
        rows = rows[np.lexsort((chances.numpy(), rows[:, 0].numpy()))]
        columns = rows[:, 0].contiguous()
        begin, end = torch.searchsorted(columns, seeds), torch.searchsorted(columns, seeds, right=True)
        degrees = end - begin
        if fanouts >= 0:
            degrees = degrees.clamp(max=int(fanouts))
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
        chosen = (begin - indptr[:-1]).repeat_interleave(degrees) + torch.arange(int(indptr[-1]))
        csc = gf.CSCFormatBase(indptr, rows[chosen, 1])
        return gf.SampledSubgraph(csc, original_column_node_ids=seeds, original_edge_ids=rows[chosen, 2])


graph = DatabaseGraph(path)

# %% [markdown]
# The key determines the random numbers. It depends on the random seed, the epoch and the mini-batch, and not on the
# worker. The mini-batches of this graph are therefore also the same for any number of workers and ranks.
#
# Is the graph correct? We fetch all in-edges of some synsets, and compare them with the edges that we wrote.

# %% tags=["exact"]
some = torch.tensor([1740, 17, 100_000])
hop = graph.in_subgraph(some)
assert torch.equal(destinations[hop.original_edge_ids], some.repeat_interleave(hop.sampled_csc.indptr.diff()))
assert torch.equal(sources[hop.original_edge_ids], hop.sampled_csc.indices)
assert hop.sampled_csc.indptr.diff().tolist() == [int((destinations == node).sum()) for node in some]
hop.sampled_csc.indptr


# %% [markdown]
# ## Features
#
# A custom feature derives from `Feature` and reads the rows of the given nodes. A row has a one for each word of the
# definition.


# %%
class DatabaseFeature(gf.Feature):
    """The words of definitions, in 2,048 columns."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.num_rows = path, count

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of the given nodes, in the same order."""
        ids = torch.arange(self.num_rows) if ids is None else ids
        query = "SELECT synset, word FROM definition WHERE synset IN (SELECT value FROM json_each(?))"
        synsets, words = look_up(self.path, query, ids).T.contiguous()
        ids_in_order, order = ids.sort()
        rows = torch.zeros(len(ids), 2048)
        rows[order[torch.searchsorted(ids_in_order, synsets)], words] = 1
        return rows

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return torch.Size([2048])

    def count(self) -> int:
        """Return the number of rows."""
        return self.num_rows

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Not supported: the table is read-only."""
        raise NotImplementedError("definitions can't be changed")


features = gf.BasicFeatureStore({("node", None, "words"): DatabaseFeature(path, count)})

# %% [markdown]
# ## A pipeline
#
# `DistributedItemSampler` gives each rank its share of the mini-batches. A single process is one rank. We train on
# 8,192 synsets and test on 2,048 others.

# %%
torch.manual_seed(0)
train_ids, test_ids, _ = torch.randperm(count).split([8_192, 2_048, count - 10_240])
train_set, test_set = (gf.ItemSet((ids, fields[ids]), names=("seeds", "labels")) for ids in (train_ids, test_ids))


def make_pipe(items: gf.ItemSet, shuffle: bool = False) -> gf.Datapipe:
    """Return a pipeline of synsets; each rank gets its share of the mini-batches."""
    pipe = gf.DistributedItemSampler(items, batch_size=256, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=[5, 5])
    return pipe.fetch_feature(features, node_feature_keys=["words"])


print(make_pipe(train_set))


# %% [markdown]
# ## A model
#
# The model is GraphSAGE, with one layer per hop.


# %%
class Net(nn.Module):
    """Layers that add a linear map of a node's vector and one of its neighbours' mean."""

    def __init__(self, sizes: Sequence[int] = (64, 64, 45)) -> None:
        super().__init__()
        self.words = nn.Linear(2048, sizes[0])
        pairs = list(pairwise(sizes))
        self.nodes = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.neighbours = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairs)

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return a row of scores for each seed."""
        h: torch.Tensor = self.words(minibatch.node_features["words"])
        for node, neighbour, hop in zip(self.nodes, self.neighbours, minibatch.sampled_subgraphs, strict=True):
            csc, h = hop.sampled_csc, h.relu()
            degrees = csc.indptr.diff()
            sums = torch.zeros(len(degrees), h.shape[1])
            sums = sums.index_add(0, torch.repeat_interleave(degrees), h[csc.indices])
            h = node(h[: len(degrees)]) + neighbour(sums / degrees.clamp(min=1)[:, None])
        return h


# %% [markdown]
# ## Share the job with other processes
#
# In a project, the pipeline and the model would be in a module that all processes import. A notebook is not a module,
# so cloudpickle writes them to a file. The items are in memory that is shared as long as the notebook runs.

# %%
job = make_pipe(train_set, shuffle=True), Net
written = Path("scratch/job.pkl").write_bytes(cloudpickle.dumps(job))
print(f"{written >> 10} KiB")

# %% [markdown]
# ## A loop for two ranks
#
# The loop is the same as for one process, except for two lines: `init_process_group`, and `DistributedDataParallel`,
# which averages the gradients of all ranks.

# %%
DDP = """
import cloudpickle, torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
import graphfeed as gf

distributed.init_process_group("gloo")
with open("scratch/job.pkl", "rb") as file:
    pipe, Net = cloudpickle.load(file)

torch.manual_seed(0)
net, losses = DistributedDataParallel(Net()), []
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
with gf.DataLoader(pipe, num_workers=1, seed=0) as loader:
    for epoch in (1, 2, 3):
        loader.set_epoch(epoch)
        for minibatch in loader:
            loss = functional.cross_entropy(net(minibatch), minibatch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

if distributed.get_rank() == 0:
    torch.save((net.module.state_dict(), losses), "scratch/ddp.pt")
"""

# %% [markdown]
# ## The same with Lightning
#
# Lightning accepts the loader unchanged, and runs its own loop. It begins epoch 0 only to check for data, and trains
# starting at epoch 1. This is why the loop above starts at epoch 1.

# %%
LIGHTNING = """
from pytorch_lightning import LightningModule, Trainer

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.losses = Net(), []

    def training_step(self, minibatch, index):
        loss = functional.cross_entropy(self.net(minibatch), minibatch.labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

torch.manual_seed(0)
model = Model()
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, **quiet)
with gf.DataLoader(pipe, num_workers=1, seed=0) as loader:
    trainer.fit(model, loader)

if trainer.is_global_zero:
    torch.save((model.net.state_dict(), model.losses), "scratch/lightning.pt")
"""

# %% [markdown]
# torchrun starts two ranks, which train with one loop and then with the other.

# %%
Path("scratch/train.py").write_text(DDP + LIGHTNING)
environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
done = subprocess.run([*torchrun, "scratch/train.py"], env=environment, capture_output=True, text=True, timeout=250)
assert done.returncode == 0, done.stderr


# %% [markdown]
# ## Both runs train the same model
#
# The mini-batches are the same, in the same order. So are the losses, step by step, and the final models.

# %%
(parameters, ddp_losses), (lightning_parameters, lightning_losses) = (
    torch.load(f"scratch/{name}.pt", weights_only=True) for name in ("ddp", "lightning")
)
torch.testing.assert_close(lightning_parameters, parameters)
torch.testing.assert_close(lightning_losses, ddp_losses)

net = Net()
net.load_state_dict(parameters)
with torch.no_grad(), gf.DataLoader(make_pipe(test_set), num_workers=1, seed=0) as loader:
    right = torch.cat([net(minibatch).argmax(1) == minibatch.labels for minibatch in loader])
most = fields[test_ids].bincount().max() / len(test_ids)
print(f"test accuracy {right.float().mean():.2f}; the most frequent field has {most:.2f}")

# %% tags=["remove-cell"]
assert right.float().mean() > 0.5

# %%
names = np.array(wordnet.metadata["class_names"])
frequent = fields[test_ids].bincount(minlength=45).argsort(descending=True)[:12]
shares = [right[fields[test_ids] == field].float().mean().item() for field in frequent]

figure, (curve, bars) = plt.subplots(1, 2, figsize=(10, 3.6))
curve.plot(ddp_losses, color="#9ecae1", linewidth=5, label="DistributedDataParallel")
curve.plot(lightning_losses, color="#d94801", linewidth=1.2, label="Lightning")
curve.set(xlabel="step", ylabel="loss", title="Training, first of two ranks", ylim=(0, None))
curve.legend()
bars.barh(names[frequent], shares, color="#08519c")
bars.set(xlabel="share of test synsets found", title="The most frequent fields", xlim=(0, 1))
bars.invert_yaxis()
plt.show()

# %% [markdown]
# ## Further reading
#
# - If a copy is acceptable, [docs/ingest.md](../docs/ingest.md) builds a data set from queries: `build_dataset` accepts
#   the results of ADBC cursors, of PostgreSQL and SQLite among others, and numbers the ids itself.
# - [docs/how-to/own-storage.md](../docs/how-to/own-storage.md) describes what else custom graphs and features can do.
# - [docs/many-machines.md](../docs/many-machines.md) explains how to start ranks on several machines.
# - M. Fey and others, "Relational Deep Learning" (2023), on models of databases.
