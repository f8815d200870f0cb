"""A language model and a device that are a few integers, so that a wrong table, a lost copy or a stale page changes the answer.

The KV of a token is a digest of it and of all tokens before it, which is just what attention makes it depend on. The device keeps
digests in cells, page by page, does what a plan says to those cells and to nothing else, and checks that every cell that a row reads
is the digest of that row's own tokens. The oracle of an answer is the same model run alone over the plain list of tokens.
"""

from __future__ import annotations

from jaxserve.scheduling.plan import HandOff, Plan
from jaxserve.scheduling.request import Request
from jaxserve.scheduling.step_result import StepResult

EOS = 0
PRIME = (1 << 61) - 1


def digest(before: int, token: int) -> int:
    """Of a token after tokens of digest `before`."""
    return (before * 1_000_003 + token + 7) % PRIME


def mixed(*numbers: int) -> int:
    """Any numbers, well mixed."""
    value = 88_172_645_463_325_252
    for number in numbers:
        value = (value ^ (number + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 % (1 << 64)
        value ^= value >> 29
    return value


class Toy:
    """The model: a vocabulary of `vocabulary` tokens, of which 0 ends an answer."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary

    def draw(self, state: int, sample: int) -> int:
        """The token that follows tokens of digest `state`, in sample number `sample` of a request."""
        return mixed(state, sample) % self.vocabulary

    def answer(self, request: Request, sample: int) -> list[int]:
        """The oracle: one request alone, without cache, pages or batches."""
        state, answer = 1, list[int]()
        for token in request.prompt:
            state = digest(state, token)
        while len(answer) < request.limit and answer[-1:] != [EOS]:
            answer.append(self.draw(state, sample))
            state = digest(state, answer[-1])
        return answer


class Device:
    """Runs plans over the cells of each worker's pool, one plan after the other."""

    def __init__(self, model: Toy, pages: list[int], drafts: int):
        self.model, self.pages, self.drafts = model, pages, drafts  # tokens of a page (a slot) of each worker
        self.cells: list[dict[tuple[int, int], int]] = [{} for _ in pages]
        self.tokens: dict[int, list[int]] = {}  # prompt and answer of each row
        self.requests: dict[int, Request] = {}
        self.ended: dict[int, str] = {}
        self.tables: dict[int, tuple[int, ...]] = {}  # as put together from what plans say has moved

    def accept(self, request: Request) -> None:
        for id in range(request.id, request.id + request.samples):
            self.requests[id], self.tokens[id] = request, list(request.prompt)

    def answer(self, id: int) -> list[int]:
        return self.tokens[id][len(self.requests[id].prompt) :]

    def move(self, what: HandOff) -> None:
        """Copy what the target doesn't have, token by token."""
        (source, target), pages = what.pages, self.pages
        for at in range(what.start, what.stop):
            cell = self.cells[what.source][self._cell(what.source, source, at)]
            self.cells[what.target][self._cell(what.target, target, at)] = cell
        assert pages

    def run(self, plan: Plan) -> StepResult:
        """One plan: copies, then the steps; what it drew."""
        cells = self.cells[plan.worker]
        read = [[(offset, cells[page, offset]) for offset in range(self.pages[plan.worker]) if (page, offset) in cells]
                for page, _ in plan.copies]  # fmt: skip
        for (_, target), page in zip(plan.copies, read, strict=True):
            for offset, cell in page:
                cells[target, offset] = cell
        moved = dict(plan.moved)
        for i, (id, table) in enumerate(zip(plan.ids, plan.tables, strict=True)):
            kept = moved.get(i, len(table))
            self.tables[id] = (*self.tables.get(id, ())[:kept], *table[kept:])
            assert self.tables[id] == table, f"row {id}: the table is {table}, but what moved makes it {self.tables[id]}"
        drawn: dict[int, list[int]] = {id: [] for id in plan.ids}
        for _ in range(plan.steps):
            running = [row for row in plan.rows if not (drawn[row.id] and row.id in self.ended)]
            fed = {
                row.id: self._fed(row.id, row.start + len(drawn[row.id]), row.count, row.draws, plan.steps) for row in running
            }
            for row in running:  # all rows write before any reads, as in one program
                start = row.start + (len(drawn[row.id]) if plan.steps > 1 else 0)
                self._write(plan.worker, row.id, row.table, start, fed[row.id])
            for row in running:
                start = row.start + (len(drawn[row.id]) if plan.steps > 1 else 0)
                drawn[row.id] += self._draw(plan.worker, row.id, row.table, start, fed[row.id], row.draws, plan.steps)
        tokens = tuple(tuple(drawn[id]) for id in plan.ids)
        ready = {
            id: mixed(id, len(self.tokens[id]), 5) % (self.drafts + 1) for id, new in zip(plan.ids, tokens, strict=True) if new
        }
        return StepResult(tokens, {id: self.ended[id] for id in plan.ids if self.ended.get(id) == "stop"}, ready)

    def _cell(self, worker: int, table: tuple[int, ...], at: int) -> tuple[int, int]:
        page = self.pages[worker]
        return table[at // page], at % page

    def _fed(self, id: int, start: int, count: int, draws: int, steps: int) -> list[int]:
        """Tokens that a row runs: known ones, and for a verify step drafts, some of them wrong."""
        known = self.tokens[id][start : start + count]
        if steps > 1:
            return self.tokens[id][start : start + 1]
        while draws > 1 and len(known) < count:
            history = [*self.tokens[id], *known[len(self.tokens[id]) - start :]]
            state = 1
            for token in history:
                state = digest(state, token)
            right = self.model.draw(state, id - self.requests[id].id)
            known.append(right if mixed(state, 3) % 3 else (right + 1) % self.model.vocabulary)
        assert len(known) == count or id in self.ended, (
            f"row {id} is to run {count} tokens at {start}, but only {known} are known"
        )
        return known

    def _write(self, worker: int, id: int, table: tuple[int, ...], start: int, fed: list[int]) -> None:
        if id in self.ended and start >= len(self.tokens[id]):
            return  # a plan that was made ahead runs a row that has ended meanwhile
        state = self.cells[worker][self._cell(worker, table, start - 1)] if start else 1
        for at, token in enumerate(fed, start):
            state = digest(state, token)
            self.cells[worker][self._cell(worker, table, at)] = state

    def _draw(
        self, worker: int, id: int, table: tuple[int, ...], start: int, fed: list[int], draws: int, steps: int
    ) -> list[int]:
        """Check all that the row reads, and draw: tokens that are accepted."""
        if id in self.ended:
            return [EOS] * min(draws, 1)
        states, state = [], 1
        for at, token in enumerate([*self.tokens[id][:start], *fed]):
            state = digest(state, token)
            found = self.cells[worker].get(self._cell(worker, table, at))
            assert found == state, f"row {id} of worker {worker} reads other KV than its own at position {at} through {table}"
            states.append(state)
        new: list[int] = []
        for i in range(len(fed)) if draws > 1 and steps == 1 else [len(fed) - 1] if draws else []:
            new.append(self.model.draw(states[start + i], id - self.requests[id].id))
            if new[-1] == EOS or (draws > 1 and i + 1 < len(fed) and fed[i + 1] != new[-1]):
                break
        if new:
            assert start + len(fed) >= len(self.tokens[id]), f"row {id} draws a token that it has drawn before"
            self.tokens[id] += new
            if new[-1] == EOS:
                self.ended[id] = "stop"
            elif len(self.answer(id)) >= self.requests[id].limit:
                self.ended[id] = "length"
        return new
