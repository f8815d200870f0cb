"""A file of prompts, from settings to answers: the work behind `python -m jaxserve.generate`."""
