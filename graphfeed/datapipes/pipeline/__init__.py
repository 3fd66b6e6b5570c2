"""What supports the stages: fluent names, walks over a pipeline, its text and picture, expected sizes."""
