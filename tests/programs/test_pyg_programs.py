"""The loops of programs among PyG's examples, in which only the import of their loaders is changed.

The names of the tests are those of the programs. The data are small, and created here.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from graphfeed.pyg import HGTLoader, LinkNeighborLoader, NeighborLoader
from graphfeed.pyg.data import import_pyg
from tests.kinds.neighborhood import draws, random_index

PYG = import_pyg("torch_geometric.nn", "tests")
CLASSES = 3
AUTHORS, PAPERS, TOPICS = 60, 90, 12


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute in one thread: these nets are so small that torch's threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def clusters(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy features that depend on the class of each node, and the classes, of which there are three."""
    labels = torch.arange(count) % CLASSES
    noise = torch.randn(count, 8, generator=draws(seed)) / 2
    return functional.one_hot(labels, 8) + noise, labels


def citations() -> Any:
    """Return data in which most edges join nodes of one class."""
    x, y = clusters(120, 0)
    index = random_index(40, 40, 600, 1) * CLASSES + torch.arange(600) % CLASSES
    train = torch.arange(120) < 60
    return import_pyg("torch_geometric.data", "tests").Data(x=x, y=y, edge_index=index, train_mask=train)


def library() -> Any:
    """Return data of authors, papers and topics, with edges both ways."""
    data = import_pyg("torch_geometric.data", "tests").HeteroData()
    data["paper"].x, data["paper"].y = clusters(PAPERS, 0)
    data["paper"].train_mask = torch.arange(PAPERS) < PAPERS // 2
    data["author"].x = clusters(AUTHORS, 1)[0][:, :5]
    data["topic"].x = clusters(TOPICS, 2)[0]
    sizes = {"paper": PAPERS, "author": AUTHORS, "topic": TOPICS}
    kinds = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "has", "topic")]
    for seed, (source, name, end) in enumerate(kinds):
        ends = random_index(sizes[source] // CLASSES, sizes[end] // CLASSES, 240, seed)
        data[source, name, end].edge_index = ends * CLASSES + torch.arange(240) % CLASSES
    return import_pyg("torch_geometric.transforms", "tests").ToUndirected()(data)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


class SAGE(nn.Module):
    """The net of `reddit.py`."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [PYG.SAGEConv(in_channels, hidden_channels), PYG.SAGEConv(hidden_channels, out_channels)]
        )

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = functional.dropout(x.relu_(), p=0.5, training=self.training)
        return x

    @torch.no_grad()
    def inference(self, x_all: torch.Tensor, subgraph_loader: Any) -> torch.Tensor:
        """Compute the layers one by one, each for all nodes."""
        for i, conv in enumerate(self.convs):
            xs = []
            for batch in subgraph_loader:
                x = x_all[batch.n_id.to(x_all.device)]
                x = conv(x, batch.edge_index)
                if i < len(self.convs) - 1:
                    x = x.relu_()
                xs.append(x[: batch.batch_size].cpu())
            x_all = torch.cat(xs, dim=0)
        return x_all


def test_reddit() -> None:
    data = citations()
    kwargs: dict[str, Any] = {"batch_size": 16, "num_workers": 2, "persistent_workers": True}
    train_loader = NeighborLoader(data, input_nodes=data.train_mask, num_neighbors=[25, 10], shuffle=True, **kwargs)
    subgraph_loader = NeighborLoader(copy.copy(data), input_nodes=None, num_neighbors=[-1], shuffle=False, **kwargs)
    # No need to maintain these features during evaluation:
    del subgraph_loader.data.x, subgraph_loader.data.y
    # Add global node index information.
    subgraph_loader.data.num_nodes = data.num_nodes
    subgraph_loader.data.n_id = torch.arange(data.num_nodes)

    model = SAGE(8, 16, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(6):
        for batch in train_loader:
            y = batch.y[: batch.batch_size]
            y_hat = model(batch.x, batch.edge_index)[: batch.batch_size]
            step(optimizer, functional.cross_entropy(y_hat, y))
    model.eval()
    y_hat = model.inference(data.x, subgraph_loader)
    assert torch.allclose(y_hat, model(data.x, data.edge_index), atol=1e-5)
    assert (y_hat.argmax(-1) == data.y)[~data.train_mask].float().mean() > 0.9


class GNNEncoder(nn.Module):
    """The net that the programs with types pass to `to_hetero`."""

    def __init__(self, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = PYG.SAGEConv((-1, -1), hidden_channels)
        self.conv2 = PYG.SAGEConv((-1, -1), out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("use_hgt_loader", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_hetero_to_hetero_mag(use_hgt_loader: bool) -> None:
    data = library()
    kwargs: dict[str, Any] = {"batch_size": 16, "num_workers": 2, "persistent_workers": True}
    train_input_nodes = ("paper", data["paper"].train_mask)
    train_loader: Any
    val_loader: Any
    train_loader = NeighborLoader(data, num_neighbors=[10] * 2, shuffle=True, input_nodes=train_input_nodes, **kwargs)
    val_input_nodes = ("paper", ~data["paper"].train_mask)
    val_loader = NeighborLoader(data, num_neighbors=[10] * 2, input_nodes=val_input_nodes, **kwargs)
    if use_hgt_loader:
        train_loader = HGTLoader(data, num_samples=[64] * 2, shuffle=True, input_nodes=train_input_nodes, **kwargs)
        val_loader = HGTLoader(data, num_samples=[64] * 2, input_nodes=val_input_nodes, **kwargs)

    model = PYG.to_hetero(GNNEncoder(16, CLASSES), data.metadata(), aggr="sum")
    with torch.no_grad():  # Initialize lazy modules.
        batch = next(iter(train_loader))
        batch = batch.to("cpu", "edge_index")
        model(batch.x_dict, batch.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for batch in train_loader:
            batch = batch.to("cpu", "edge_index")
            batch_size = batch["paper"].batch_size
            out = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size]
            step(optimizer, functional.cross_entropy(out, batch["paper"].y[:batch_size]))

    total_examples = total_correct = 0
    for batch in val_loader:
        batch_size = batch["paper"].batch_size
        pred = model(batch.x_dict, batch.edge_index_dict)["paper"][:batch_size].argmax(dim=-1)
        total_examples += batch_size
        total_correct += int((pred == batch["paper"].y[:batch_size]).sum())
    assert total_examples == PAPERS // 2
    assert total_correct / total_examples > 0.9


def test_graph_sage_unsup() -> None:
    data = citations()
    train_loader = LinkNeighborLoader(
        data, batch_size=128, shuffle=True, neg_sampling_ratio=1.0, num_neighbors=[10, 10]
    )
    model = PYG.GraphSAGE(8, hidden_channels=16, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(12):
        total_loss = 0.0
        for batch in train_loader:
            h = model(batch.x, batch.edge_index)
            h_src = h[batch.edge_label_index[0]]
            h_dst = h[batch.edge_label_index[1]]
            pred = (h_src * h_dst).sum(dim=-1)
            loss = functional.binary_cross_entropy_with_logits(pred, batch.edge_label)
            total_loss += step(optimizer, loss) * pred.size(0)
        losses.append(total_loss / (2 * data.num_edges))
    assert losses[-1] < 0.58 < losses[0]  # log(2) is 0.69; a third of the negatives join nodes of one class
    h = model(data.x, data.edge_index).detach()
    nearest = (h @ h.T).fill_diagonal_(-torch.inf).argmax(1)
    assert (data.y[nearest] == data.y).float().mean() > 0.8


def ratings() -> Any:
    """Return ratings of films by users, with times; the class of a user determines the rating."""
    data = import_pyg("torch_geometric.data", "tests").HeteroData()
    data["user"].x, users = clusters(45, 0)
    data["movie"].x = clusters(60, 1)[0]
    index = random_index(45, 60, 500, 2)
    kind = ("user", "rates", "movie")
    data[kind].edge_index = index
    data[kind].edge_label = 1 + 2 * users[index[0]]
    data[kind].time = torch.randint(1000, (500,), generator=draws(3))
    data = import_pyg("torch_geometric.transforms", "tests").ToUndirected()(data)
    del data["movie", "rev_rates", "user"].edge_label  # Remove "reverse" label.
    return data


def test_hetero_temporal_link_pred() -> None:
    data = ratings()
    edge_index, edge_label = data["user", "movie"].edge_index, data["user", "movie"].edge_label
    time = data["user", "movie"].time
    perm = time.argsort()
    train_idx, test_idx = perm[:400], perm[400:]
    kwargs: dict[str, Any] = {
        "data": data, "num_neighbors": [20, 10], "batch_size": 64, "time_attr": "time", "num_workers": 2,
        "persistent_workers": True, "temporal_strategy": "last",
    }  # fmt: skip
    train_loader, test_loader = (
        LinkNeighborLoader(
            edge_label_index=(("user", "movie"), edge_index[:, idx]),
            edge_label=edge_label[idx],
            edge_label_time=time[idx] - 1,  # No leakage.
            shuffle=idx is train_idx,
            **kwargs,
        )
        for idx in (train_idx, test_idx)
    )
    encoder = PYG.to_hetero(GNNEncoder(16, 16), data.metadata(), aggr="sum")
    decoder = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def predict(batch: Any) -> torch.Tensor:
        z_dict = encoder(batch.x_dict, batch.edge_index_dict)
        row, col = batch["user", "movie"].edge_label_index
        out: torch.Tensor = decoder(torch.cat([z_dict["user"][row], z_dict["movie"][col]], dim=-1)).view(-1)
        return out

    with torch.no_grad():
        predict(next(iter(train_loader)))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    for _ in range(6):
        for batch in train_loader:
            target = batch["user", "movie"].edge_label
            step(optimizer, functional.mse_loss(predict(batch), target.float()))

    errors = []
    for batch in test_loader:
        store = batch["user", "movie"]
        assert (store.time <= store.edge_label_time[batch["movie"].batch[store.edge_index[1]]]).all()
        errors.append(predict(batch).detach().clamp(min=0, max=5) - store.edge_label)
    assert len(torch.cat(errors)) == len(test_idx)
    assert torch.cat(errors).pow(2).mean().sqrt() < 0.7 * edge_label.float().std()


class AttachTargets:
    """A transform of mini-batches: the labels of the seeds that a training table has."""

    def __init__(self, node_type: str, targets: torch.Tensor) -> None:
        self.node_type, self.targets = node_type, targets

    def __call__(self, batch: Any) -> Any:
        batch[self.node_type].y = self.targets[batch[self.node_type].input_id]
        return batch


class TablesAndLinks(nn.Module):
    """Encodes the rows of each table, adds their age, and sums over links."""

    def __init__(self, data: Any, stats: dict[str, Any], links: Any) -> None:
        super().__init__()
        frames = pytest.importorskip("torch_frame")
        encoders = {frames.categorical: frames.nn.EmbeddingEncoder(), frames.numerical: frames.nn.LinearEncoder()}
        self.rows = nn.ModuleDict({
            name: frames.nn.ResNet(16, 16, 1, stats[name], frame.col_names_dict, encoders)
            for name, frame in data.tf_dict.items()
        })  # fmt: skip
        self.age = nn.Linear(1, 16)
        self.links = PYG.HeteroConv({edge_type: PYG.SAGEConv(16, 16) for edge_type in links})
        self.head = nn.Linear(16, 1)

    def forward(self, batch: Any, node_type: str) -> Any:
        seed_time = batch[node_type].seed_time
        x = {name: encode(batch.tf_dict[name]) for name, encode in self.rows.items()}
        for name, times in batch.time_dict.items():
            x[name] = x[name] + self.age((seed_time[batch.batch_dict[name]] - times)[:, None] / 50.0)
        x = {name: own.relu() for name, own in self.links(x, batch.edge_index_dict).items()}
        return self.head(x[node_type])[: len(seed_time)].squeeze(1)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # pytorch-frame with pandas 3
def test_rdl() -> None:
    frames, pandas = pytest.importorskip("torch_frame"), pytest.importorskip("pandas")
    data, stats = import_pyg("torch_geometric.data", "tests").HeteroData(), {}
    for name, count in (("user", 40), ("order", 400)):
        rows = pandas.DataFrame({"kind": [place % 3 for place in range(count)], "size": torch.rand(count).numpy()})
        table = frames.data.Dataset(rows, {"kind": frames.categorical, "size": frames.numerical}).materialize()
        data[name].tf, stats[name] = table.tensor_frame, table.col_stats
        data[name].time = torch.randint(100, (count,), generator=draws(count))
    index = torch.stack([torch.arange(400), torch.randint(40, (400,), generator=draws(1))])
    data["order", "of", "user"].edge_index, data["user", "rev_of", "order"].edge_index = index, index.flip(0)
    users, times = torch.arange(40).repeat(2), torch.tensor([70, 120]).repeat_interleave(40)
    targets = (data["user"].time[users] < times - 50).float()  # whether a user has existed for long
    loader = NeighborLoader(
        data, num_neighbors=[16, 8], time_attr="time", input_nodes=("user", users), input_time=times, batch_size=16,
        transform=AttachTargets("user", targets), temporal_strategy="uniform", shuffle=True, num_workers=2, seed=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = TablesAndLinks(data, stats, data.edge_types)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        for batch in loader:
            assert (batch["order"].time <= batch["user"].seed_time[batch["order"].batch]).all()
            optimizer.zero_grad()
            loss: Any = functional.l1_loss(model(batch, "user"), batch["user"].y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
