"""The bucket ladder: the closed set of shapes that an engine compiles, and which of them a step needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

from jaxserve.programs.bucket import Bucket, Shape
from models.errors import UserError


def powers(largest: int, smallest: int = 1) -> tuple[int, ...]:
    """smallest, twice that, ..., up to the first that is at least `largest`."""
    sizes = [smallest]
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Batch sizes, page-table widths and prefill shapes, each ascending; what is left out is not compiled.

    Attributes:
      batches: rows of the decode programs.
      widths: pages of a row's table. One is enough where attention follows the live context (blockwise); the gather reference
        pays for the whole width, so there a ladder of them pays off.
      chunk: (rows, query) of the largest prefill program. A prompt is cut into pieces of at most `query` tokens; several pieces of
        one prompt may be rows of one step, in order. (rows, 1) with no batch but these rows: see `uniform`.
      page: tokens of a page.
      prefills: rows of smaller prefill programs with the same query.
      mixed: rows of decodes that are also compiled together with each prefill, as one program.
      drafts: tokens that a row can have verified at once. Above 0 each of `batches` is also compiled to verify so many, and each of
        `mixed` to do so beside each prefill.
      steps: above 1 each of `batches` is also compiled to decode up to so many times without asking the host.
    """

    batches: tuple[int, ...]
    widths: tuple[int, ...]
    chunk: tuple[int, int]
    page: int
    prefills: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()
    drafts: int = 0
    steps: int = 1

    def __post_init__(self) -> None:
        """Raises UserError for what is no ladder, or would compile the same program twice."""
        for name in ("batches", "widths", "prefills", "mixed"):
            sizes = getattr(self, name)
            wanted = name in ("batches", "widths")
            if (wanted and not sizes) or min(sizes, default=1) < 1 or list(sizes) != sorted(set(sizes)):
                raise UserError(f"ladder: {name} are {list(sizes)}; they must ascend from at least 1")
        rows, query = self.chunk
        if min(self.chunk) < 1:
            raise UserError(f"ladder: the prefill chunk is {rows}x{query}; both must be at least 1")
        if self.prefills and self.prefills[-1] >= rows:
            raise UserError(
                f"ladder: prefills are {list(self.prefills)}; they must be smaller than the largest, which has {rows} rows"
            )
        for name, least in (("page", 1), ("drafts", 0), ("steps", 1)):
            if getattr(self, name) < least:
                raise UserError(f"ladder: {name} is {getattr(self, name)}; it must be at least {least}")
        if len(set(buckets := self.buckets())) < len(buckets):
            twice = next(each for i, each in enumerate(buckets) if each in buckets[:i])
            raise UserError(f"ladder: {twice.name} is in it twice; give the prefill chunk at least 2 tokens a row")

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """The ladder that `to_json` gave.

        Args:
          given: a mapping of attributes, as `json.load` makes it. Those that have a default may be missing.

        Raises:
          UserError: it is something else, or no ladder.
        """
        if not isinstance(given, Mapping):
            raise UserError(f"ladder: {type(given).__name__} is no ladder; give an object with batches, widths, chunk and page")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if unknown := [str(name) for name in given if name not in fields]:
            raise UserError(f"ladder: {unknown[0][:40]!r} is no attribute of a ladder; known are {', '.join(fields)}")
        if absent := [n for n, field in fields.items() if n not in given and field.default is dataclasses.MISSING]:
            raise UserError(f"ladder: {absent[0]} is missing; give batches, widths, chunk and page")
        ladder: dict[str, Any] = {}
        for name, value in given.items():
            if name in ("page", "drafts", "steps"):
                numbers, wanted = [value], "a whole number"
            else:
                numbers = list(value) if isinstance(value, list | tuple) else [None]
                wanted = "two whole numbers, rows and tokens" if name == "chunk" else "whole numbers, in a list"
            if not all(type(number) is int for number in numbers) or (name == "chunk" and len(numbers) != 2):
                raise UserError(f"ladder: {name} is {repr(value)[:40]}; give {wanted}")
            ladder[name] = tuple(numbers) if isinstance(value, list | tuple) else value
        return cls(**ladder)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `from_json`."""
        return {name: list(each) if isinstance(each, tuple) else each for name, each in dataclasses.asdict(self).items()}

    @property
    def uniform(self) -> bool:
        """Whether one program runs all tokens, prompts included, each as a row of its own. No sum is then taken in an order that
        depends on which other tokens run: a token's numbers are the same in any step, and so is every answer, in 16 bits too."""
        plain = not (self.prefills or self.mixed or self.drafts) and self.steps == 1
        return plain and len(self.widths) == 1 and self.chunk == (self.batches[-1], 1) and len(self.batches) == 1

    @property
    def context(self) -> int:
        """Tokens that the widest table holds."""
        return self.widths[-1] * self.page

    def buckets(self) -> list[Bucket]:
        """Every bucket, cheapest first."""
        if self.uniform:
            return [Bucket(((self.batches[0], 1),), self.widths[0])]
        chunks = [(rows, self.chunk[1]) for rows in self._pieces]
        kinds: list[tuple[Shape, bool, int]] = [(((rows, 1),), False, 1) for rows in self.batches]
        kinds += [((chunk,), False, 1) for chunk in chunks]
        kinds += [(((rows, 1), chunk), False, 1) for rows in self.mixed for chunk in chunks]
        if self.drafts:
            query = self.drafts + 1
            kinds += [(((rows, query),), True, 1) for rows in self.batches]
            kinds += [(((rows, query), chunk), True, 1) for rows in self.mixed for chunk in chunks]
        if self.steps > 1:
            kinds += [(((rows, 1),), False, self.steps) for rows in self.batches]
        buckets = [Bucket(shape, width, verify, steps) for shape, verify, steps in kinds for width in self.widths]
        return sorted(buckets, key=lambda bucket: (bucket.tokens * bucket.steps, bucket))

    def decode(self, rows: int, tokens: int) -> Bucket:
        """The smallest decode bucket for `rows` rows whose longest holds `tokens` tokens after the step."""
        return Bucket(((self._at_least(self.batches, rows, "rows"), 1),), self._width(tokens))

    def prefill(self, tokens: int, pieces: int | None = None) -> Bucket:
        """The smallest prefill bucket for `pieces` rows of up to `tokens` tokens after the step; the largest if none has as many.

        Without `pieces` it is the largest.
        """
        return Bucket((self._chunk(pieces),), self._width(tokens))

    def together(self, rows: int, pieces: int, tokens: int, verify: bool = False) -> Bucket | None:
        """The bucket for a decode (or `verify`) of `rows` rows beside a prefill of `pieces`; None where none was compiled.

        It is the smallest with as many rows and, if any has as many, pieces. After the step the longest row holds `tokens` tokens.
        """
        batch = next((batch for batch in self.mixed if batch >= rows), None)
        if batch is None or (verify and not self.drafts):
            return None
        query = self.drafts + 1 if verify else 1
        return Bucket(((batch, query), self._chunk(pieces)), self._width(tokens), verify)

    def verify(self, rows: int, tokens: int) -> Bucket:
        """As `decode`, with up to `drafts` tokens of each row verified. `tokens` counts those that may be refused too."""
        if not self.drafts:
            raise UserError("this ladder verifies no drafts; build it with drafts=k")
        shape = ((self._at_least(self.batches, rows, "rows"), self.drafts + 1),)
        return Bucket(shape, self._width(tokens), verify=True)

    def repeated(self, rows: int, tokens: int) -> Bucket:
        """As `decode`, up to `steps` times. `tokens` is what the longest row holds after the last step."""
        if self.steps == 1:
            raise UserError("this ladder repeats no decode; build it with steps=n")
        return dataclasses.replace(self.decode(rows, tokens), steps=self.steps)

    @property
    def _pieces(self) -> tuple[int, ...]:
        """Rows of the prefill programs."""
        return (*self.prefills, self.chunk[0])

    def _chunk(self, pieces: int | None) -> tuple[int, int]:
        rows, query = self.chunk
        return next((each for each in self._pieces if each >= (rows if pieces is None else pieces)), rows), query

    def _width(self, tokens: int) -> int:
        if tokens > self.context:
            raise UserError(f"a sequence of {tokens} tokens fits no program; the longest holds {self.context}; raise --context")
        return self._at_least(self.widths, -(-tokens // self.page), "pages")

    @staticmethod
    def _at_least(sizes: Iterable[int], wanted: int, what: str) -> int:
        for size in sizes:
            if size >= wanted:
                return size
        raise UserError(f"{wanted} {what} fit no program; the largest has {size}; build a longer ladder")
