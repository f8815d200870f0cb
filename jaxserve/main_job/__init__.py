"""A fixed set of prompts decoded together, program by program: the work behind `python -m jaxserve.decode`."""
