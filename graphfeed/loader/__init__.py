"""WHERE AND WHEN: plans a pipeline and runs it."""

from graphfeed.loader.dataloader import DataLoader
from graphfeed.loader.options import LoaderOptions
from graphfeed.loader.plan import RULES, Plan, make_plan

__all__ = ["RULES", "DataLoader", "LoaderOptions", "Plan", "make_plan"]
