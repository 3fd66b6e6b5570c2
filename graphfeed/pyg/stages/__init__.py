"""The stages that several of PyG's loaders are made of.

A stage that one loader needs is beside that loader; stages that any program may use are in `graphfeed.datapipes`.
"""

from graphfeed.pyg.stages.sampler_output import call_stages, random_links, transform_output

__all__ = ["call_stages", "random_links", "transform_output"]
