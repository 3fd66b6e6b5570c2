# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From GraphBolt
#
# In this tutorial, you run two programs that were written for DGL's GraphBolt, one for node classification and one for
# link prediction, with one line changed:
#
# ```diff
# - import dgl.graphbolt as gb
# + import graphfeed as gb
# ```
#
# [The guide](../docs/from-graphbolt.md) covers everything else task by task, and lists all names.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gb  # was: import dgl.graphbolt as gb
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader
device = torch.device("cpu")

# %% [markdown]
# ## A data set in GraphBolt's format
#
# You may have a folder with a `metadata.yaml`. To keep this tutorial self-contained, we write one in GraphBolt's
# format: WordNet's meanings, edges to broader and narrower ones, and words of definitions hashed to 256 columns.

# %%
wordnet = gb.datasets.wordnet()
edges = to_coo(wordnet.graph)["synset:hypernym:synset"]
both_ways = torch.stack(
    [torch.cat([edges.sources, edges.destinations]), torch.cat([edges.destinations, edges.sources])]
)
feat = wordnet.feature.read("node", "synset", "feat").view(-1, 8, 256).amax(1)

folder = Path("scratch/graphbolt")
folder.mkdir(parents=True, exist_ok=True)
np.save(folder / "edges.npy", both_ways.long().numpy())
np.save(folder / "feat.npy", feat.float().numpy())
for part, items in (("train", wordnet.train_set), ("test", wordnet.test_set)):
    ids, labels = items[:]["synset"]
    np.save(folder / f"{part}_seeds.npy", ids.numpy())
    np.save(folder / f"{part}_labels.npy", labels.numpy())

METADATA = """\
dataset_name: wordnet
graph:
  nodes:
    - num: 117659
  edges:
    - {format: numpy, path: edges.npy}
feature_data:
  - {domain: node, name: feat, format: numpy, path: feat.npy}
tasks:
  - name: node_classification
    num_classes: 45
    train_set:
      - data:
          - {name: seeds, format: numpy, path: train_seeds.npy}
          - {name: labels, format: numpy, path: train_labels.npy}
    test_set:
      - data:
          - {name: seeds, format: numpy, path: test_seeds.npy}
          - {name: labels, format: numpy, path: test_labels.npy}
"""
(folder / "metadata.yaml").write_text(METADATA)
print(*sorted(path.name for path in folder.glob("*.*")))

# %% [markdown]
# The actual program starts here. It can also open folders that GraphBolt has preprocessed.

# %% tags=["exact"]
dataset = gb.OnDiskDataset("scratch/graphbolt").load()
graph, feature = dataset.graph, dataset.feature
train_set, test_set = dataset.tasks[0].train_set, dataset.tasks[0].test_set
num_classes = dataset.tasks[0].metadata["num_classes"]
print(graph)

# %% [markdown]
# ## Node classification
#
# This is the pipeline of DGL's tutorials, stage by stage.


# %%
def create_dataloader(itemset: gb.ItemSet | gb.HeteroItemSet, shuffle: bool) -> gb.DataLoader:
    datapipe = gb.ItemSampler(itemset, batch_size=1024, shuffle=shuffle)
    datapipe = datapipe.sample_neighbor(graph, [4, 4])
    datapipe = datapipe.fetch_feature(feature, node_feature_keys=["feat"])
    datapipe = datapipe.copy_to(device)
    return gb.DataLoader(datapipe, num_workers=2, seed=0)


train_dataloader = create_dataloader(train_set, shuffle=True)
test_dataloader = create_dataloader(test_set, shuffle=False)

# %% [markdown]
# If DGL is installed, `minibatch.blocks` still works with the layers of `dgl.nn`. The layer here only needs torch:
# `to_pyg` returns the vectors of sources, the endpoints of the edges, and the numbers of rows and columns.


# %%
class SAGE(nn.Module):
    """GraphSAGE with two layers."""

    def __init__(self, in_size: int, hidden_size: int, out_size: int) -> None:
        super().__init__()
        sizes = [(in_size, hidden_size), (hidden_size, out_size)]
        self.own = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.neighbours = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)

    def forward(self, subgraphs: list[gb.SampledSubgraph], x: torch.Tensor) -> torch.Tensor:
        for layer, subgraph in enumerate(subgraphs):
            (x, _), (source, destination), (_, count) = subgraph.to_pyg(x.relu())
            sums = x.new_zeros(count, x.shape[1]).index_add(0, destination, x[source])
            means = sums / destination.bincount(minlength=count).clamp(min=1)[:, None]
            x = self.own[layer](x[:count]) + self.neighbours[layer](means)
        return x


@torch.no_grad()
def evaluate(model: SAGE) -> float:
    right = []
    for minibatch in test_dataloader:
        scores = model(minibatch.sampled_subgraphs, minibatch.node_features["feat"])
        right.append(scores.argmax(1) == minibatch.labels)
    return torch.cat(right).float().mean().item()


torch.manual_seed(0)
model = SAGE(256, 64, num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
accuracies = []
for _ in range(3):
    for minibatch in train_dataloader:
        scores = model(minibatch.sampled_subgraphs, minibatch.node_features["feat"])
        loss = functional.cross_entropy(scores, minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracies.append(evaluate(model))
print(f"the field of {accuracies[-1]:.0%} of the test meanings is found")

# %% tags=["remove-cell"]
assert accuracies[-1] > 0.7

# %% [markdown]
# ## Link prediction
#
# The seeds are now pairs. The pipeline draws negatives, and excludes the edges to predict from the sampled subgraphs.
# The model computes a vector for each node; the dot product of two vectors is the score of an edge between them.

# %%
pairs = both_ways[:, torch.randperm(both_ways.shape[1] // 2)].T.long()
train_pairs, test_pairs = gb.ItemSet(pairs[:40960], names="seeds"), gb.ItemSet(pairs[-8192:], names="seeds")


def create_link_dataloader(itemset: gb.ItemSet) -> gb.DataLoader:
    datapipe = gb.ItemSampler(itemset, batch_size=1024, shuffle=True)
    datapipe = datapipe.sample_uniform_negative(graph, 1)
    datapipe = datapipe.sample_neighbor(graph, [4, 4])
    datapipe = datapipe.exclude_seed_edges(include_reverse_edges=True)
    datapipe = datapipe.fetch_feature(feature, node_feature_keys=["feat"])
    datapipe = datapipe.copy_to(device)
    return gb.DataLoader(datapipe, num_workers=2, seed=0)


def score(model: SAGE, minibatch: gb.MiniBatch) -> torch.Tensor:
    h = model(minibatch.sampled_subgraphs, minibatch.node_features["feat"])
    source, destination = minibatch.compacted_seeds.T
    products: torch.Tensor = h[source] * h[destination]
    return products.sum(1)


link_model = SAGE(256, 64, 64)
optimizer = torch.optim.Adam(link_model.parameters(), lr=0.005)
losses = []
with create_link_dataloader(train_pairs) as link_dataloader:
    for minibatch in link_dataloader:
        loss = functional.binary_cross_entropy_with_logits(score(link_model, minibatch), minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

with torch.no_grad(), create_link_dataloader(test_pairs) as link_dataloader:
    found = [(score(link_model, minibatch), minibatch.labels) for minibatch in link_dataloader]
positive, negative = (torch.cat([scores[labels == label] for scores, labels in found]) for label in (1, 0))
auc = (positive[:, None] > negative).float().mean().item()
print(f"an edge has a higher score than a drawn pair in {auc:.0%} of all cases")

# %% tags=["remove-cell"]
assert auc > 0.7

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
left.plot(range(1, 4), accuracies, color="#08519c", marker="o")
left.set(xlabel="epoch", xticks=[1, 2, 3], ylabel="test accuracy", ylim=(0, 1), title="Node classification")
for scores, label, colour in ((positive, "edges", "#08519c"), (negative, "drawn pairs", "#d94801")):
    right.hist(scores.numpy(), bins=60, range=(-4, 8), histtype="step", color=colour, label=label)
right.set(xlabel="score", yticks=[], title="Link prediction")
right.legend()
plt.show()

# %% [markdown]
# ## Reproducible mini-batches
#
# Mini-batches no longer depend on the number of workers. Here, we compare two workers with none.


# %% tags=["exact"]
def first_nodes(num_workers: int) -> list[int]:
    datapipe = gb.ItemSampler(train_set, batch_size=1024, shuffle=True).sample_neighbor(graph, [4, 4])
    with gb.DataLoader(datapipe, num_workers=num_workers, seed=0) as dataloader:
        nodes: list[int] = next(iter(dataloader)).input_nodes.tolist()
    return nodes


print("the same nodes:", first_nodes(0) == first_nodes(2))

# %% [markdown]
# A few numbers are therefore enough to save the position of a loader: see [Stop and resume](09_stop_and_resume.ipynb).
# A loader also explains how it runs the pipeline.

# %%
print(train_dataloader.explain())

# %%
train_dataloader.close()
test_dataloader.close()

# %% [markdown]
# ## What next
#
# - [Link prediction](04_link_prediction.ipynb): how to keep test edges out of training, and how to evaluate.
# - [From GraphBolt](../docs/from-graphbolt.md): custom stages and samplers, caches, DDP, what differs and why.
# - [On a GPU](11_on_a_gpu.ipynb): where `copy_to` may be placed.
# - DGL's documentation: [Stochastic training of GNNs with
#   GraphBolt](https://www.dgl.ai/dgl_docs/stochastic_training/index.html).
