"""PyG: mini-batches as its data."""
