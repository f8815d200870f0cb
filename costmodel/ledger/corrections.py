"""Why memory traffic differs from the bytes that XLA reports: a closed set of reasons.

Each is a positive or negative number of bytes of an instruction, and `costmodel.ledger.traffic` holds them all to account. A
loop body that XLA counts once is no correction but a number of runs (`costmodel.ledger.Ledger.with_trips`).
"""

from __future__ import annotations

from collections.abc import Mapping

GATHER = "gather charged for its whole operand"
SLICE = "slice charged for its whole operand"
UPDATE = "update charged for its whole buffer"
OVERWRITE = "update charged for reading what it overwrites"
INDICES = "indices of a gather counted as the kernel sees them"
ON_CHIP = "kept on chip"
ON_HOST = "kept in host memory"
PREFETCH = "prefetch counted more than once"
NEXT_STEP = "prefetch for the next step counted too"
PAIR = "asynchronous pair counted twice"
COLLECTIVE = "collective counted as memory traffic"
VIEW = "view counted as a copy"
BRANCHES = "maximum over the branches, field by field"
TWICE = "operand counted more than once"
TILES = "tiles that an array does not fill"
LEFT_OUT = "left out by XLA"
CUSTOM_CALL = "custom call left out by XLA"

REASONS: Mapping[str, str] = {
    GATHER: "a gather in a fusion reads the rows that it gives, XLA charges the table",
    SLICE: "likewise a slice behind a conversion",
    UPDATE: "a scatter or dynamic-update-slice in a fusion writes the update in place, XLA charges the buffer, read and written",
    OVERWRITE: "a scatter that sets needs nothing of what was there",
    INDICES: "XLA charges the indices that a custom fusion calculates, the fusion reads those that it is given",
    ON_CHIP: "the compiler placed the array in on-chip memory, S(n) of a TPU's layout",
    ON_HOST: "S(5): it crosses the host's bus, not the device's memory",
    PREFETCH: "XLA charges the tuples of copy-start and copy-done besides the copy",
    NEXT_STEP: "fetched at the end of one step for the next, and in the next step charged again where it is read",
    PAIR: "the done of another asynchronous operation only waits",
    COLLECTIVE: "it crosses links, see `costmodel.ledger.collectives`",
    VIEW: "a tuple's table of pointers, a transpose that only renames, an operand that a fusion hands on",
    BRANCHES: "the branch that runs has its own lines, XLA's maximum takes FLOPs and bytes from different ones",
    TWICE: "XLA adds up the readers of an operand within a fusion",
    TILES: "a TPU keeps arrays in whole tiles and charges them so; traffic here is of the data, the padding of tiles left out",
    LEFT_OUT: "XLA charges the first of several indices, and of several results sometimes the table of pointers",
    CUSTOM_CALL: "XLA knows nothing of what it calls by name, `costmodel.ledger.custom_calls` does",
}
