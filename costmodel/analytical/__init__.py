"""The first witness: the terms of a step, worked out from the architecture alone (Pope et al. 2022)."""
