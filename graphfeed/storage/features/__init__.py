"""Features, stores of them, and caches in front of them."""
