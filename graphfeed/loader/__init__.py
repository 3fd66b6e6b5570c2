"""WHERE AND WHEN: plans a pipeline and runs it."""

from graphfeed.loader.dataloader import DataLoader
from graphfeed.loader.plan import RULES, Plan, make_plan
from graphfeed.loader.rules import LoaderOptions

__all__ = ["RULES", "DataLoader", "LoaderOptions", "Plan", "make_plan"]
