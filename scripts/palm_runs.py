"""The PaLM runs on TPU v4 that Pope et al. 2022 published (tables 1 to 3, sections 4.3 and 4.4), and what each tells of the model.

The figures are the paper's as summaries of it give them (table 3's as a single one does), and the layouts are those its tables
state. Each run is consistent in itself by MFU = tokens 2 N / (chips peak seconds), which `tests/scripts/test_palm.py` works out.
"""

from __future__ import annotations

import dataclasses

from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import find_architecture, palm
from costmodel.parallel.layouts import Layout, Mesh
from costmodel.parallel.sharded import ShardedStep
from costmodel.parallel.shares import BF16, Itemsizes
from costmodel.parallel.stages import sharded_step

INT8 = Itemsizes(weight=1)
HISTORY, NEW = 1984, 64  # table 2 and 3: 2048 tokens in the end, of which 64 are generated
# Section 4: heads padded from 48 to 64, which adds 18 billion parameters, so that they divide over 64 chips.
PADDED = palm("palm-540b, 64 heads", layers=118, hidden=18432, heads=64)


@dataclasses.dataclass(frozen=True)
class Run:
    """One column of table 2 or 3.

    Attributes:
      model: as it ran. `parameters` is what MFU counts: the model as trained.
      mesh: 4x4x4 is the paper's; of fewer chips only the number is published, and the mesh is the TPU v4 slice of that size.
      kind: "prefill" of 2048 tokens a sequence in one step, or "decode" of 64 tokens in as many steps.
      seconds, mfu: published.
      why: what lies between them and the model.
    """

    name: str
    model: Architecture
    parameters: int
    mesh: Mesh
    feedforward: str
    attention: str
    items: Itemsizes
    kind: str
    batch: int
    seconds: float
    mfu: float
    why: str

    @property
    def weights(self) -> str:
        return "int8" if self.items == INT8 else "bf16"

    @property
    def steps(self) -> int:
        return NEW if self.kind == "decode" else 1

    @property
    def tokens(self) -> int:
        """Tokens that the published seconds cover."""
        return self.batch * (NEW if self.kind == "decode" else HISTORY + NEW)

    def step(self, model: Architecture | None = None, items: Itemsizes | None = None) -> ShardedStep:
        """One step of the run; of a decode the mean one, for its cost is linear in the context."""
        decode = self.kind == "decode"
        return sharded_step(
            model or self.model,
            Layout(self.mesh, self.feedforward, self.attention),
            batch=self.batch,
            tokens=1 if decode else HISTORY + NEW,
            context=HISTORY + (NEW + 1) / 2 if decode else HISTORY + NEW,
            items=items or self.items,
        )

    def utilisation(self, seconds: float, peak: float) -> float:
        """MFU, section 2: tokens 2 N / (chips peak seconds), without attention and without padding."""
        return self.tokens * 2 * self.parameters / (self.mesh.chips * peak * seconds)


# What the published seconds hold and the analytical ones do not. Sizes of causes are worked out here; nobody measured them.
WHY = {
    "540B prefill 1": (
        "Arithmetic is most of it. At the share of the peak that run 3 reached, where links hardly matter (66.4 of 85.2 - 4.1 s: "
        "82 %), the matmuls take 0.03 s more, and collectives 0.02 s if each costs what run 2 allows at most: 0.05 of the 0.065 s "
        "that are left. Int8 weights are widened to bf16 by the vector units first, where softmax and layernorm run too."
    ),
    "540B decode 64": (
        "Latency, not volume. Weights are read at about the speed of the model (see what int8 saves, below: 89 %), so what is left, "
        "148 us a layer, int8 and bf16 have in common: ten collectives a layer over 4, 16 or 64 chips, one after another, of "
        "which 15 us each would be all of it; 64 rows, half of what a 128 x 128 matrix unit takes in while it loads a tile of "
        "weights; layernorm, softmax, sampling."
    ),
    "540B prefill 512": (
        "The nearest, for links and latency vanish: matmuls at 82 % of the peak would explain all. Known parts: the masked half of "
        "the scores, multiplied too if nobody skips it, 0.5 s; f32 scores through memory, 0.85 s a pass, of which softmax takes "
        "several. Padding 48 heads to 64 costs 2.1 s and is in the model. All collectives exposed are 4.1 s, less than what is "
        "left, so this run can't tell whether they overlap."
    ),
    "540B decode 512": (
        "Both: matmuls at run 3's 82 % take 0.5 s more, and the collectives, as many as in run 2, up to 1.1 s. 0.7 of the 2.3 s "
        "that are left have no name; softmax, and all-to-alls whose bytes cross several links of a torus and are priced as one, "
        "are among it."
    ),
    "62B prefill 1": (
        "As run 1, but more is left, 1.06 ms a layer, of which run 3's 82 % and run 2's collectives explain a third. A chip's "
        "matrices are about as large as the 540B's (4096 x 4096 against 4608 x 4608), so their size is no excuse; the mesh of "
        "the 16 chips is not published, and this one is a guess. The rest is unexplained."
    ),
    "62B decode 32": (
        "As run 2: what is left is 11 us a collective, against 15, with half the rows and a fourth of the chips in each."
    ),
    "62B prefill 512": (
        "As run 3; matmuls would be at 74 % of the peak if nothing else were missing. The masked half of the scores is 0.26 s and "
        "f32 scores through memory 0.46 s a pass: attention weighs two and a half times what it does in the 540B. MFU as published "
        "counts the embedding, 3 % of these weights, as multiplied for every token; hence 99 % for a program that does not overlap."
    ),
    "62B decode 512": (
        "Matmuls at run 7's 74 % take 0.7 s more and collectives at run 2's 15 us 0.6 s: 1.3 of the 1.85 s that are left. With 64 "
        "sequences a chip the cache is a third of the traffic, and the model reads it once and at full bandwidth, with scores and "
        "softmax for nothing."
    ),
}


def _run(
    size: str,
    kind: str,
    batch: int,
    mesh: str,
    chips: int,
    layout: tuple[str, str],
    items: Itemsizes,
    seconds: float,
    mfu: float,
) -> Run:
    trained = find_architecture(f"palm-{size.lower()}")
    name = f"{size} {kind} {batch}"
    ran = PADDED if size == "540B" else trained
    return Run(
        name, ran, trained.parameter_count, Mesh.parse(mesh, chips), *layout, items, kind, batch, seconds, mfu, WHY[name]
    )


RUNS = (
    _run("540B", "prefill", 1, "4x4x4", 64, ("ws-2d", "heads"), INT8, 0.29, 0.43),
    _run("540B", "decode", 64, "4x4x4", 64, ("ws-2d", "batch"), INT8, 1.82, 0.14),
    _run("540B", "prefill", 512, "4x4x4", 64, ("wg-xyz", "batch"), BF16, 85.2, 0.76),
    _run("540B", "decode", 512, "4x4x4", 64, ("ws-2d", "batch"), BF16, 6.0, 0.33),
    _run("62B", "prefill", 1, "2x2x4", 16, ("ws-2d", "heads"), INT8, 0.16, 0.36),
    _run("62B", "decode", 32, "2x2x4", 16, ("ws-2d", "batch"), INT8, 0.73, 0.08),
    _run("62B", "prefill", 512, "2x4x4", 32, ("wg-xyz", "batch"), BF16, 20.2, 0.73),
    _run("62B", "decode", 512, "2x2x2", 8, ("ws-2d", "batch"), BF16, 5.1, 0.37),
)

# Section 4.4: milliseconds a token at batch 64, PaLM 540B on 64 chips, by weights.
INT8_TOKEN, BF16_TOKEN = 28.5e-3, 36.9e-3
# Section 4.3: a serial block takes so much longer a step in decoding (2D, 64 chips, batch 512).
SERIAL = 0.14
# Table 1: tokens of context with 30 % of memory for the cache, by batch.
CACHE_SHARE = 0.3
CONTEXTS = (
    ("multihead, heads of 128", "heads", dataclasses.replace(PADDED, kv_heads=64, head_dim=128), {128: 1320, 512: 330}),
    ("multiquery by heads", "heads", PADDED, {128: 660, 512: 165}),
    ("multiquery by batch", "batch", PADDED, {128: 43_000, 512: 10_700}),
)
