"""The laws that hold in every state; tests check them after every step, an idle engine may."""

from __future__ import annotations

from jaxserve.scheduling.state import NEVER, State, Worker


def check(state: State) -> None:
    """Every page is in one place, every row stands where its memory says, and nobody waits with memory or runs without.

    Raises:
      RuntimeError: a law is broken; the message says which and where.
    """
    for i, worker in enumerate(state.workers):
        tables = [row.table for row in worker.rows.values()]
        tables += [move.row.table for move in state.moving if move.what.target == i]
        tables += [move.table for move in state.moving if move.what.source == i]
        worker.memory.check(tables)
        _check_rows(i, worker)
    ids = [row.id for row in (*state.waiting, *state.rows)]
    if len(ids) != len(set(ids)):
        raise RuntimeError(f"a row is in two places: {sorted(ids)}")
    if [row.rank for row in state.waiting] != sorted(row.rank for row in state.waiting):
        raise RuntimeError("the queue is not in the order of priority")
    if any(row.table or row.room for row in state.waiting):
        raise RuntimeError("a row that waits holds memory")


def _check_rows(index: int, worker: Worker) -> None:
    ids = [row.id for row in worker.rows.values()]
    if list(worker.rows) != ids or ids != sorted(ids, key=lambda id: worker.rows[id].seniority):
        raise RuntimeError(f"the rows of worker {index} are not in the order of admission: {ids}")
    exact = {"cached": set(ids), "tails": set(ids) if worker.memory.remembers else set()}
    for name in ("cached", "tails", "drafts", "moved", "drew"):
        known = set(getattr(worker, name))
        if known != exact.get(name, known) or known - set(ids):
            raise RuntimeError(f"worker {index} has rows {ids}, but {name} of {sorted(known)}")
    for row in worker.rows.values():
        cached, most = worker.cached[row.id], min(row.life, len(row.table) * worker.memory.page)
        if not 0 <= cached <= most:
            raise RuntimeError(f"row {row.id} has {cached} tokens in the cache, of {most} at most by its life and its table")
        if row.order == NEVER:
            raise RuntimeError(f"row {row.id} runs, but was never admitted")
