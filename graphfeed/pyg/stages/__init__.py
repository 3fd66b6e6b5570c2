"""The stages that PyG's loaders are made of.

They draw seeds, walks and trees, and turn mini-batches into what a PyG program expects. Stages that any program may use
are in `graphfeed.datapipes`.
"""

from graphfeed.pyg.stages.call_stages import call_stages, random_links
from graphfeed.pyg.stages.sampled_minibatch import transform_output

__all__ = ["call_stages", "random_links", "transform_output"]
