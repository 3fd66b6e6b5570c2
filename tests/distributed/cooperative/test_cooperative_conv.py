"""That gradients are those of one machine is tested together with the sampler."""

import torch

import graphfeed as gf
from graphfeed.distributed import CooperativeConvFunction


def test_what_is_not_joint_keeps_its_rows() -> None:
    rows = {"user": torch.ones(2, 1)}
    assert CooperativeConvFunction.apply(gf.MiniBatch(), rows) is rows
    assert gf.CooperativeConv()(gf.MiniBatch(), rows["user"]) is rows["user"]
