"""What a run came to in the field's own figures, each with its definition."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxserve.load.percentile import FEW, RULE
from jaxserve.load.quantiles import Quantiles, plain
from jaxserve.load.recorder import ANSWERED, CHUNKS, RequestRecord
from jaxserve.load.slo import RULE as SLO_RULE
from jaxserve.load.slo import SLO, Verdict

DEFINITIONS: Mapping[str, str] = {
    "ttft": "time to first token: from when the request was due to its first token; none for an answer without a token",
    "itl": "inter-token latency: between tokens as they came to the client, one value a gap, the gaps of all answers pooled; tokens that "
    "come together have gaps of 0, or one gap where only their batch was seen",
    "tpot": "time per output token: of each answer (last token - first token) / (tokens - 1), the first excluded; none for an answer of "
    "fewer than two tokens",
    "e2e": "from when the request was due to its last token; none for an answer without a token",
    "queue": "from when a request no longer waited for company to the step that first ran its prompt; none where the server doesn't say",
    "client_delay": "from when the request was due to when the client sent it: the harness's own, and part of TTFT and E2E",
    "requests_per_s": "answered requests / duration",
    "tokens_per_s": "tokens of all answers, those that broke off included / duration",
    "goodput": "requests / duration that were answered and kept every limit of the SLO themselves (Zhong et al. 2024, section 1): TTFT, "
    "TPOT and E2E each within the limit of the highest percentile that is given, and that percentile of the request's gaps within ITL's; "
    + SLO_RULE,
    "tokens": "of an answer as its engine counts them; over HTTP as the server's usage says, else those of its text by --tokenizer, else "
    "chunks, each of which may hold several (tokens_counted_by)",
    "duration": "from the beginning of the measured part to the end of its last request",
    "percentile": RULE,
    "few": FEW,
}

CHUNKED = "of {} answers the server sent no usage, so their tokens are CHUNKS, each of which may hold several"


@dataclasses.dataclass(frozen=True)
class Summary:
    """Of a run's measured requests. Times are s, rates per s.

    Attributes:
      duration: what the rates are over.
      requests: all of them, however they ended.
      counts: of each reason.
      empty: answers without a token, which have no TTFT; single: of one token, which have no TPOT.
      ttft, itl, tpot, e2e, queue, client_delay: see `DEFINITIONS`. Of requests that were answered, but for `client_delay`.
      prompt_tokens, output_tokens, cached_tokens: sums over all requests; cached are those of prompts whose KV was there already.
      goodput: None without an SLO.
      verdicts: of each limit of the SLO.
      warm: prompt tokens whose KV was there before the run began; None where nobody knows.
      counted: who counted the tokens of how many answers, see `record.CHUNKS`.
    """

    duration: float
    requests: int
    counts: Mapping[str, int]
    empty: int
    single: int
    ttft: Quantiles
    itl: Quantiles
    tpot: Quantiles
    e2e: Quantiles
    queue: Quantiles
    client_delay: Quantiles
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    goodput: float | None
    verdicts: tuple[Verdict, ...]
    warm: int | None
    counted: Mapping[str, int]

    @property
    def by_chunks(self) -> int:
        """Answers whose chunks were counted, for want of their tokens."""
        return self.counted.get(CHUNKS, 0)

    @property
    def answered(self) -> int:
        return sum(self.counts.get(reason, 0) for reason in ANSWERED)

    @property
    def requests_per_s(self) -> float:
        return per(self.answered, self.duration)

    @property
    def tokens_per_s(self) -> float:
        return per(self.output_tokens, self.duration)

    @property
    def met(self) -> bool | None:
        """Whether every limit of the SLO is kept; None without an SLO."""
        return all(verdict.met for verdict in self.verdicts) if self.verdicts else None

    def to_json(self) -> dict[str, Any]:
        """All of it, with the definitions."""
        named = ("ttft", "itl", "tpot", "e2e", "queue", "client_delay")
        return {
            "duration": plain(self.duration),
            "requests": self.requests,
            "answered": self.answered,
            "counts": dict(self.counts),
            "answers_without_a_token": self.empty,
            "answers_of_one_token": self.single,
            "requests_per_s": plain(self.requests_per_s),
            "tokens_per_s": plain(self.tokens_per_s),
            "goodput": None if self.goodput is None else plain(self.goodput),
            "slo": [verdict.to_json() for verdict in self.verdicts],
            "slo_met": self.met,
            **{name: getattr(self, name).to_json() for name in named},
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "tokens_counted_by": dict(self.counted),
            "warm": self.warm,
            "definitions": dict(DEFINITIONS),
        }


def summarise(records: Iterable[RequestRecord], *, duration: float, slo: SLO | None = None, warm: int | None = 0) -> Summary:
    """What records come to. Failed, refused and unfinished requests are counted, and none of them is good.

    Args:
      records: of the measured requests.
      duration: s that rates are taken over; where it is 0 there is no rate, nan.
      warm: see `Summary`.
    """
    seen = list(records)
    answered = [record for record in seen if record.answered]
    return Summary(
        duration=duration,
        requests=len(seen),
        counts=dict(Counter(record.reason for record in seen)),
        empty=sum(record.output == 0 for record in answered),
        single=sum(record.output == 1 for record in answered),
        ttft=Quantiles.of(record.ttft for record in answered),
        itl=Quantiles.of(pooled(answered)),
        tpot=Quantiles.of(record.tpot for record in answered),
        e2e=Quantiles.of(record.e2e for record in answered),
        queue=Quantiles.of(record.started - record.ready for record in answered),
        client_delay=Quantiles.of(record.sent - record.intended for record in seen),
        prompt_tokens=sum(record.prompt for record in seen),
        output_tokens=sum(record.output for record in seen),
        cached_tokens=sum(record.cached for record in seen),
        goodput=per(sum(map(slo.good, seen)), duration) if slo else None,
        verdicts=slo.verdicts(seen) if slo else (),
        warm=warm,
        counted=dict(Counter(record.counted for record in seen if record.output)),
    )


def pooled(records: Sequence[RequestRecord]) -> list[float]:
    """The gaps of all answers, s."""
    return list(itertools.chain.from_iterable(record.itl for record in records))


def per(count: float, duration: float) -> float:
    return count / duration if duration > 0 else math.nan
