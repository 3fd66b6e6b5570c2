import pickle

import graphfeed as gf
from graphfeed.loader.stages.upstream_placeholder import UpstreamPlaceholder, detach
from tests import pipelines
from tests.digests import digest


def test_it_counts_as_the_stages_that_it_stands_for() -> None:
    pipe = gf.MiniBatchTransformer(UpstreamPlaceholder(4))
    assert list(pipe) == []
    assert pipe.position == 5
    (detached,) = detach(pipe.datapipe, (pipe,), iter([gf.MiniBatch(), gf.MiniBatch()]))
    assert len(list(detached)) == 2
    assert detached.position == 5


def test_a_detached_stage_draws_the_same_and_knows_its_place() -> None:
    (sampler,) = gf.find(pipelines.homogeneous(), gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    # Two stages that draw, behind a source that does not pickle.
    head: gf.Datapipe = gf.ItemSampler(gf.ItemSet(64, names="seeds"), batch_size=8).transform(lambda batch: batch)
    first = head.sample_neighbor(sampler.graph, fanouts=[2])
    second = first.sample_neighbor(sampler.graph, fanouts=[1])
    assert isinstance(first, gf.NeighborSampler)
    assert isinstance(second, gf.NeighborSampler)
    detached = pickle.loads(pickle.dumps(detach(head, (first, second))))
    assert [stage.position for stage in detached] == [first.position, second.position] == [3, 4]
    batch = next(iter(head.with_seed(3)))
    assert digest(detached[1](batch)) == digest(second(batch)) != digest(detached[0](batch))
