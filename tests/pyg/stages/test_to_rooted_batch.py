import torch

from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.pyg import ToRootedBatch
from graphfeed.pyg.data.tables import import_pyg


def test_roots_are_where_the_parts_begin() -> None:
    data = import_pyg("torch_geometric.data", "tests").Data(
        x=torch.eye(3), y=torch.tensor([7, 8, 9]), batch=torch.tensor([0, 0, 1]), batch_size=2
    )
    for of_roots, labels in ((True, [7, 9]), (False, [7, 8, 9])):
        (batch,) = ToRootedBatch(IterableSource([data]), of_roots)
        assert (batch.ptr.tolist(), batch.root_n_id.tolist(), batch.num_graphs) == ([0, 2, 3], [0, 2], 2)
        assert batch.y.tolist() == labels
        assert torch.equal(batch.x, data.x)
