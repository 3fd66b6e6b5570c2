"""The pages of the site, and its builder."""
