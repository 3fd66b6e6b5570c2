"""A program that torchrun restarts after one of its ranks was killed: it resumes the epoch from its saved state."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, assign_nodes, cut_graph
from tests.kinds.digests import digest
from tests.kinds.partitioned_graphs import plain

KILLED_AT = 3


def make_epoch(root: str, first: bool) -> None:
    """Write a digest of each mini-batch, and the state after it; in the first run, rank 1 is killed in the middle."""
    rank = distributed.get_rank()
    graph, saved = plain(), Path(root, f"state {rank}.json")
    part = cut_graph(graph, assign_nodes(graph, distributed.get_world_size(), "hash"), rank)
    pipe: gf.Datapipe = gf.DistributedItemSampler(gf.ItemSet(96, names="seeds"), 6, shuffle=True)
    with gf.DataLoader(pipe.sample_neighbor(PartitionedGraph(part), [3, 4]), 2, seed=4) as loader:
        if saved.exists():
            loader.load_state_dict(json.loads(saved.read_text()))
        for batch in loader:
            distributed.barrier()  # all ranks save the same step, as they do with a model
            with Path(root, f"made {rank}.txt").open("a") as made:
                made.write(f"{digest(batch)}\n")
            saved.write_text(json.dumps(loader.state_dict()))
            if first and rank == 1 and batch.key is not None and batch.key.index // 2 == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    make_epoch(sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
    distributed.destroy_process_group()
