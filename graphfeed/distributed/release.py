"""The release of graphfeed, which ranks, servers and their readers compare when they meet."""

from importlib import import_module

RELEASE: str = import_module(__name__.partition(".")[0]).__version__
