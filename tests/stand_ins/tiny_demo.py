"""The demo of partitioned graphs on a small graph, for torchrun to start."""

import graphfeed as gf
from examples import wordnet_parts
from tests.programs.test_tutorials import make_tiny_wordnet

if __name__ == "__main__":
    gf.datasets.wordnet = make_tiny_wordnet
    wordnet_parts.main(["--epochs", "2", "--batch-size", "8"])
