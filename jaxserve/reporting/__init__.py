"""The parts of the page that `--report` writes: figures, tables, and what they say of themselves."""
