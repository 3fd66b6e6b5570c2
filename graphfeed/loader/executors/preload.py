"""Imported only by the fork server, once for all workers: imports installed packages, and loads the kernels."""

import gc
import multiprocessing
import os
import signal
from contextlib import suppress
from importlib import import_module
from multiprocessing import util

import torch

from graphfeed.datapipes import Datapipe, ItemSampler
from graphfeed.loader.executors import worker_main, worker_task  # noqa: F401
from graphfeed.loader.executors.main_module import PREFIX, TO_PRELOAD
from graphfeed.ops.process import after_fork_in_child
from graphfeed.storage import BasicFeatureStore, TorchBasedFeature
from graphfeed.storage.datasets import ItemSet
from graphfeed.storage.graph import fused_csc_sampling_graph

SERVER = os.getpid()


def import_ahead() -> int:
    """Run the common stages once to load their kernels; return the number of mini-batches."""
    ids = torch.arange(4, device="cpu")
    graph = fused_csc_sampling_graph(torch.tensor([0, 1, 2, 3, 4], device="cpu"), ids)
    store = BasicFeatureStore({("node", None, "feat"): TorchBasedFeature(torch.ones(4, 1, device="cpu"))})
    pipe: Datapipe = ItemSampler(ItemSet(ids, names="seeds"), batch_size=2, shuffle=True)
    pipe = pipe.sample_neighbor(graph, fanouts=[1, 2]).fetch_feature(store, node_feature_keys=["feat"])
    return sum(1 for _ in pipe)


def hold_interrupts() -> None:
    # Only in children of the server, which an interrupt would end while they start.
    if os.getppid() == SERVER:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def let_interrupts_through(_: object) -> None:
    # graphfeed's workers ignore interrupts before they unblock them.
    if not multiprocessing.current_process().name.startswith(PREFIX):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


# Packages that the workers' main module imports. Workers import those that fail here.
for name in os.environ.pop(TO_PRELOAD, "").split():
    with suppress(Exception, SystemExit):
        import_module(name)
import_ahead()
# Ignoring interrupts drops one that was blocked while the server started; later ones are delivered.
handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGINT, handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
after_fork_in_child(hold_interrupts)
util.register_after_fork(let_interrupts_through, let_interrupts_through)
# Garbage collection in workers would write to, and so copy, the memory that they share with the server. In the server,
# it would delay the exit, while others may still wait for its output.
gc.freeze()
