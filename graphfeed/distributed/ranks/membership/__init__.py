"""The life of ranks: how they meet, what they must have in common, and how others learn that one is lost or done."""
