from graphfeed.datapipes.pipeline.iteration import torch_shard


def test_outside_of_a_torch_worker_there_is_one_share() -> None:
    assert torch_shard() == (0, 1)
