"""Other libraries: names that programs of GraphBolt's bring with them, DGL's graphs and blocks."""
