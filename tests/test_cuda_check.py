import subprocess
import sys

import pytest
import torch


@pytest.mark.slow
def test_without_a_gpu_the_command_says_what_is_missing_and_fails() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ran = subprocess.run([sys.executable, "-m", "graphfeed.cuda_check"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "\nmissing  GPU " in ran.stdout
    assert "\nmissing  kernels        were not run, because of: " in ran.stdout
    assert "\nCUDA is not ready: " in ran.stdout
