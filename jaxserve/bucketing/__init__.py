"""Which programs to compile for a load: the work behind `python -m jaxserve.buckets`."""
