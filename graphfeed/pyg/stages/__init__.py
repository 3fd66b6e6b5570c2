"""Stages that several of PyG's loaders share.

A stage that only one loader needs is in that loader's module; general stages are in `graphfeed.datapipes`.
"""

from graphfeed.pyg.stages.sampler_output import call_stages, random_links, transform_output

__all__ = ["call_stages", "random_links", "transform_output"]
