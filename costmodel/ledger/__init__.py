"""A line an instruction: as XLA counts it, with trip counts, and as memory traffic; whose data it moves and for which component."""
