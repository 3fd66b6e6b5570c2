# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Many machines, simulated on one
#
# In this tutorial, you split a graph into three parts and train a model on them with three processes. Like three
# machines, they share no memory and exchange data over the network. Then, two sampling servers produce the same
# mini-batches, even when one of them is killed.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import atexit
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import cloudpickle
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import graphfeed as gf
from graphfeed.distributed import assign_nodes, report_partition, write_partition
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## A graph
#
# Graphfeed includes WordNet: meanings of words (synsets), with edges to more general ones. The task is to predict the
# subject field of a synset. To save time, we fold the 2,048 feature columns into 64 and train on 6,144 synsets.

# %%
folder = Path("scratch/machines")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)

wordnet = gf.datasets.wordnet()
rows = wordnet.feature.read("node", "synset", "feat").view(-1, 32, 64).sum(1).float()
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
ends = to_coo(wordnet.graph)["synset:hypernym:synset"]
pairs = torch.stack([ends.sources, ends.destinations])
graph = gf.from_coo(torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=len(rows))
graph

# %%
torch.manual_seed(0)
train_items, test_items = (items[:]["synset"] for items in (wordnet.train_set, wordnet.test_set))
chosen = torch.randperm(len(train_items[0]))[:6_144]
train_items = [tensor[chosen] for tensor in train_items]
train_set, test_set = (gf.ItemSet(tuple(items), names=("seeds", "labels")) for items in (train_items, test_items))
torch.save(train_items, folder / "train.pt")

# %% [markdown]
# ## Partition the graph
#
# `assign_nodes` assigns each node to a part. We compare two methods: a hash of the node, and LDG, which goes through
# the nodes once and assigns each one to the part that contains most of its neighbours.

# %%
reports = {method: report_partition(graph, assign_nodes(graph, 3, method), 3) for method in ("hash", "ldg")}
for method, report in reports.items():
    print(method, report, sep="\n", end="\n\n")

# %%
figure, axes = plt.subplots(figsize=(5, 2))
axes.barh(list(reports), [100 * report.cut for report in reports.values()], color="#6baed6")
axes.set(title="Edges between parts", xlabel="% of all edges", xlim=(0, 100))
plt.show()

# %% [markdown]
# LDG cuts fewer edges, so we write its parts to files, together with the feature rows. On the command line, `graphfeed
# partition` does the same.

# %%
assignment = assign_nodes(graph, 3, "ldg")
write_partition(folder / "parts", graph, assignment, 3, features)
sorted(path.name for path in (folder / "parts").iterdir())


# %% [markdown]
# ## The program of each machine
#
# Each machine needs the model, and a function that computes a digest of a mini-batch for a later comparison.
# cloudpickle writes both to a file; in a project, they would be in a module.


# %%
class Net(nn.Module):
    """Two layers, each with a linear map of a node's vector and its neighbours' mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * 64, 64), nn.Linear(2 * 64, 45)])

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return a row of scores for each seed."""
        h: torch.Tensor = minibatch.node_features["feat"]
        for layer, hop in zip(self.layers, minibatch.sampled_subgraphs, strict=True):
            degrees, indices = hop.sampled_csc.indptr.diff(), hop.sampled_csc.indices
            sums = torch.zeros(len(degrees), 64).index_add(0, torch.repeat_interleave(degrees), h[indices])
            h = layer(torch.cat([h[: len(degrees)], sums / degrees.clamp(min=1)[:, None]], dim=1))
            h = h.relu() if layer is self.layers[0] else h
        return h


def digest(minibatch: gf.MiniBatch) -> str:
    """Return a hash of all nodes, edges, feature rows and labels."""
    state = hashlib.sha256()
    for hop in minibatch.sampled_subgraphs:
        csc = hop.sampled_csc
        for tensor in (hop.original_row_node_ids, hop.original_edge_ids, csc.indptr, csc.indices):
            state.update(tensor.numpy().tobytes())
    for tensor in (minibatch.node_features["feat"], minibatch.labels):
        state.update(tensor.numpy().tobytes())
    return state.hexdigest()


written = (folder / "job.pkl").write_bytes(cloudpickle.dumps((Net, digest)))

# %% [markdown]
# The sampler and the fetcher are the same as on one machine. Only the graph and the features differ: `open_part` opens
# one part, and `PartitionedGraph` requests everything else from the other ranks.

# %%
MACHINE = """
import json
from pathlib import Path

import cloudpickle
import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, open_part

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
folder = Path("scratch/machines")
Net, digest = cloudpickle.loads((folder / "job.pkl").read_bytes())
peers = Peers()
part = open_part(folder / "parts", rank)

train_set = gf.ItemSet(tuple(torch.load(folder / "train.pt", weights_only=True)), names=("seeds", "labels"))
pipe = gf.DistributedItemSampler(train_set, batch_size=256, shuffle=True)
pipe = pipe.sample_neighbor(PartitionedGraph(part.graph, peers), fanouts=[5, 5])
pipe = pipe.fetch_feature(part.partitioned_features(peers), node_feature_keys=["feat"])

torch.manual_seed(0)
net = DistributedDataParallel(Net())
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
digests = {}
with gf.DataLoader(pipe, num_workers=1, seed=0) as loader:
    for epoch in range(4):
        for minibatch in loader:
            if epoch == 0:
                digests[minibatch.key.index] = digest(minibatch)
            loss = functional.cross_entropy(net(minibatch), minibatch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

peers.close()
peers.join()  # wait until the other ranks have finished
counts = {"sent": peers.traffic.bytes_sent, "exchanges": peers.traffic.exchanges}
(folder / f"machine{rank}.json").write_text(json.dumps({"digests": digests, **counts}))
if rank == 0:
    torch.save(net.module.state_dict(), folder / "net.pt")
distributed.destroy_process_group()
"""
written = (folder / "machine.py").write_text(MACHINE)

# %% [markdown]
# torchrun starts the three processes. On real machines, you start it once on each of them.

# %%
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
command = [*torchrun, str(folder / "machine.py")]
done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
assert done.returncode == 0, done.stderr
machines = [json.loads((folder / f"machine{rank}.json").read_text()) for rank in range(3)]
for rank, machine in enumerate(machines):
    print(f"machine {rank} made mini-batches {', '.join(machine['digests'])}; {machine['exchanges']} exchanges in all")

# %% [markdown]
# Each mini-batch took one exchange per hop, and one for the features.
#
# ## The mini-batches are the same
#
# One process with the whole graph produces bit-identical mini-batches.


# %% tags=["exact"]
def make_pipe(items: gf.ItemSet, shuffle: bool) -> gf.Datapipe:
    """Return a pipeline over the whole graph."""
    pipe = gf.ItemSampler(items, batch_size=256, shuffle=shuffle)
    return pipe.sample_neighbor(graph, fanouts=[5, 5]).fetch_feature(features, node_feature_keys=["feat"])


with gf.DataLoader(make_pipe(train_set, shuffle=True), num_workers=1, seed=0) as loader:
    minibatches = {str(minibatch.key.index): minibatch for minibatch in loader}
expected = {index: digest(minibatch) for index, minibatch in minibatches.items()}
found = {index: text for machine in machines for index, text in machine["digests"].items()}
assert found == expected
print(f"{len(found)} of {len(expected)} mini-batches are equal")

# %% [markdown]
# So the trained model does not depend on how the graph is distributed. We test it with the whole graph.

# %%
net = Net()
net.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
with torch.no_grad(), gf.DataLoader(make_pipe(test_set, shuffle=False), num_workers=1, seed=0) as loader:
    right = torch.cat([net(minibatch).argmax(1) == minibatch.labels for minibatch in loader])
accuracy = right.float().mean().item()
most = test_items[1].bincount().max() / len(right)
print(f"test accuracy {accuracy:.2f}; the most frequent field has {most:.2f}")

# %% tags=["remove-cell"]
assert accuracy > 2.5 * most

# %% [markdown]
# ## Sampling servers
#
# Alternatively, machines with CPUs produce whole mini-batches, and machines with GPUs receive them. Each server maps
# the whole graph from a file. `graphfeed serve` reads the pipeline from a Python file.

# %%
graph.save(folder / "graph")
np.save(folder / "feat.npy", rows.numpy())
PIPELINE = """
import numpy as np
import torch

import graphfeed as gf

rows = np.load("scratch/machines/feat.npy", mmap_mode="c")
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
train_set = gf.ItemSet(tuple(torch.load("scratch/machines/train.pt", weights_only=True)), names=("seeds", "labels"))
pipe = gf.ItemSampler(train_set, batch_size=256, shuffle=True)
pipe = pipe.sample_neighbor(gf.load_graph("scratch/machines/graph"), fanouts=[5, 5])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
"""
pipeline = str(folder / "pipeline.py")
Path(pipeline).write_text(PIPELINE)
token = "a secret that both sides know"
(folder / "token").touch(mode=0o600)
written = (folder / "token").write_text(token)


# %%
def start_server() -> subprocess.Popen[str]:
    """Start a server on a free port. The last word of its first line is its address."""
    command = [sys.executable, "-m", "graphfeed", "serve", pipeline, "--token-file", str(folder / "token")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    return server


servers = [start_server(), start_server()]
addresses = [server.stdout.readline().split()[-1] for server in servers if server.stdout is not None]

# %% [markdown]
# The loader has the same pipeline, and reads from both servers. We kill the first one after five mini-batches. The
# other one produces the missing mini-batches.

# %% tags=["exact"]
received = {}
executor = gf.SamplingServers(addresses, token=token)
with gf.DataLoader(run_path(pipeline)["pipe"], num_workers=2, executor=executor, seed=0) as loader:
    for minibatch in loader:
        received[str(minibatch.key.index)] = digest(minibatch)
        if len(received) == 5:
            servers[0].send_signal(signal.SIGKILL)
assert received == expected
assert list(received) == list(expected)
print(f"{len(received)} of {len(expected)} mini-batches are equal, in the same order")

# %%
for server in servers:
    with server:  # closes its pipe
        server.terminate()
        server.wait(20)

# %% [markdown]
# ## Further reading
#
# - [docs/many-machines.md](../docs/many-machines.md) explains which setup to choose, and how to start it.
# - [A database as a graph](15_a_database_as_a_graph.ipynb) trains on two ranks with Lightning.
