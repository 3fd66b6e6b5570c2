"""A channel that reads from servers in this process."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import RemoteReceivingChannel, SamplingServer
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.kinds.refusals import check_refused
from tests.stand_ins.served import TOKEN, Fails

pytest.importorskip("pyarrow")

SEED = 3


@pytest.fixture(scope="module")
def own() -> Iterator[list[SamplingServer]]:
    with (
        SamplingServer(pipelines.shuffled(), token=TOKEN) as first,
        SamplingServer(pipelines.shuffled(), token=TOKEN) as second,
    ):
        yield [first, second]


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    """Return the mini-batches of two epochs."""
    loader = gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=SEED)
    return [digests(loader), digests(loader)]


def channel(server_rank: Any, producer_id: Any, *counts: int, **options: Any) -> RemoteReceivingChannel:
    return RemoteReceivingChannel(server_rank, producer_id, *counts, **{"token": TOKEN, "seed": SEED, **options})


def received(channel: RemoteReceivingChannel) -> list[str]:
    """Receive like GraphLearn-for-PyTorch's loader."""
    found = []
    while True:
        try:
            found.append(digest(channel.recv()))
        except StopIteration:
            return found


def test_several_servers_share_an_epoch_without_loss_or_doubles(
    own: list[SamplingServer], expected: list[list[str]], no_leaks: None
) -> None:
    before = [server.num_made for server in own]
    with channel([server.address for server in own], [0, 0], 3) as both:
        for epoch in expected:
            both.reset()
            assert received(both) == epoch
            with pytest.raises(StopIteration):
                both.recv()
    made = [server.num_made - count for server, count in zip(own, before, strict=True)]
    assert sum(made) == sum(map(len, expected))
    assert min(made) > 0


def test_the_published_signature_counts_the_mini_batches(own: list[SamplingServer], expected: list[list[str]]) -> None:
    addresses = [server.address for server in own]
    with channel(1, 0, 9, servers=addresses) as one:
        assert received(one) == expected[0]
        assert len(one) == 9
    with (
        channel(addresses[0], 0, 10) as wrong,
        pytest.raises(ValueError, match="num_expected is 10, but an epoch has 9 mini-batches"),
    ):
        wrong.recv()


def test_a_loop_yields_an_epoch_and_then_the_next_and_what_was_asked_for_before_a_reset_never_comes(
    own: list[SamplingServer], expected: list[list[str]]
) -> None:
    with channel(own[0].address, 0) as one:
        assert [digests(one), digests(one)] == expected
    with channel([own[0].address], [0], prefetch_size=5) as one:
        one.recv()
        one.reset()
        assert one.epoch == 1
        assert received(one) == expected[1]


def test_the_failure_of_a_stage_takes_the_place_of_its_mini_batch() -> None:
    pipe = Fails(pipelines.homogeneous())
    with SamplingServer(pipe, token=TOKEN) as server, channel(server.address, 0) as one:
        first = [one.recv(), one.recv()]
        with pytest.raises(RuntimeError, match="ValueError: there is no such"):
            one.recv()
        found = [minibatch.key.index for minibatch in [*first, *one]]
    assert found == [index for index in range(10) if index != 2]


def test_servers_with_different_pipelines_are_told_apart(own: list[SamplingServer]) -> None:
    with SamplingServer(pipelines.homogeneous(), token=TOKEN) as other:
        addresses = [own[0].address, other.address]
        with (
            channel(addresses, [0, 0]) as both,
            pytest.raises(ValueError, match=f"{other.address} rejected the request: the pipelines of the loader"),
        ):
            list(both)


def test_each_rank_of_a_process_group_reads_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    items = gf.ItemSet(torch.arange(100), names="seeds")
    with SamplingServer(gf.DistributedItemSampler(items, 8, shuffle=True).transform(), token=TOKEN) as server:
        for rank in range(3):
            pipe = gf.DistributedItemSampler(items, 8, shuffle=True, rank=rank, world_size=3).transform()
            place = (rank, 3)
            monkeypatch.setattr(
                "graphfeed.distributed.servers.remote_receiving_channel.find_rank", lambda place=place: place
            )
            with channel(server.address, 0) as one:
                assert digests(one) == digests(gf.DataLoader(pipe, num_workers=0, seed=SEED))


def test_wrong_arguments_are_refused(own: list[SamplingServer]) -> None:
    assert gf.channels.RemoteReceivingChannel is RemoteReceivingChannel  # type: ignore[attr-defined]
    one, two = ["localhost:1"], ["localhost:1", "localhost:2"]
    closed = channel(own[0].address, 0)
    closed.close()
    closed.close()
    check_refused(
        [
            (lambda: channel([], []), ValueError, "server_rank must name a server"),
            (lambda: channel(0, 0), ValueError, "server_rank is 0, but servers has 0 addresses"),
            (lambda: channel(one, 0), ValueError, "two lists of the same length"),
            (lambda: channel(one[0], [0]), ValueError, "two lists of the same length"),
            (lambda: channel(two, [0]), ValueError, r"but producer_id is \[0\] for 2 servers"),
            (lambda: channel(two, [0, 1]), ValueError, "producer_id must be the same for all servers"),
            (lambda: channel(one[0], 0, 0), ValueError, "num_expected must be 1 or more"),
            (lambda: channel(one, [0], 0), ValueError, "prefetch_size must be 1 or more"),
            (lambda: channel("10.0.0.2:1", 0), ValueError, "others on the network could read and change"),
            (lambda: channel(one, [0], 1, 2), TypeError, "at most prefetch_size may come after producer_id"),
            (
                lambda: channel(one[0], 0, 1, num_expected=2),
                TypeError,
                "num_expected is given twice: 1 by position, and 2 by name",
            ),
            (lambda: len(channel(own[0].address, 1)), ValueError, "producer_id is 1, but the servers' pipel"),
            (lambda: channel(own[0].address, 0).send({"x": torch.ones(1)}), RuntimeError, "only receives"),
            (closed.recv, RuntimeError, "the channel is closed"),
            (lambda: gf.channels.RemoteChannel, AttributeError, "has no attribute 'RemoteChannel'"),  # type: ignore[attr-defined]
        ]
    )


def test_a_lost_server_costs_no_mini_batch_and_those_that_are_all_lost_are_named(expected: list[list[str]]) -> None:
    started = [SamplingServer(pipelines.shuffled(), token=TOKEN) for _ in range(2)]
    addresses = [server.address for server in started]
    with channel(addresses, [0, 0], prefetch_size=1, timeout=20) as both:
        found = [digest(both.recv()) for _ in range(2)]
        started[0].close()
        found += [digest(both.recv()) for _ in range(4)]
        started[1].close()
        with pytest.raises(ConnectionError, match="no sampling server is left for mini-batch") as caught:
            found.extend(digest(both.recv()) for _ in range(4))  # the first ones had arrived before
        assert all(address in str(caught.value) for address in addresses)
        with SamplingServer(pipelines.shuffled(), port=started[1].port, token=TOKEN):
            found += received(both)  # missing mini-batches are requested again
    assert found == expected[0]
