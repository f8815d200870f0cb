"""What the subcommands of `python -m costmodel` do; their options stand in `costmodel.__main__`."""
