"""A stage that hangs in a worker thread is named, and nothing waits for it."""

import signal

import pytest

from tests.programs import run_body, start

HANGS_AT_ONE = """
def hang(minibatch):
    if minibatch.key.index == 1:
        print("hangs", flush=True)
        time.sleep(600)
    return minibatch

pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2).transform(hang)
"""


@pytest.mark.slow
def test_after_the_timeout_the_error_names_stage_and_mini_batch_and_the_program_can_end() -> None:
    done = run_body(
        HANGS_AT_ONE
        + """
with gf.DataLoader(pipe, num_workers=2, timeout=1) as loader:
    for batch in loader:
        pass
"""
    )
    warning, error = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert done.returncode == 1
    place = "is in MiniBatchTransformer, stage 2, mini-batch 1 of epoch 0, at <string>:9 in hang"
    assert "RuntimeWarning: abandoned 1 thread still at work: graphfeed_" in warning
    assert place in warning
    assert error.startswith("TimeoutError: the 2 workers finished no mini-batch for 1 s, waiting for mini-batch 1 of")
    assert place in error
    assert done.stderr.count("RuntimeWarning") == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_interrupt_ends_the_program_although_a_stage_hangs(closed: bool) -> None:
    loop = "with gf.DataLoader(pipe, num_workers=2) as loader:\n    list(loader)\n"
    process = start(HANGS_AT_ONE + (loop if closed else "list(gf.DataLoader(pipe, num_workers=2))\n"))
    process.wait_for("hangs")
    process.send_signal(signal.SIGINT)
    status, _, errors = process.end()
    assert status == 1
    assert "KeyboardInterrupt" in errors
    assert errors.count("RuntimeWarning: abandoned 1 thread") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fetch", ["", pytest.param(".fetch_feature(gf.BasicFeatureStore({}), [])", marks=pytest.mark.thorough)]
)
def test_the_start_of_a_worker_process_is_no_hanging_stage(fetch: str) -> None:
    done = run_body(
        f"""
pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2){fetch}
with gf.DataLoader(pipe, num_workers=1, worker="process", timeout=1.0) as loader:
    print(sum(1 for _ in loader))
"""
    )
    assert (done.stdout, done.stderr) == ("4\n", "")
