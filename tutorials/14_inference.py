# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Inference on the whole graph
#
# In this tutorial, you compute embeddings of WordNet's 117,659 meanings from all of their neighbours, write them to a
# file, and plot a map of them.
#
# Training samples neighbours. For the final result, you may want to use all of them and compute each node's vector
# once: layer by layer.

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

import graphfeed as gf
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader
torch.manual_seed(0)

# %% [markdown]
# ## A model, trained on samples
#
# The graph is that of [the first tutorial](01_first_pipeline.ipynb): meanings, and edges to broader and narrower ones.

# %%
wordnet = gf.datasets.wordnet()
edges = to_coo(wordnet.graph)["synset:hypernym:synset"]
ends = (torch.cat([edges.sources, edges.destinations]), torch.cat([edges.destinations, edges.sources]))
feat = wordnet.feature.read("node", "synset", "feat")
graph = gf.from_coo(ends, num_nodes=len(feat))
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(feat)})
train_set, test_set = (
    gf.ItemSet(items[:]["synset"], names=("seeds", "labels")) for items in (wordnet.train_set, wordnet.test_set)
)

# %% [markdown]
# The model is written so that each layer can be called separately. Its second layer returns the embeddings, and a
# linear map computes scores from them.


# %%
class Layer(nn.Module):
    """A linear map of a node's vector plus a linear map of its neighbours' mean."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbours = nn.Linear(in_size, out_size, bias=False)

    def forward(self, hop: gf.SampledSubgraph, h: torch.Tensor) -> torch.Tensor:
        csc = hop.sampled_csc
        assert isinstance(csc, gf.CSCFormatBase)
        messages = self.neighbours(h.float())[csc.indices]
        means = torch.segment_reduce(messages, "mean", offsets=csc.indptr, initial=0)
        out: torch.Tensor = self.own(h[: len(means)].float()) + means
        return out.relu()


layers = nn.ModuleList([Layer(2048, 64), Layer(64, 64)])
to_scores = nn.Linear(64, wordnet.metadata["num_classes"])

pipe = gf.ItemSampler(train_set, batch_size=1024, shuffle=True)
pipe = pipe.sample_neighbor(graph, fanouts=[5, 10])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
optimizer = torch.optim.Adam([*layers.parameters(), *to_scores.parameters()], lr=0.01)
with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    for minibatch in loader:
        h = minibatch.node_features["feat"]
        for layer, hop in zip(layers, minibatch.sampled_subgraphs, strict=True):
            h = layer(hop, h)
        loss = functional.cross_entropy(to_scores(h), minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %% [markdown]
# ## Why layer by layer
#
# A mini-batch with all neighbours of two hops reads many nodes besides its seeds, and different mini-batches read the
# same nodes again and again. We count the rows that are read for all nodes.

# %% tags=["exact"]
everybody = gf.ItemSet(len(feat), names="seeds")
read = {}
for hops in (1, 2, 3):
    counting = gf.ItemSampler(everybody, batch_size=4096).sample_neighbor(graph, fanouts=[-1] * hops)
    with gf.DataLoader(counting, num_workers=2, seed=0) as loader:
        read[hops] = sum(len(minibatch.input_nodes) for minibatch in loader)
    print(f"{hops} hops: {read[hops] / len(feat):.1f} rows are read per node")

# %% [markdown]
# The number grows with each hop, and much faster on a denser graph. With layer-wise inference, each layer is a single
# pass over all nodes, with one hop.
#
# ## One pass per layer
#
# A fan-out of -1 selects all neighbours. The output of a layer for all nodes becomes the feature that the next layer
# reads. The last layer writes to a memory-mapped file, so that the result may be larger than memory.


# %%
def run_layer(layer: nn.Module, given: gf.Feature, out: torch.Tensor) -> None:
    """Apply a layer to all nodes and write the results to `out`."""
    store = gf.BasicFeatureStore({("node", None, "h"): given})
    pipe = gf.ItemSampler(everybody, batch_size=4096).sample_neighbor(graph, fanouts=[-1])
    pipe = pipe.fetch_feature(store, node_feature_keys=["h"])
    with torch.no_grad(), gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        for minibatch in loader:
            out[minibatch.seeds] = layer(minibatch.sampled_subgraphs[0], minibatch.node_features["h"])


Path("scratch").mkdir(exist_ok=True)
file = np.lib.format.open_memmap("scratch/embeddings.npy", mode="w+", dtype=np.float32, shape=(len(feat), 64))
embeddings = torch.from_numpy(file)

hidden = torch.empty(len(feat), 64)
run_layer(layers[0], gf.TorchBasedFeature(feat), hidden)
run_layer(layers[1], gf.TorchBasedFeature(hidden), embeddings)
file.flush()

# %% [markdown]
# ## The same numbers
#
# Mini-batches with all neighbours of two hops give the same vectors, up to rounding.

# %%
some = gf.ItemSampler(gf.ItemSet(torch.arange(0, len(feat), 500), names="seeds"), batch_size=4096)
some = some.sample_neighbor(graph, fanouts=[-1, -1]).fetch_feature(features, node_feature_keys=["feat"])
minibatch = next(iter(some))
with torch.no_grad():
    h = layers[0](minibatch.sampled_subgraphs[0], minibatch.node_features["feat"])
    h = layers[1](minibatch.sampled_subgraphs[1], h)
print(torch.allclose(h, embeddings[minibatch.seeds], atol=1e-4))

# %% tags=["remove-cell"]
assert torch.allclose(h, embeddings[minibatch.seeds], atol=1e-4)

# %% [markdown]
# Computing scores no longer needs the graph.

# %%
test_ids, test_labels = test_set[:]
with torch.no_grad():
    accuracy = (to_scores(embeddings[test_ids]).argmax(1) == test_labels).float().mean().item()
print(f"the field of {accuracy:.0%} of the test meanings is found")

# %% tags=["remove-cell"]
assert accuracy > 0.75

# %% [markdown]
# ## Use the file
#
# `np.load` opens the file, and so does `DiskBasedFeature`, which reads rows on request. Another pipeline can fetch them
# like any other feature.

# %% tags=["exact"]
saved = gf.DiskBasedFeature("scratch/embeddings.npy")
print(saved.count(), "rows of", tuple(saved.size()))

# %% [markdown]
# The plot shows the embeddings of meanings from six fields. Its two axes are those of the largest variance.

# %%
names = wordnet.metadata["class_names"]
shown = {name: test_ids[test_labels == names.index(name)][:1000] for name in ("noun.animal", "noun.plant", "noun.food")}
shown |= {name: test_ids[test_labels == names.index(name)][:1000] for name in ("noun.person", "verb.motion", "adj.all")}
rows = {name: saved.read(ids) for name, ids in shown.items()}
together = torch.cat(list(rows.values()))
_, _, axes_of_most = torch.linalg.svd(together - together.mean(0), full_matrices=False)

figure, axes = plt.subplots(figsize=(7, 5))
for name, vectors in rows.items():
    x, y = ((vectors - together.mean(0)) @ axes_of_most[:2].T).T
    axes.scatter(x, y, s=4, label=name, rasterized=True)
axes.set(title="Embeddings of meanings", xticks=[], yticks=[])
axes.legend(markerscale=3)
plt.show()

# %% [markdown]
# ## What next
#
# - Graphs with node types work in the same way: `wordnet.all_nodes_set` is an item set with all nodes of each type, and
#   a store has one feature per type. See [Heterogeneous graphs](03_heterogeneous_graphs.ipynb).
# - [Infer layer by layer](../docs/how-to/inference.md) shows only the loop, and [From
#   PyG](../docs/from-pyg.md#layer-wise-inference) the one for PyG models.
