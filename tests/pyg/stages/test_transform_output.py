from typing import Any

import torch

from graphfeed.pyg import NeighborLoader
from tests.pyg.neighborhood import homogeneous, values_of


def drop_some(output: Any) -> Any:
    kept = torch.rand(len(output.row)) < 0.5
    output.row, output.col, output.edge = output.row[kept], output.col[kept], output.edge[kept]
    return output


def test_it_comes_before_fetching_and_its_draws_depend_on_the_mini_batch_alone() -> None:
    data, found = homogeneous(), []
    for num_workers in (0, 1, 3):
        options: dict[str, Any] = {"num_workers": num_workers, "seed": 2, "batch_size": 20}
        with NeighborLoader(data, [3], transform_sampler_output=drop_some, **options) as loader:
            batches = list(loader)
        assert all(torch.equal(batch.edge_attr, data.edge_attr[batch.e_id]) for batch in batches)
        found.append([values_of(batch) for batch in batches])
    assert found[0] == found[1] == found[2]
