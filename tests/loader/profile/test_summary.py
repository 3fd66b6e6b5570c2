import pytest

from graphfeed.loader.profile.epoch_record import Counters
from graphfeed.loader.profile.summary import middle, summarise
from tests.loader.profile.records import MS, make_record


def test_times_are_medians_per_mini_batch() -> None:
    summary = summarise([make_record(100)])
    assert summary.num_minibatches == 93  # without those for which the window was filled, and the first
    assert summary.rate == pytest.approx(200)
    assert summary.waits == pytest.approx(0.8)
    assert summary.step_ms == 1
    assert summary.first_seconds == 0.004
    assert (summary.worker_ms, summary.worker_cpu_ms) == (6, 3)
    assert (summary.queue_ms, summary.transfer_ms) == (0.5, 2)
    assert (summary.in_flight, summary.ready) == (3, 1)
    assert summary.busy == pytest.approx(0.6)  # 200 mini-batches of 6 ms by two workers


def test_stages_share_the_time() -> None:
    first, second = summarise([make_record(100)]).stages
    assert (first.row.name, first.ms, second.row.name, second.ms) == ("ItemSampler", 1, "NeighborSampler", 5)
    assert first.share + second.share == 1
    assert second.cpu == 0.5


def test_a_stage_that_is_called_twice_for_a_mini_batch_takes_twice_as_long() -> None:
    record = make_record(100)
    record.recorder.spans += [span for span in record.spans if span.position == 1]
    assert summarise([record]).stages[0].ms == 2


def test_epochs_are_taken_together_and_the_time_between_them_is_not() -> None:
    one, two = make_record(50), make_record(50)
    both = summarise([one, two])
    assert both.num_minibatches == 2 * summarise([one]).num_minibatches
    assert both.seconds == pytest.approx(2 * summarise([one]).seconds)


def test_counters_are_differences_over_the_epoch() -> None:
    record = make_record(50)
    record.before = Counters({"x": (10, 5)}, 1, 1_000)
    record.after = Counters({"x": (30, 6), "y": (1, 1)}, 3, 5_000)
    summary = summarise([record, record])
    assert summary.caches == {"x": (40, 2), "y": (2, 2)}
    assert summary.num_replaced == 4
    assert summary.read_bytes_per_second == pytest.approx(8_000 / summary.seconds)


def test_an_outlier_changes_no_median() -> None:
    record = make_record(100)
    slow = record.spans[50]
    record.recorder.spans[50] = slow._replace(own=slow.own + 1_000 * MS)
    assert summarise([record]).worker_ms == 6


@pytest.mark.parametrize(("values", "share", "expected"), [([], 0.5, 0), ([3, 1, 2], 0.5, 2), ([1, 2], 1.0, 2)])
def test_a_share_of_the_values_is_not_above_the_middle(values: list[float], share: float, expected: float) -> None:
    assert middle(values, share) == expected


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_mini_batches_are_summarised_too(count: int) -> None:
    assert summarise([make_record(count)]).num_minibatches >= 1
