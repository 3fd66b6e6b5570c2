"""A program in the form of PyG's examples of distributed training, in which only the imports differ.

Each rank loads its part, joins a process group for DDP at one port, and creates loaders at two others.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from graphfeed.distributed import DistContext, DistNeighborLoader, LocalFeatureStore, LocalGraphStore


@torch.no_grad()
def test(model: Any, loader: Any, num_batches: int) -> float:
    correct = total = 0
    for i, batch in enumerate(loader):
        if i >= num_batches:
            break
        out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
        correct += int((out.argmax(dim=-1) == batch.y[: batch.batch_size]).sum())
        total += batch.batch_size
    return correct / total


def train(model: Any, loader: Any, optimizer: Any) -> float:
    model.train()
    with loader.enable_multithreading(2):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
            loss: Any = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
    dist.barrier()
    return float(loss.detach())


def run_proc(
    node_rank: int, num_nodes: int, ddp_port: int, root_dir: str, loader_ports: list[int], make_model: Any, result: str
) -> None:
    graph = LocalGraphStore.from_partition(f"{root_dir}/cora-partitions", node_rank)
    feature = LocalFeatureStore.from_partition(f"{root_dir}/cora-partitions", node_rank)
    feature.labels = torch.load(f"{root_dir}/label.pt", weights_only=True)
    partition_data = (feature, graph)
    train_idx, test_idx = torch.load(f"{root_dir}/split{node_rank}.pt", weights_only=True)

    current_ctx = DistContext(
        world_size=num_nodes, rank=node_rank, global_world_size=num_nodes, global_rank=node_rank, group_name="sage"
    )
    current_device = torch.device("cpu")
    dist.init_process_group("gloo", rank=node_rank, world_size=num_nodes, init_method=f"tcp://127.0.0.1:{ddp_port}")

    train_loader, test_loader = (
        DistNeighborLoader(
            data=partition_data,
            input_nodes=input_nodes,
            current_ctx=current_ctx,
            device=current_device,
            num_neighbors=[10, 5],
            shuffle=True,
            drop_last=True,
            persistent_workers=True,
            batch_size=50,
            num_workers=node_rank,
            master_addr="127.0.0.1",
            master_port=port,
            concurrency=2,
            async_sampling=True,
        )
        for input_nodes, port in zip((train_idx, test_idx), loader_ports, strict=True)
    )

    torch.manual_seed(12345)
    model = make_model()

    @torch.no_grad()
    def init_params() -> None:
        with train_loader as iterator:
            batch = next(iter(iterator))
            batch = batch.to(current_device, "x", "edge_index")
            model(batch.x.float(), batch.edge_index)
        del batch
        dist.barrier()

    init_params()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = [train(model, train_loader, optimizer) for _ in range(4)]
    accuracy = test(model, test_loader, 4)
    dist.barrier()
    torch.save([losses, accuracy], f"{result}{node_rank}.pt")
    dist.destroy_process_group()
