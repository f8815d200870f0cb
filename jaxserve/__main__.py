"""`jaxserve COMMAND` and `python -m jaxserve COMMAND`: every command under one name, grouped by what it is for.

A command's module is imported when the command is called, so --help of all is quick.
"""

from __future__ import annotations

import importlib
import inspect
from typing import NamedTuple

import click

from costmodel.terminal import cli


class Entry(NamedTuple):
    """A command: the module whose `main` it is, and what it does, in one line."""

    module: str
    help: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Serve": {
        "decode": Entry("jaxserve.decode", "Decode a batch of prompts, with the cost of every compiled program."),
        "generate": Entry("jaxserve.generate", "Serve a file of prompts and stream their answers."),
    },
    "Measure": {
        "load": Entry("jaxserve.load.__main__", "Send a load to an engine or a server: latencies, goodput, saturation."),
        "calibrate": Entry("jaxserve.calibrate", "Measure what this machine's steps take."),
        "replay": Entry("jaxserve.replay", "Replay a step log without a model, and compare every plan."),
    },
    "Predict": {
        "cost": Entry("costmodel.__main__", "What a step costs on any chip: decode, ledger, chips, models, params, calibrate."),
        "simulate": Entry("jaxserve.simulate", "A load under a policy on a virtual clock, with faults."),
        "replay-service": Entry("jaxserve.replay_service", "Simulate a service that others measured."),
    },
    "Size": {
        "size": Entry("jaxserve.size", "Which batch cap, on which chips, holds an SLO."),
        "buckets": Entry("jaxserve.buckets", "Which programs to compile for a trace."),
    },
}


class Commands(click.Group):
    """Finds a command in `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for group in COMMANDS.values() for name in group]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for group in COMMANDS.values():
            if entry := group.get(cmd_name):
                found = importlib.import_module(entry.module).main
                assert isinstance(found, click.Command)
                return found
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in group.items()])


@click.command(cls=Commands, epilog="Example: jaxserve decode --batch 1,8,64", help=inspect.cleandoc("""
    A JAX decode engine in which every compiled step carries its own cost.

    jaxserve COMMAND --help says what a command takes; python -m jaxserve.COMMAND is the same command.
    """))  # fmt: skip
def main() -> None:
    pass


def run() -> None:
    """The console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
