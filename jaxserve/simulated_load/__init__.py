"""One load on the virtual clock, as `python -m jaxserve.simulate` runs and tells it."""
