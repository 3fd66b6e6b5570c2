"""The public names of GraphBolt from `graphbolt_surface.yaml`, and their counterparts here."""

from pathlib import Path

import yaml

from graphfeed.interop.graphbolt import REPLACED as REPLACED_BY

LISTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
CALLED: dict[str, str] = LISTS["called"]
SURFACE: dict[str, str | None] = {
    **dict.fromkeys(LISTS["not_called"].split()),
    **{f"{owner}.{name}": None for owner, names in LISTS["attributes"].items() for name in names.split()},
    **CALLED,
}
FLUENT: dict[str, str] = LISTS["fluent"]
"""Each fluent name with its stage."""

OF_A_GRAPH_IN_MEMORY = {"SamplingGraph.copy_to_shared_memory", "SamplingGraph.to"}
FETCHES = {"combine_cached_and_fetched_insubgraph", "fetch_cached_insubgraph_data", "fetch_insubgraph_data"}
REPLACED = (REPLACED_BY.keys() & SURFACE.keys()) | OF_A_GRAPH_IN_MEMORY | FETCHES
"""Names that another name or a file replaces, with the reason in the package or on the page."""

IGNORED: dict[str, str] = LISTS["ignored"]
"""Parameters that do nothing, and are accepted by name, with a warning."""

DIFFERENT: dict[tuple[str, str], str] = {
    **{(owner, name): "ignored" for owner, names in IGNORED.items() if owner in CALLED for name in names.split()},
    **{(owner, name): "by name alone" for owner, names in LISTS["named"].items() for name in names.split()},
    ("DataLoader", "num_workers"): "None, a thread a core: threads copy nothing, so workers are the default",
    ("MiniBatch", "_blocks"): "blocks are made when asked for, and not kept",
    ("SampledSubgraphImpl", "_edge_ids_in_fused_csc_sampling_graph"): "original_edge_ids always says them",
}
"""Parameters that differ, with the reason."""
