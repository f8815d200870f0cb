"""What became of one request, as its client saw it: the one form in which measured, replayed and simulated runs are judged."""

from __future__ import annotations

import math
from typing import NamedTuple

FAILED, UNFINISHED = "failed", "unfinished"  # beside the reasons that answers and `jaxserve.load.served` know
ANSWERED = ("stop", "length")  # reasons of an answer that came to its end
# Who counted the tokens of an answer: the engine (or its simulation), the server in `usage`, a tokenizer its text, or nobody: then they
# are the chunks that it came in, each of which may hold several.
ENGINE, USAGE, TOKENIZER, CHUNKS = "engine", "usage", "tokenizer", "chunks"


class RequestRecord(NamedTuple):
    """One request. All times are s on one clock, counted from the start of the run; nan where nobody could know.

    Attributes:
      id: of the request in its run.
      intended: when it was due. Every latency counts from here (open loop), so that a late client can't hide a slow server.
      sent: when the client handed it over; sent - intended is the client's own delay. In a closed loop both are the same moment.
      submitted: when the scheduler had it, tokenised and checked.
      ready: when it no longer waited for others to form a batch with; equal to `submitted` under a policy that forms none.
      started: when the first step that runs its prompt began, or would have begun: its memory was given and its worker was free.
      prefilled: when the engine knew its first token.
      tokens: when each token of its answer was at the client.
      end: when the client knew that it was over, however it ended.
      prompt, output: tokens; `output` may exceed len(tokens) where a server sends several at a time, or some without a text.
      cached: prompt tokens whose KV was there already; 0 where nothing is known of it.
      preemptions: how often it lost its memory.
      reason: "stop", "length"; "cancelled", "expired", "refused" (the server would not take it); "failed" (an error, see `error`);
        "unfinished" (the run was over first).
      error: what was said, for people; "" where nothing was.
      counted: who counted `output`: ENGINE, USAGE, TOKENIZER or CHUNKS.
    """

    id: int
    intended: float
    sent: float
    submitted: float
    ready: float
    started: float
    prefilled: float
    tokens: tuple[float, ...]
    end: float
    prompt: int
    output: int
    cached: int = 0
    preemptions: int = 0
    reason: str = "length"
    error: str = ""
    counted: str = ENGINE

    @property
    def answered(self) -> bool:
        """Whether its answer came to its own end."""
        return self.reason in ANSWERED

    @property
    def ttft(self) -> float:
        """s from the intended arrival to the first token; nan where there was none."""
        return self.tokens[0] - self.intended if self.tokens else math.nan

    @property
    def tpot(self) -> float:
        """s a token after the first; nan for an answer of fewer than two tokens."""
        return (self.tokens[-1] - self.tokens[0]) / (self.output - 1) if self.output > 1 and self.tokens else math.nan

    @property
    def e2e(self) -> float:
        """s from the intended arrival to the last token; nan where there was none."""
        return self.tokens[-1] - self.intended if self.tokens else math.nan

    @property
    def itl(self) -> tuple[float, ...]:
        """s between its tokens, one for each gap."""
        return tuple(b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False))
