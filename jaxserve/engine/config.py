"""What a user says of an engine, checked as far as that goes without a model. Plain Python, so that a slip is told at once."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxserve.kv.layout import KINDS
from jaxserve.programs.compile_cache import Choice, check_cache
from jaxserve.scheduling import own
from jaxserve.scheduling.disaggregated import Disaggregated
from jaxserve.scheduling.limits import Limits, QueueRule
from jaxserve.scheduling.names import policy_json
from jaxserve.scheduling.policy import Policy
from jaxserve.scheduling.registry import OPTIONS, POLICIES, check_name, make_policy, mixes
from jaxserve.speculative.ngram import NGram
from jaxserve.values import DTYPES, LAYERS, boolean, integer, number, settle, shown
from models.errors import MOST, UserError

ROWS, PAGE, DRAFTS = 64, 16, 4  # where nothing else is said
WORKERS, LONGEST = 1024, 1e9  # at most; s of a delay or a timeout

_NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("delay", lambda seconds: 0 <= seconds <= LONGEST, f"it must be at least 0 and at most {LONGEST:g} s"),
    ("link", lambda speed: 0 < speed < math.inf, "it must be above 0, in GB/s"),
    (
        "queue_timeout",
        lambda seconds: 0 < seconds <= LONGEST or seconds == math.inf,
        f"it must be above 0 and at most {LONGEST:g} s, or inf for no end",
    ),
)


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """An engine, as `LLM` and `python -m jaxserve.generate` take it.

    Attributes:
      model: smollm2, a folder in Hugging Face layout, a .gguf file, OWNER/NAME on the Hub, or random:PRESET.
      dtype: of the weights: float32, bfloat16, or auto, what decodes fastest here.
      kv_dtype: of the KV pool; None for the weights'.
      layers: unrolled, scanned, or auto.
      rows: sequences that run at once, on each worker. None: 64, or what the ladder file has.
      context: tokens of the longest sequence. None: the model's own limit, but at most 2,048; or what the ladder file has.
      kv: "paged" or "contiguous".
      page_size: tokens of a page. None: 16, or what the ladder file has.
      pages: of each worker's pool, or slots where KV is contiguous. None: enough for `rows` sequences of the whole context, or what a
        share of the free memory holds if that is less (`Setup.room` says which).
      prefix_cache: keep the KV of what was run and start prompts that begin alike after it. None: where KV is paged.
      policy: static, dynamic, continuous, chunked or disaggregated; MODULE:NAME of one of your own, which is made with the limits that
        follow from these settings and with those of the options below that it takes; or a policy itself, which has its own.
      multi_step: tokens that a row may draw in one step while nobody waits.
      prefill_tokens: prompt tokens that may be admitted and not yet run at once; None for any number.
      budget: tokens of a step at most (chunked), or of a prefill step (disaggregated).
      delay: s that a request may be held back for company (dynamic).
      preferred: batch sizes that leave at once (dynamic).
      prefill_workers, decode_workers: one each by default (disaggregated).
      link: GB/s of the link from prefill to decode workers, on which transfers are accounted (disaggregated).
      queue_size: requests of a priority level that may wait at once; None for any number.
      queue_timeout: s that a request may wait for its first step; None for ever.
      speculate: "ngram" drafts by prompt lookup; None for no drafts.
      drafts: tokens that are drafted at most; None for 4.
      batch_invariant: one program, of a fixed number of rows, runs every token of prompts and answers as a row of its own, so that no
        answer depends on who else runs, on policy or on memory, in 16 bits too. docs/measurements/2026-12-01-batch-invariant.md says
        what it costs.
      ladder: a JSON file of `python -m jaxserve.buckets`: the programs to compile. None: powers of two.
      compile_cache: folder in which compiled programs are kept for the next start. None or True: $XDG_CACHE_HOME/jaxserve/programs, or
        ~/.cache/jaxserve/programs. False: none are kept and none are taken. Whoever may write into the folder decides what runs.
      log: file for the step log, which `python -m jaxserve.replay` reads.

    Raises:
      UserError: a value that no model could serve, or that would be of no use.
    """

    model: str = "smollm2"
    dtype: str = "auto"
    kv_dtype: str | None = None
    layers: str = "auto"
    rows: int | None = None
    context: int | None = None
    kv: str = "paged"
    page_size: int | None = None
    pages: int | None = None
    prefix_cache: bool | None = None
    policy: str | Policy = "continuous"
    multi_step: int = 1
    prefill_tokens: int | None = None
    budget: int | None = None
    delay: float | None = None
    preferred: Sequence[int] | None = None
    prefill_workers: int | None = None
    decode_workers: int | None = None
    link: float | None = None
    queue_size: int | None = None
    queue_timeout: float | None = None
    speculate: str | None = None
    drafts: int | None = None
    batch_invariant: bool = False
    ladder: str | Path | None = None
    compile_cache: Choice = None
    log: str | Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, str | os.PathLike):
            raise UserError(
                f"model is {shown(self.model)}; give smollm2, a path, random:PRESET or a name on the Hub, as a text"
            )
        settle(self, model=os.fsdecode(self.model))
        counts = ("rows", "context", "page_size", "pages", "multi_step", "prefill_tokens", "budget", "prefill_workers",
                  "decode_workers", "queue_size", "drafts")  # fmt: skip
        for name in counts:
            value = getattr(self, name)
            if value is not None or name == "multi_step":
                settle(self, **{name: integer(name, value, 1, WORKERS if name.endswith("workers") else MOST)})
        for name, known in (
            ("dtype", ("auto", *DTYPES)),
            ("kv_dtype", (None, *DTYPES)),
            ("layers", LAYERS),
            ("kv", KINDS),
            ("speculate", (None, "ngram")),
        ):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)) or value not in known:
                raise UserError(f"{name} {shown(value)} is unknown; give {', '.join(each for each in known if each)}")
        self._check_policy()
        if self.prefix_cache is not None:
            settle(self, prefix_cache=boolean("prefix_cache", self.prefix_cache))
        settle(self, batch_invariant=boolean("batch_invariant", self.batch_invariant))
        for name in ("ladder", "log"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str | os.PathLike) and os.fspath(value)):
                raise UserError(f"{name} is {shown(value)}; give a path, as a text")
        if self.log is not None:
            _check_log(Path(self.log))
        if self.delay == math.inf:  # a policy may have it, for a source of requests that never ends
            raise UserError("delay is inf s; the last requests, too few for a batch, would wait for ever; give a finite one")
        for name, fits, rule in _NUMBERS:
            if (value := getattr(self, name)) is not None:
                settle(self, **{name: number(name, value, fits, rule)})
        if self.preferred is not None:
            if isinstance(self.preferred, str | bytes) or not isinstance(self.preferred, Sequence):
                raise UserError(f"preferred is {shown(self.preferred)}; give whole numbers, in a list")
            rule = "give whole numbers of at least 1, in a list"
            settle(self, preferred=tuple(integer("a size of preferred", size, 1, rule=rule) for size in self.preferred))
        self._idle()
        check_cache(self.compile_cache, "compile_cache")
        policy = self.scheduling(self.most_rows, token_bytes=1, budget=10**9)  # for what the policy itself refuses
        if self.log is not None:
            policy_json(policy)

    def _check_policy(self) -> None:
        """A name that is known, or of one's own, or a policy, whose rows and steps are those of the engine."""
        policy = self.policy
        if isinstance(policy, str):
            return check_name(policy)
        if not own.is_policy(policy):
            raise UserError(
                f"policy is {shown(policy)}; give {', '.join(POLICIES)}, or a policy as docs/policy.md has it; {own.EXAMPLE}"
            )
        for name in (*OPTIONS, "prefill_tokens", "queue_size", "queue_timeout"):
            apart = name.endswith("workers") and isinstance(policy, Disaggregated)
            if getattr(self, name) is not None and not apart:
                raise UserError(f"{name} is given, but the policy is made already and has its own; leave it out")
        for name, has in (("rows", policy.limits.rows), ("multi_step", policy.multi_step)):
            if getattr(self, name) not in (None, 1 if name == "multi_step" else None, has):
                raise UserError(f"{name} is {getattr(self, name)}, but the policy is made already, with {has}; leave it out")
            settle(self, **{name: has})

    def _idle(self) -> None:
        """Refuse what would be of no use."""
        if self.drafts is not None and self.speculate is None:
            raise UserError("drafts is given, but nothing drafts; leave it out, or speculate with ngram")
        if self.batch_invariant:
            for name, asked in (("speculate", self.speculate), ("multi_step", self.multi_step > 1), ("ladder", self.ladder)):
                if asked:
                    raise UserError(
                        f"{name} brings programs of other shapes, and batch_invariant runs every token in one; leave one of them out"
                    )
        if self.kv == "contiguous":
            if self.page_size is not None:
                raise UserError("page_size is given, but contiguous KV has no pages; leave it out, or take paged KV")
            if self.prefix_cache:
                raise UserError("prefix_cache needs pages, for slots can't be shared; leave it out, or take paged KV")

    @property
    def most_rows(self) -> int:
        """Sequences that run at once, where no ladder says otherwise: 64, if the policy's own options agree."""
        if self.rows is not None:
            return self.rows
        return max(min(ROWS, self.budget or ROWS if self.policy == "chunked" else ROWS), *(self.preferred or (1,)))

    @property
    def remembers(self) -> bool:
        """Whether there is a prefix cache."""
        return self.kv == "paged" and self.prefix_cache is not False

    @property
    def drafter(self) -> NGram | None:
        """Who drafts."""
        return NGram(self.drafts or DRAFTS) if self.speculate else None

    @property
    def workers(self) -> int:
        """KV pools."""
        if isinstance(self.policy, Disaggregated):
            return self.policy.prefill + (self.decode_workers or 1)
        return (self.prefill_workers or 1) + (self.decode_workers or 1) if self.policy == "disaggregated" else 1

    @property
    def mixes(self) -> bool:
        """Whether steps run decodes beside parts of prompts, within a budget, so that programs for both are worth compiling."""
        return mixes(self.policy)

    @property
    def ahead(self) -> int:
        """Plans that are made before the outcome of earlier ones is known: one, unless that is needed for drafts or for routing."""
        return 0 if self.speculate or self.policy == "disaggregated" else 1

    def scheduling(self, rows: int, *, token_bytes: int, budget: int, piece: int = 1) -> Policy:
        """The policy.

        Args:
          rows: sequences that run at once.
          token_bytes: B of KV of a token.
          budget: tokens of a step where nothing is said.
          piece: tokens that programs fill a part of a prompt up to.

        Raises:
          UserError: values that don't fit each other.
        """
        if not isinstance(self.policy, str):
            return self.policy
        queue = QueueRule(self.queue_size, math.inf if self.queue_timeout is None else self.queue_timeout)
        limits = Limits(rows, self.prefill_tokens, queue=queue, ahead=self.ahead)
        given = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        given |= {"multi_step": self.multi_step} if self.multi_step > 1 else {}
        offered = {"budget": budget, "piece": piece, "multi_step": 1, "token_bytes": token_bytes}
        return make_policy(self.policy, limits, given, offered)


def _check_log(path: Path) -> None:
    """Whether a log could be written there. Nothing is made.

    Raises:
      UserError: it is a folder, or lies in none, or may not be written to.
    """
    try:
        if path.is_dir():
            raise UserError(f"the step log {path} is a folder; give the name of a file")
        if not path.parent.is_dir():
            raise UserError(
                f"the step log {path} can't be written: No such file or directory; make the folder {path.parent}, or give another name"
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UserError(f"the step log {path} can't be written: Permission denied; give a name in a folder of your own")
    except OSError as error:  # a name that is too long, say
        raise UserError(f"the step log {shown(str(path))} can't be written: {error.strerror}; give another name") from None
