# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From tables to a trained model
#
# In this tutorial, you build a data set from three tables, in CSV and Parquet, and train a model to predict the maker
# of a plane from its routes and airlines. The tables are as messy as real ones: ids are strings, values are missing,
# and some rows refer to entries that another table lacks.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.ingest import build_dataset, inspect_dataset, read_spec

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## The tables
#
# They contain all flights from New York in July 2013, the planes that were used, and the airlines.

# %%
folder = Path("scratch/flights")
shutil.rmtree(folder, ignore_errors=True)
shutil.copytree("data/flights", folder)
for path in sorted(folder.iterdir()):
    print(path.name)
pq.read_table(folder / "flights.parquet").slice(0, 1).to_pylist()

# %% [markdown]
# A plane has a tail number, by which flights refer to it.

# %%
planes = csv.read_csv(folder / "planes.csv")
planes.slice(0, 1).to_pylist()

# %% [markdown]
# ## Clean the data
#
# The task is to predict the maker of a plane. The column has both "AIRBUS" and "AIRBUS INDUSTRIE", and many rare
# makers. We keep the first word of the five large ones. Another new column splits the planes into training and test.

# %%
words = [text.split()[0] for text in planes["manufacturer"].to_pylist()]
maker = [word if word in ("AIRBUS", "BOEING", "BOMBARDIER", "EMBRAER", "MCDONNELL") else "OTHER" for word in words]
part = np.random.default_rng(0).choice(["train", "test"], size=len(maker), p=[0.6, 0.4])
planes = planes.append_column("maker", pa.array(maker)).append_column("part", pa.array(part))
csv.write_csv(planes, folder / "planes.csv")

# %% [markdown]
# ## A specification
#
# A specification lists the columns that are ids, features and labels. An edge type is `source:relation:destination`,
# and messages flow in this direction. Planes should learn from their flights, so planes are the destinations.
#
# The only feature of a plane is the year in which it was built: `seats` would give the answer away. `missing` replaces
# missing years. Airports have no table: their ids are collected from the flights.

# %%
text = """
name: flights
nodes:
  airline: {files: airlines.csv, id: carrier}
  plane:
    files: planes.csv
    id: tailnum
    features: {year: year}
    missing: 2000
    label: maker
    split: {column: part, train: train, test: test}
edges:
  airline:flies:plane: {files: flights.parquet, source: carrier, destination: tailnum}
  airport:reached_by:plane:
    {files: flights.parquet, source: dest, destination: tailnum, features: {miles: miles}}
"""
(folder / "spec.yaml").write_text(text)
spec = read_spec(folder / "spec.yaml")

# %% [markdown]
# ## Build the data set
#
# `build_dataset` stops at the first invalid row and reports it: a flight whose plane is not in the table of planes.

# %%
try:
    build_dataset(spec, folder / "dataset")
except ValueError as error:
    print(str(error).replace(f"{folder.resolve()}/", ""))

# %% [markdown]
# The registry of planes has gaps, which we can tolerate. `on_error="skip"` skips such rows and counts them. The command
# line does the same: `graphfeed ingest spec.yaml dataset --on-error skip`.

# %%
build_dataset(spec, folder / "dataset", on_error="skip")
report = inspect_dataset(folder / "dataset")
print(str(report).replace(f"{folder.resolve()}/", ""))

# %% [markdown]
# The data set opens in milliseconds, because graph and features stay in their files. Nodes are now numbered, and `ids`
# returns their original ids.

# %%
dataset = gf.OnDiskDataset(folder / "dataset").load()
graph, task = dataset.graph, dataset.tasks[0]
makers = task.metadata["class_names"]
print(graph)
print(makers)
print(dataset.ids("airport")[[0, 1, 2]])

# %% [markdown]
# ## Mini-batches
#
# A mini-batch contains some planes, and up to 20 of each plane's flights, with destination, distance and airline.


# %%
def make_pipe(items: gf.ItemSet | gf.HeteroItemSet, shuffle: bool) -> gf.Datapipe:
    """Return a pipeline of planes with sampled flights."""
    pipe = gf.ItemSampler(items, batch_size=128, shuffle=shuffle)
    pipe = pipe.sample_neighbor(graph, fanouts=[20])
    edge_keys = {"airport:reached_by:plane": ["miles"]}
    return pipe.fetch_feature(dataset.feature, node_feature_keys={"plane": ["year"]}, edge_feature_keys=edge_keys)


next(iter(make_pipe(task.train_set, shuffle=False)))


# %% [markdown]
# ## A model
#
# A plane is described by its year and by the mean of its flights. Airports and airlines have no features, so each of
# them has a learned vector.


# %%
def mean_by_column(csc: gf.CSCFormatBase, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean over the edges of each column; `rows` has one row per edge."""
    degrees = csc.indptr.diff()
    sums = torch.zeros(len(degrees), rows.shape[1]).index_add(0, torch.repeat_interleave(degrees), rows)
    return sums / degrees.clamp(min=1)[:, None]


class Net(nn.Module):
    """Predicts the maker of a plane from one hop of neighbours."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.year, self.miles = nn.Linear(1, size), nn.Linear(1, size)
        self.airport = nn.Embedding(len(dataset.ids("airport")), size)
        self.airline = nn.Embedding(len(dataset.ids("airline")), size)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, len(makers)))

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return a row of scores for each plane."""
        reached, flown = (
            minibatch.sampled_subgraphs[0].sampled_csc[edge_type]
            for edge_type in ("airport:reached_by:plane", "airline:flies:plane")
        )
        year = minibatch.node_features["plane", "year"].float()
        miles = minibatch.edge_features[0]["airport:reached_by:plane", "miles"].float()
        airports = self.airport(minibatch.input_nodes["airport"])[reached.indices]
        airlines = self.airline(minibatch.input_nodes["airline"])[flown.indices]
        h = self.year((year - 2000) / 10) + mean_by_column(flown, airlines)
        scores: torch.Tensor = self.head(h + mean_by_column(reached, airports + self.miles(miles / 1000)))
        return scores


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
with gf.DataLoader(make_pipe(task.train_set, shuffle=True), num_workers=1, seed=0) as loader:
    for _ in range(20):
        for minibatch in loader:
            loss = functional.cross_entropy(net(minibatch), minibatch.labels["plane"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

# %% [markdown]
# ## How well does it work?

# %%
with torch.no_grad(), gf.DataLoader(make_pipe(task.test_set, shuffle=False), num_workers=1, seed=0) as loader:
    parts = [(batch.seeds["plane"], net(batch).argmax(1), batch.labels["plane"]) for batch in loader]
tested, found, labels = (torch.cat(part) for part in zip(*parts, strict=True))
accuracy = (found == labels).float().mean().item()
most = labels.bincount().max() / len(labels)
print(f"test accuracy {accuracy:.2f}; the most frequent maker has {most:.2f}")

# %% tags=["remove-cell"]
assert accuracy > 0.8

# %% [markdown]
# The left plot shows which makers are mistaken for which. The right plot shows why the model works: it compares how far
# planes fly, grouped by predicted maker.

# %%
confusion = torch.zeros(len(makers), len(makers)).index_put_((labels, found), torch.ones(len(labels)), accumulate=True)
confusion = confusion / confusion.sum(1, keepdim=True).clamp(min=1)

flights = graph.in_subgraph({"plane": tested})
counts = flights.sampled_csc["airport:reached_by:plane"].indptr.diff()
edge_ids = flights.original_edge_ids["airport:reached_by:plane"]
miles = dataset.feature.read("edge", "airport:reached_by:plane", "miles", edge_ids)[:, 0]
miles_by_maker = [miles[found.repeat_interleave(counts) == number].tolist() for number in range(len(makers))]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), width_ratios=[1, 1.3])
left.imshow(confusion, cmap="Blues", vmin=0, vmax=1)
left.set(xticks=range(len(makers)), yticks=range(len(makers)), yticklabels=makers, xlabel="found", ylabel="true")
left.set_title("Share of the planes of a maker")
left.set_xticklabels(makers, rotation=45, ha="right")
right.boxplot(miles_by_maker, orientation="horizontal", tick_labels=makers, whis=(5, 95), showfliers=False)
right.set(xlabel="miles of a flight", title="How far their planes fly")
right.invert_yaxis()
plt.show()

# %% [markdown]
# ## Further reading
#
# - [docs/ingest.md](../docs/ingest.md) lists all keys of a specification, and explains what happens to invalid rows.
# - [From TFRecords](16_from_tfrecords.ipynb) does the same for files that were written for TensorFlow.
# - [data/README.md](data/README.md) describes the data.
