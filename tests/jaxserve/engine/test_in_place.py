"""Law 4 over everything that an engine compiles: no program takes more room beside the pool because the pool is larger.

Oracle: XLA's own memory totals of each program at two sizes of the pool.
"""

from __future__ import annotations

import pytest

from costmodel.compile.xla import in_place
from jaxserve.engine.compiled_programs import CompiledPrograms
from jaxserve.kv.layout import KVLayout
from jaxserve.programs.buckets import Buckets
from jaxserve.programs.features import PLAIN, Features
from tests.jaxserve.engines import ALL_FEATURES, ALL_KIT, CONTEXT, model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype", "features"),
    [("paged", "float32", ALL_FEATURES), ("paged", "bfloat16", PLAIN), ("contiguous", "float32", ALL_FEATURES)],
    ids=["paged", "paged-bfloat16", "contiguous"],
)
def test_every_program_of_an_engine_updates_its_pool_in_place(kind: str, dtype: str, features: Features):
    """Decodes, prefills, both together, verifying beside either, and several steps in one."""
    paged = kind == "paged"
    ladder = ALL_KIT.ladder if paged else Buckets((4,), (1,), (2, 8), CONTEXT, mixed=(4,), drafts=2, steps=3)
    made = []
    for units in (44, 880):
        pool = KVLayout(units, ladder.page, dtype, kind)  # type: ignore[arg-type]
        kv = model().empty_pool(units, ladder.page, dtype, contiguous=not paged)
        made.append(CompiledPrograms.of(model(), pool, ladder, features, kv).programs)
    small, large = made
    assert len(small) == 6
    for first, second in zip(small, large, strict=True):
        assert in_place(first, second), (first.bucket.name, first.totals, second.totals)
