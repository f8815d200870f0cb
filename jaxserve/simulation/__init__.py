"""A simulation as a command: what is asked, what it runs on, and how its figures are told."""
