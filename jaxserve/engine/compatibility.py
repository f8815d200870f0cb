"""Whether an engine's parts fit each other: what a policy may plan must be in the ladder, or a request would find out too late."""

from __future__ import annotations

from jaxserve.engine.model import Model
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import Features
from jaxserve.scheduling.policy import Policy
from jaxserve.speculative.ngram import NGram
from models.errors import UserError


def check_compatibility(
    model: Model, policy: Policy, pool: KVLayout, ladder: Buckets, features: Features, drafter: NGram | None, workers: int
) -> int:
    """Tokens of the longest sequence that all of them can serve.

    Raises:
      UserError: naming the two that don't fit each other, and what to change.
    """
    limits = policy.limits
    if limits.rows > ladder.batches[-1]:
        raise UserError(
            f"the policy runs up to {limits.rows} rows and the ladder's largest batch is {ladder.batches[-1]}; lower the limit of rows or "
            "add a batch to the ladder"
        )
    if policy.multi_step > ladder.steps:
        raise UserError(
            f"the policy plans up to {policy.multi_step} steps at once and the ladder's programs run {ladder.steps}; lower multi_step or "
            "raise the ladder's steps"
        )
    if drafter is not None and drafter.drafts > ladder.drafts:
        raise UserError(
            f"up to {drafter.drafts} drafts are made and the ladder's programs verify {ladder.drafts}; make fewer, or raise the "
            "ladder's drafts"
        )
    if drafter is not None and limits.ahead:
        raise UserError(
            f"limits: ahead is {limits.ahead}; drafts are made of what a step has drawn, so nothing can be planned ahead: set it to 0"
        )
    if workers < 1:
        raise UserError(f"an engine with {workers} workers runs nothing; give it at least 1")
    slots = pool.kind == "contiguous"
    if slots and ladder.widths != (1,):
        raise UserError(
            f"the ladder's tables are {list(ladder.widths)} pages wide; contiguous KV has one slot a row: make it 1"
        )
    if ladder.page != pool.unit:
        what = "slots" if slots else "pages"
        raise UserError(
            f"the ladder counts {what} of {ladder.page} tokens and the pool has them of {pool.unit}; make them equal"
        )
    context = min(ladder.context, pool.unit if slots else pool.tokens, model.context)
    if limits.context is not None:
        context = min(context, limits.context)
    if features.history and features.history < context:
        raise UserError(
            f"features: penalties count {features.history} tokens and sequences have up to {context}; raise history to that"
        )
    return context
