"""The release of graphfeed, which ranks, servers and clients compare when they connect."""

from importlib import import_module

RELEASE: str = import_module(__name__.partition(".")[0]).__version__
