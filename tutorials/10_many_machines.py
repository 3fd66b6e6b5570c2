# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Three machines on one
#
# A graph that outgrows a machine is cut into parts, and each machine holds one. Here three processes play three
# machines: each opens its own part, asks the others over the network, and shares no memory with them. Then two sampling
# servers make the same mini-batches, and one of them is killed. Everything runs on one CPU in half a minute.
#
# [docs/many-machines.md](../docs/many-machines.md) says when to choose what, and how to start it on real machines.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import atexit
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import matplotlib.pyplot as plt
import numpy as np
import torch

import graphfeed as gf
from graphfeed.distributed import ClusterPlan, assign_nodes, report_partition, write_partition

# %% [markdown]
# ## A graph, and its parts
#
# 20,000 nodes have ten in-edges each, most of them from nodes with close numbers. Row $i$ of the feature holds $i$, so
# that we can recognise it later.

# %%
num_nodes, degree, width = 20_000, 10, 32
rng = np.random.default_rng(0)
destinations = np.arange(num_nodes).repeat(degree)
sources = (destinations + rng.normal(scale=200, size=destinations.size).astype(np.int64)) % num_nodes
graph = gf.from_coo((sources, destinations), num_nodes)
rows = torch.arange(num_nodes)[:, None] * torch.ones(1, width)
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
graph

# %% [markdown]
# `assign_nodes` says which part owns each node. Two methods are compared here: a hash of the node, and LDG, which goes
# over the nodes once and puts each one where most of its neighbours are.

# %%
for method in ("hash", "ldg"):
    print(method, report_partition(graph, assign_nodes(graph, 3, method), 3), sep="\n", end="\n\n")

# %% [markdown]
# LDG cuts fewer edges. We write these parts to files, with the rows of the features. On real machines, `graphfeed
# partition` does that on the command line.

# %%
assignment = assign_nodes(graph, 3, "ldg")
write_partition("parts", graph, assignment, 3, features)
sorted(path.name for path in Path("parts").iterdir())

# %% [markdown]
# ## What each machine runs
#
# The samplers and the fetcher are those of one machine; the graph and the features differ. Processes on one machine
# would read each other's parts in shared memory; `share_memory=False` makes them ask over the network, as machines do.
#
# For each mini-batch, the program notes a digest of its nodes, edges and rows.

# %%
COMMON = '''
import hashlib

def digest(minibatch):
    """Return a text that depends on all nodes, edges and rows."""
    state = hashlib.sha256()
    for hop in minibatch.sampled_subgraphs:
        csc = hop.sampled_csc
        for tensor in (hop.original_row_node_ids, hop.original_edge_ids, csc.indptr, csc.indices):
            state.update(tensor.numpy().tobytes())
    state.update(minibatch.node_features["feat"].numpy().tobytes())
    return state.hexdigest()
'''
MACHINE = """
import json
from pathlib import Path

import torch
from torch import distributed

import graphfeed as gf
from common import digest
from graphfeed.distributed import PartitionedGraph, Peers, open_part

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
peers = Peers(share_memory=False)
part = open_part("parts", rank)

pipe = gf.DistributedItemSampler(gf.ItemSet(6144, names="seeds"), batch_size=512, shuffle=True)
pipe = pipe.sample_neighbor(PartitionedGraph(part.graph, peers), fanouts=[5, 5])
pipe = pipe.fetch_feature(part.partitioned_features(peers), node_feature_keys=["feat"])
with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    digests = {minibatch.key.index: digest(minibatch) for minibatch in loader}

peers.close()
peers.join()  # until the others ask nothing any more
counts = {"sent": peers.traffic.bytes_sent, "exchanges": peers.traffic.exchanges}
Path(f"machine{rank}.json").write_text(json.dumps({"digests": digests, **counts}))
distributed.destroy_process_group()
"""
Path("common.py").write_text(COMMON)
Path("machine.py").write_text(MACHINE)

# %% [markdown]
# torchrun starts the three. On real machines, it is started once on each of them.

# %%
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
network = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
done = subprocess.run([*torchrun, "machine.py"], env=network, capture_output=True, text=True, timeout=250)
assert done.returncode == 0, done.stderr
machines = [json.loads(Path(f"machine{rank}.json").read_text()) for rank in range(3)]
for rank, machine in enumerate(machines):
    print(f"machine {rank} made mini-batches {', '.join(machine['digests'])} in {machine['exchanges']} exchanges")

# %% [markdown]
# Each mini-batch took an exchange per hop, and one for the features.
#
# ## The same bits
#
# One process with the whole graph makes the same mini-batches, bit for bit.

# %%
digest = run_path("common.py")["digest"]
whole = gf.ItemSampler(gf.ItemSet(6144, names="seeds"), batch_size=512, shuffle=True)
whole = whole.sample_neighbor(graph, fanouts=[5, 5]).fetch_feature(features, node_feature_keys=["feat"])
with gf.DataLoader(whole, num_workers=2, seed=0) as loader:
    minibatches = {str(minibatch.key.index): minibatch for minibatch in loader}
expected = {index: digest(minibatch) for index, minibatch in minibatches.items()}

found = {index: text for machine in machines for index, text in machine["digests"].items()}
assert found == expected
print(f"{len(found)} of {len(expected)} mini-batches are equal")

# %% [markdown]
# ## What crossed the network
#
# `ClusterPlan` calculates that in advance; `graphfeed plan-cluster` prints the same.

# %%
plan = ClusterPlan(num_nodes, num_nodes * degree, 3, [5, 5], batch_size=512, row_bytes=4 * width)
print(plan)

# %% [markdown]
# The plan assumes that neighbours may be any nodes. Here they are close to each other, so there are fewer of them: a
# mini-batch has fewer input nodes than planned, and less is sent.

# %%
counted = sum(machine["sent"] for machine in machines) / len(found)
input_nodes = np.mean([minibatch.input_nodes.numel() for minibatch in minibatches.values()])
print(f"input nodes of a mini-batch: {plan.input_nodes:,.0f} planned, {input_nodes:,.0f} counted")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
bottom = 0.0
for (label, size), colour in zip(plan.traffic.items(), ("#08519c", "#6baed6", "#fdae6b"), strict=True):
    left.bar(0, size / 1e3, bottom=bottom, color=colour, label=label, width=0.6)
    bottom += size / 1e3
left.bar(1, counted / 1e3, color="#636363", width=0.6)
left.set(xticks=[0, 1], xticklabels=["planned", "counted"], ylabel="kB per mini-batch", title="Sent by all machines")
left.legend(frameon=False)

# %% [markdown]
# The same plan for a graph that needs several machines: papers100M has 111 million nodes, 1.6 billion edges, and 128
# numbers per node.

# %%
papers = {"num_nodes": 111_059_956, "num_edges": 1_615_685_872, "row_bytes": 4 * 128, "id_bytes": 4}
counts = [2, 4, 8, 16]
plans = [ClusterPlan(**papers, machines=count, fanouts=[10, 10]) for count in counts]
places = np.arange(len(counts))
parts, shares = ([each.memory[name] / 1e9 for each in plans] for name in ("graph", "features"))
right.bar(places, parts, color="#08519c", label="graph", width=0.6)
right.bar(places, shares, bottom=parts, color="#fdae6b", label="features", width=0.6)
right.set(xticks=places, xticklabels=counts, xlabel="machines", ylabel="GB per machine", title="papers100M")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Sampling servers
#
# Another way: machines with CPUs make whole mini-batches, and machines with GPUs read them. Each server has the whole
# graph, here mapped from a file. `graphfeed serve` reads the pipeline from a Python file.

# %%
graph.save("graph")
np.save("feat.npy", rows.numpy())
PIPELINE = """
import numpy as np
import torch

import graphfeed as gf

rows = torch.from_numpy(np.load("feat.npy", mmap_mode="c"))
features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
pipe = gf.ItemSampler(gf.ItemSet(6144, names="seeds"), batch_size=512, shuffle=True)
pipe = pipe.sample_neighbor(gf.load_graph("graph"), fanouts=[5, 5])
pipe = pipe.fetch_feature(features, node_feature_keys=["feat"])
"""
Path("pipeline.py").write_text(PIPELINE)
Path("token").touch(mode=0o600)
Path("token").write_text("a secret that both sides know")


def start_server() -> tuple[subprocess.Popen[str], str]:
    """Start a server on a free port; return its process and its address."""
    command = [sys.executable, "-m", "graphfeed", "serve", "pipeline.py", "--token-file", "token"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    assert server.stdout is not None
    return server, server.stdout.readline().split()[-1]


servers = [start_server(), start_server()]
addresses = [address for _, address in servers]
print(addresses)

# %% [markdown]
# The loader has the same pipeline, and reads from both servers. We kill the first one after three mini-batches; the
# other one goes on where it stood.

# %%
received = {}
token = Path("token").read_text()
with gf.DataLoader(run_path("pipeline.py")["pipe"], num_workers=2, servers=addresses, token=token, seed=0) as loader:
    for minibatch in loader:
        received[str(minibatch.key.index)] = digest(minibatch)
        if len(received) == 3:
            servers[0][0].send_signal(signal.SIGKILL)
    print(loader.explain())
assert received == expected
assert list(received) == list(expected)
print(f"{len(received)} of {len(expected)} mini-batches are equal, in the same order")

# %%
for server, _ in servers:
    with server:  # closes its pipe
        server.terminate()
        server.wait(20)
