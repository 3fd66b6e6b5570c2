# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # On a GPU
#
# In this tutorial, you place the copy to a GPU at three positions in a pipeline, read the loader's plan for each, and
# see how many bytes cross the bus to the GPU.
#
# A loader can explain a plan for a GPU on any machine. Cells that need a GPU are skipped if there is none; the training
# at the end then runs on the CPU.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader
has_gpu = torch.cuda.is_available()
print("there is a GPU" if has_gpu else "there is no GPU: cells that need one are skipped")

# %% [markdown]
# The graph is the one from [the first tutorial](01_first_pipeline.ipynb).

# %%
wordnet = gf.datasets.wordnet()
edges = to_coo(wordnet.graph)["synset:hypernym:synset"]
ends = (torch.cat([edges.sources, edges.destinations]), torch.cat([edges.destinations, edges.sources]))
feat = wordnet.feature.read("node", "synset", "feat")
graph = gf.from_coo(ends, num_nodes=len(feat))
rows = gf.TorchBasedFeature(feat)
features = gf.BasicFeatureStore({("node", None, "feat"): rows})
train_set = gf.ItemSet(wordnet.train_set[:]["synset"], names=("seeds", "labels"))
items = gf.ItemSampler(train_set, batch_size=1024, shuffle=True)

# %% [markdown]
# ## Copy at the end
#
# Workers sample and fetch on the CPU, and whole mini-batches are copied. The GPU only needs memory for a few
# mini-batches.

# %%
pipe = items.sample_neighbor(graph, fanouts=[5, 10])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
pipe = pipe.copy_to("cuda")
print(gf.DataLoader(pipe, num_workers=2, seed=0).explain())

# %% [markdown]
# Read the plan from the bottom up. The worker stages end at `InWorkers`. Then, each mini-batch is moved to page-locked
# memory and copied on a separate stream, by a thread that runs ahead of your loop. So the copy of the next mini-batches
# and the step on the current one overlap.
#
# ## Copy before fetching
#
# Only ids are copied here, 200 kB rather than 13 MB. The GPU then reads the rows that it needs from the CPU's memory.
# That memory must first be page-locked with `pin_memory_()`.

# %%
fetch_on_gpu = items.sample_neighbor(graph, fanouts=[5, 10]).copy_to("cuda")
fetch_on_gpu = fetch_on_gpu.fetch_feature(features, node_feature_keys=["feat"])
if has_gpu:
    rows.pin_memory_()
print(gf.DataLoader(fetch_on_gpu, num_workers=2, seed=0).explain())

# %% [markdown]
# ## Copy first
#
# If the seeds are copied, the GPU samples as well. The graph may be page-locked like the rows, or stored in the GPU's
# memory: `graph.to("cuda")`. Workers would have nothing to do, so there are none.

# %%
all_on_gpu = items.copy_to("cuda").sample_neighbor(graph, fanouts=[5, 10])
all_on_gpu = all_on_gpu.fetch_feature(features, node_feature_keys=["feat"])
if has_gpu:
    graph.pin_memory_()
print(gf.DataLoader(all_on_gpu, seed=0).explain())

# %% [markdown]
# ## The same mini-batches
#
# The device on which a mini-batch is produced does not change it. On a machine with a GPU, the next cell compares the
# first mini-batch of each of the three pipelines.

# %%
if has_gpu:
    firsts = [next(iter(gf.DataLoader(plan, seed=0))) for plan in (pipe, fetch_on_gpu, all_on_gpu)]
    print("the same nodes:", all(torch.equal(firsts[0].input_nodes, each.input_nodes) for each in firsts))
else:
    print("skipped, since there is no GPU")

# %% [markdown]
# ## Keep some rows on the GPU
#
# `gpu_cached_feature` keeps recently used rows in the GPU's memory. Its kernels also exist for the CPU, with the same
# results. We can therefore measure here how often a row is missing from a cache that has space for 40 % of them.

# %%
cached = gf.gpu_cached_feature(gf.TorchBasedFeature(feat), int(0.4 * feat.nbytes), device="cuda" if has_gpu else "cpu")
store = gf.BasicFeatureStore({("node", None, "feat"): cached})
with_cache = items.sample_neighbor(graph, fanouts=[5, 10]).copy_to("cuda" if has_gpu else "cpu")
with_cache = with_cache.fetch_feature(store, node_feature_keys=["feat"])
seed_bytes = id_bytes = row_bytes = 0.0
with gf.DataLoader(with_cache, num_workers=0, seed=0) as loader:
    for minibatch in loader:
        cscs = [hop.sampled_csc for hop in minibatch.sampled_subgraphs]
        seed_bytes += minibatch.seeds.nbytes + minibatch.labels.nbytes
        id_bytes += minibatch.input_nodes.nbytes + sum(csc.indptr.nbytes + csc.indices.nbytes for csc in cscs)
        row_bytes += minibatch.node_features["feat"].nbytes
print(f"{cached.miss_rate:.0%} of the rows are not in the cache, over the first epoch")

# %% [markdown]
# This determines how many bytes of a mini-batch cross the bus.

# %%
crossing = {
    "copy at the end": id_bytes + row_bytes,
    "copy before fetching": id_bytes + row_bytes,
    "the same, with a cache": id_bytes + cached.miss_rate * row_bytes,
    "all data on the GPU": seed_bytes,
}
figure, axes = plt.subplots(figsize=(7, 2.8))
megabytes = [size / 1e6 / len(loader) for size in crossing.values()]
bars = axes.barh(list(crossing), megabytes, color="#6baed6", height=0.6)
axes.bar_label(bars, fmt="{:.2f}", padding=4)
axes.invert_yaxis()
axes.set(xlabel="MB per mini-batch", title="What crosses the bus to the GPU", xlim=(0, 1.15 * max(megabytes)))
plt.show()

# %% [markdown]
# The first two move the same number of bytes. In the second, no CPU core copies them.
#
# ## Train
#
# The model maps definitions to scores of 45 fields and, for each hop, adds the mean of the neighbours' scores to a
# meaning's own scores. The loop doesn't move any tensors: mini-batches arrive on the device given to `copy_to`.

# %%
device = torch.device("cuda" if has_gpu else "cpu")
train_pipe = items.sample_neighbor(graph, fanouts=[5, 10]).copy_to(device)
train_pipe = train_pipe.fetch_feature(features, node_feature_keys=["feat"])

torch.manual_seed(0)
net = nn.Linear(2048, wordnet.metadata["num_classes"]).to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
losses, right = [], 0
with gf.DataLoader(train_pipe, num_workers=2, seed=0) as loader:
    for minibatch in loader:
        scores = net(minibatch.node_features["feat"].float())
        for hop in minibatch.sampled_subgraphs:
            csc = hop.sampled_csc
            means = torch.segment_reduce(scores[csc.indices], "mean", offsets=csc.indptr, initial=0)
            scores = scores[: len(means)] + means
        loss = functional.cross_entropy(scores, minibatch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right += int((scores.argmax(1) == minibatch.labels).sum()) if len(losses) > 60 else 0
print(f"in the last steps, the field of {right / (len(train_set) - 60 * 1024):.0%} is found")

# %% tags=["remove-cell"]
assert losses[-1] < 1

# %%
figure, axes = plt.subplots(figsize=(7, 3.2))
axes.plot(losses, color="#08519c")
axes.set(xlabel="step", ylabel="loss", title="One epoch", ylim=(0, None))
plt.show()

# %% [markdown]
# ## What next
#
# - [On GPUs](../docs/gpu.md) describes what was tested and measured on a GPU. `graphfeed doctor --cuda` reports what is
#   missing on a machine.
# - [Find what is slow](08_find_what_is_slow.ipynb) helps you choose one of the three variants.
# - Models that propagate scores: Wu and others, [Simplifying graph convolutional
#   networks](https://arxiv.org/abs/1902.07153), ICML 2019.
