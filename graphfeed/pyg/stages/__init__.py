"""The stages that several of PyG's loaders are made of.

They sample around seeds and turn mini-batches into what a PyG program expects. A stage that one loader needs is beside
that loader; stages that any program may use are in `graphfeed.datapipes`.
"""

from graphfeed.pyg.stages.sampler_output import call_stages, random_links, transform_output

__all__ = ["call_stages", "random_links", "transform_output"]
