"""Which programs a study compiles, and that extrapolating costs no figure. Oracles: the rule by hand, and a whole compile."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import find_architecture
from costmodel.hardware.chips import find_chip
from costmodel.hlo.cost import Cost
from costmodel.ledger.compiled import CompiledCost
from costmodel.study import FEW, Study
from models.config.model_config import ModelConfig
from models.config.presets import PRESETS
from models.errors import UserError


def study(model: str = "llama-3-8b", platform: str = "gpu", **options: object) -> Study:
    known: ModelConfig | Architecture = PRESETS.get(model) or find_architecture(model)
    return Study(known, find_chip("h100"), "cpu", platform, (2,), 64, **options)  # type: ignore[arg-type]


def test_few_layers_are_compiled_where_layers_are_alike():
    assert study().layer_counts() == FEW and study(whole=True).layer_counts() == (32,)
    assert study("tiny").layer_counts() == (2,)  # no fewer than it has
    assert study("gemma-3-1b").layer_counts() == (26,)  # layers of two windows
    assert study(scanned=True).layer_counts() == (32,)  # as quick as one layer
    assert study(platform="tpu").layer_counts() == study(platform="tpu", scanned=False).layer_counts() == (32,)


def test_only_what_the_engine_runs_can_be_compiled():
    with pytest.raises(UserError, match="mixtral-8x7b is priced from its config alone"):
        study("mixtral-8x7b").program(1)


def test_a_batch_that_cannot_be_compiled_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    """Only where none can is it an error, and then the compiler's own."""

    def compile_or_refuse(self: Study, batch: int, layers: int) -> CompiledCost:
        if batch > 8:
            raise UserError(f"{batch} rows do not fit")
        return CompiledCost(Cost(batch, layers), Cost(), Cost(), {}, {}, {}, {}, {}, ())

    monkeypatch.setattr(Study, "compile", compile_or_refuse)
    costs, refused = dataclasses.replace(study(), batches=(4, 16, 8, 32)).compiled()
    assert refused == {16: "16 rows do not fit", 32: "32 rows do not fit"}
    assert {batch: (cost.reported.flops, cost.reported.bytes) for batch, cost in costs.items()} == {4: (4, 32), 8: (8, 32)}
    with pytest.raises(UserError, match="rows do not fit"):
        dataclasses.replace(study(), batches=(16, 32)).compiled()


@pytest.mark.slow
def test_an_extrapolated_study_equals_a_whole_one():
    """Six small layers on this machine's processor."""
    config = dataclasses.replace(PRESETS["tiny"], layers=6, windows=(None,) * 6)
    few, whole = (
        Study(config, find_chip("h100"), "cpu", "cpu", (2,), 64, dtype="float32", whole=w).compiled()[0][2]
        for w in (False, True)
    )
    assert few.basis == "extrapolated from 2 and 4 layers to 6" and whole.basis == "compiled whole"
    assert few.traffic.bytes == pytest.approx(whole.traffic.bytes, rel=2e-3)
    assert few.traffic.flops == pytest.approx(whole.traffic.flops, rel=2e-3)
