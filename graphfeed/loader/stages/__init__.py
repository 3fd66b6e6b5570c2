"""The stages that only the loader's rules put into a pipeline."""
