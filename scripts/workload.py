"""A mixed workload: many requests whose lengths follow a conversation trace, scaled down to what a small model on a CPU can serve.

What is drawn follows from the seed alone, so every system of a comparison, and every later run, gets the same requests.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxserve.generation.prompts import builtin_prompts
from jaxserve.load.trace import Entry, read_trace
from models.errors import UserError
from models.text.tokenizer import Tokenizer

# Every 303rd request of Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv, 2023; CC-BY 4.0, Microsoft: (prompt, answer)
SAMPLE = (
    *((1316, 200), (4105, 67), (1241, 421), (4122, 64), (983, 373), (1223, 444), (1174, 411), (1162, 390), (1052, 373)),
    *((400, 82), (1168, 428), (1149, 407), (1022, 392), (420, 99), (398, 92), (413, 99), (1012, 373), (397, 91), (382, 81)),
    *(
        (181, 216),
        (407, 137),
        (1007, 397),
        (383, 88),
        (410, 118),
        (1058, 394),
        (4095, 179),
        (4082, 48),
        (1101, 385),
        (398, 105),
    ),
    *(
        (392, 65),
        (1094, 442),
        (4075, 135),
        (1010, 407),
        (1094, 429),
        (1695, 56),
        (2489, 101),
        (1017, 539),
        (989, 396),
        (1073, 380),
    ),
    *((2173, 38), (1117, 415), (214, 96), (411, 99), (186, 64), (249, 101), (1128, 155), (219, 77), (2444, 28), (2608, 72)),
    *((1316, 146), (2961, 67), (41, 67), (584, 83), (1060, 179), (215, 76), (1147, 396), (1045, 407), (1085, 453), (1207, 403)),
    *((181, 132), (1085, 396), (1316, 176), (1312, 140), (394, 94)),
)


class Item(NamedTuple):
    """One request: its prompt's token ids, how many tokens its answer has, and when it arrives, s."""

    prompt: tuple[int, ...]
    output: int
    arrival: float = 0.0


@dataclasses.dataclass(frozen=True)
class Workload:
    """What every system of a comparison is given.

    Attributes:
      items: by arrival.
      source: where the lengths come from.
      scale: factor of all lengths, and `stretch` a further one of the answers'.
      time_scale: factor of the gaps between arrivals; 0 where all arrive at once.
      seed: of the draw.
    """

    items: tuple[Item, ...]
    source: str = "made up"
    scale: float = 1.0
    stretch: float = 1.0
    time_scale: float = 0.0
    seed: int = 0

    @classmethod
    def of(cls, trace: Path | None, tokenizer: Tokenizer, **options: Any) -> Workload:
        """Drawn from the trace in a file, or from a sample of Azure's that is built in; `options` are those of `draw`.

        Raises:
          UserError: see `jaxserve.load.trace.read_trace` and `draw`.
        """
        if trace is not None:
            return draw(list(read_trace(trace)), tokenizer, source=trace.name, **options)
        entries = [Entry(0.0, prompt, output) for prompt, output in SAMPLE]
        source = f"a built-in sample of {len(SAMPLE)} requests of Azure's conversation trace of 2023, for no trace was given"
        return draw(entries, tokenizer, source=source, **options)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(item.prompt) for item in self.items)

    @property
    def output_tokens(self) -> int:
        return sum(item.output for item in self.items)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(len(item.prompt) + item.output for item in self.items)

    def room(self, rows: int, page: int) -> int:
        """Pages for the `rows` largest requests at once: with so many, nobody ever has to be preempted."""
        pages = (-(-(len(item.prompt) + item.output) // page) for item in self.items)
        return sum(sorted(pages, reverse=True)[:rows])

    def steps(self, rows: int) -> tuple[int, int]:
        """(static, continuous) decode steps that it takes at least with `rows` rows, were prompts for nothing.

        A static batch runs as long as its longest answer; no other order can do with fewer steps than tokens over rows, nor than the
        longest answer has.
        """
        outputs = [item.output for item in self.items]
        static = sum(max(outputs[at : at + rows]) for at in range(0, len(outputs), rows))
        return static, max(-(-sum(outputs) // rows), *outputs)

    def to_json(self) -> dict[str, Any]:
        """What was drawn, without the tokens."""
        fields = ("source", "seed", "scale", "stretch", "time_scale", "prompt_tokens", "output_tokens", "longest")
        return {"requests": len(self.items), **{name: getattr(self, name) for name in fields}}


def draw(
    entries: Sequence[Entry],
    tokenizer: Tokenizer,
    *,
    source: str,
    requests: int,
    context: int,
    scale: float | None = None,
    stretch: float = 1.0,
    time_scale: float = 0.0,
    seed: int = 0,
) -> Workload:
    """Draw requests from a trace, without repetition where it has enough, and keep its order.

    Args:
      entries: of the trace.
      tokenizer: of the model: prompts are made of the text of the built-in ones, each in an order of its own, and cut to length.
      source: see `Workload`.
      requests: how many.
      context: tokens that a prompt and its answer may take together.
      scale: factor of all lengths; None for what lets the longest request that was drawn just fit.
      stretch: answers are longer by this factor; 1 keeps the trace's proportion of answers to prompts.
      time_scale: see `Workload`.

    Raises:
      UserError: a scale that makes no sense or at which a request does not fit; gaps asked of a source that has none.
    """
    if requests < 1 or context < 2:
        raise UserError(f"{requests} requests in a context of {context} tokens; ask for at least 1, in at least 2")
    rng = np.random.default_rng(seed)
    chosen = [entries[i] for i in sorted(rng.choice(len(entries), requests, replace=requests > len(entries)))]
    if scale is None:
        pairs = [(each.prompt, each.output * stretch) for each in chosen]  # neither of which is ever less than 1
        scale = min(1.0, *(min(context / (p + o), (context - 1) / max(p, o)) for p, o in pairs))
    for name, value in (("scale", scale), ("stretch", stretch)):
        if not 0 < value < math.inf:
            raise UserError(f"the {name} of lengths is {value:g}; it must be above 0")
    if not 0 <= time_scale < math.inf:
        raise UserError(f"the scale of times is {time_scale:g}; it must be at least 0, which lets all requests arrive at once")
    if time_scale and chosen[-1].arrival == chosen[0].arrival:
        raise UserError(f"{source} does not say when requests arrive; give a trace that does, or the time scale 0")
    texts = [tokenizer.encode(text) for text in builtin_prompts()]
    items = []
    for each in chosen:
        prompt, output = scaled(each.prompt, scale), scaled(each.output, scale * stretch)
        if prompt + output > context:
            raise UserError(
                f"scaled by {scale:g} a request has {prompt} + {output} tokens and the context is {context}; lower the scale, or "
                "leave it out for the largest that fits"
            )
        items.append(Item(_text(texts, prompt, rng), output, (each.arrival - chosen[0].arrival) * time_scale))
    return Workload(tuple(items), source, scale, stretch, time_scale, seed)


def scaled(tokens: int, scale: float) -> int:
    """A length at a scale: whole tokens, rounded down, and at least 1."""
    return max(1, int(tokens * scale))


def _text(texts: Sequence[Sequence[int]], length: int, rng: np.random.Generator) -> tuple[int, ...]:
    """The tokens of the texts in a new order, and in others, until there are enough."""
    orders = itertools.chain.from_iterable(rng.permutation(len(texts)) for _ in itertools.count())
    return tuple(itertools.islice(itertools.chain.from_iterable(texts[i] for i in orders), length))
