"""The waterfall between the witnesses. Oracles: made-up books that are summed by hand, and real programs, whose books must balance."""

from __future__ import annotations

import dataclasses

import jax
import pytest

from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost, Term
from costmodel.cli.decode_tables import witnesses
from costmodel.compile.program import StepProgram
from costmodel.hardware.chips import CHIPS
from costmodel.hlo.cost import Cost
from costmodel.ledger.compiled import CompiledCost
from costmodel.ledger.ledger import ledger
from costmodel.ledger.operands import GATHER
from costmodel.reconcile import LOOPS, name_of, reconcile
from costmodel.terminal.tables import Table
from models.config.presets import PRESETS
from models.errors import UserError
from tests.compiling import UNOPTIMISED


def term(component: str, kind: str, amount: float, flops: float = 0.0) -> Term:
    return Term(component, component, kind, flops, amount, 0.0, "bfloat16", "", "")


# A model that reads 100 B of weights and 40 B of KV, writes 1 B of it and 10 B of activations; a program that gathers the KV into
# a copy (40 written, 40 read) and whose 2 layers XLA counts once and charges 500 B too much in each.
MODEL = StepCost((term("qkv", "weights", 100.0, 7.0), term("kv_read", "kv", 40.0), term("kv_write", "kv", 1.0),
                  term("qkv", "activations", 10.0)), 4, 4)  # fmt: skip
PROGRAM = CompiledCost(
    reported=Cost(5, 615.5, 0),
    with_trips=Cost(10, 1231, 0),
    traffic=Cost(12, 231, 0),
    items={
        ("weights", "in place", "qkv", "read"): 100.0,
        ("kv", "in place", "kv_read", "read"): 40.0,
        ("kv", "gathered", "kv_read", "write"): 40.0,
        ("kv", "gathered", "scores", "read"): 40.0,
        ("kv", "updated", "kv_write", "write"): 1.0,
        ("intermediate", "activations", "qkv", "write"): 8.0,
        ("intermediate", "activations", "unattributed", "write"): 2.0,
    },
    corrections={GATHER: -1000.0},
    flops={"qkv": 8.0, "rope": 4.0},
    link_bytes={},
    trips={"while.1": 2},
    unpriced=(),
)


def test_every_difference_has_a_name():
    found = reconcile(MODEL, PROGRAM)
    assert {r.name: (r.amount, r.between) for r in found.residuals} == {
        "KV gathered into a copy": (80.0, "analytical and traffic"),
        "activations between kernels": (-2.0, "analytical and traffic"),
        "bytes that no scope accounts for": (2.0, "analytical and traffic"),
        GATHER: (1000.0, "traffic and with trips"),
        LOOPS: (-615.5, "with trips and reported"),
    }
    assert found.unexplained == 0 and found.ratio("reported") == 615.5 / 151 and found.ratio("traffic", "flops") == 12 / 7


def test_flops_by_component():
    """7 expected in qkv, 8 and 4 of rope found; a custom call of 2 that XLA leaves out; half of the rest in a loop counted once."""
    found = {r.name: r.amount for r in reconcile(MODEL, PROGRAM).flop_residuals}
    assert found == {"qkv": 1.0, "rope": 4.0, "custom calls left out by XLA": -2.0, LOOPS: -5.0}
    assert 7 + sum(found.values()) == PROGRAM.reported.flops


def test_books_that_do_not_balance_are_said():
    assert reconcile(MODEL, dataclasses.replace(PROGRAM, corrections={})).unexplained == pytest.approx(1000 / 615.5)


def test_unattributed_bytes_are_named_as_such():
    assert name_of(("weights", "in place", "unattributed", "read")) == "bytes that no scope accounts for"


ON_CHIP = dataclasses.replace(MODEL, chip=CHIPS["h100-sxm"])


@pytest.mark.parametrize(
    ("traffic", "seconds"),
    [
        (Cost(12, 231, 0), 231 / 3.35e12),  # the bytes take longer: 69 ps, the FLOPs a thousandth
        (Cost(1e6, 231, 0), 1e6 / 989e12),  # the FLOPs take longer: 1.0 ns
    ],
)
def test_time_is_the_longer_of_bytes_and_flops(traffic: Cost, seconds: float):
    """On an H100 of 3.35 TB/s and 989 TFLOP/s (facts.md section 1), weights of 16 bits; the program's figures and not the model's."""
    found = reconcile(ON_CHIP, dataclasses.replace(PROGRAM, traffic=traffic))
    assert found.compiled_seconds == pytest.approx(seconds, rel=1e-12)


def test_no_time_without_a_chip():
    with pytest.raises(UserError, match=r"priced on no chip, so there are bytes but no seconds; pass chip= to step_cost"):
        _ = reconcile(MODEL, PROGRAM).compiled_seconds


def test_the_table_has_all_three_ratios():
    """615.5, 1231 and 231 B over 151 B; two layers that XLA counts once show as twice the ratio with trips."""
    view = witnesses([reconcile(ON_CHIP, PROGRAM)])[0]
    assert isinstance(view, Table)
    shown = {name: cells for name, *cells in zip(view._names, *view._rows, strict=True)}
    assert {name: cells for name, cells in shown.items() if "/" in name} == {
        "XLA/¹": ["4.076"],
        "trips/¹": ["8.152"],
        "traffic/¹": ["1.530"],
    }


@pytest.mark.parametrize("attention", ["blockwise", "gather"])
def test_the_residuals_of_a_real_step_sum_to_the_difference(attention: str):
    """In bytes and in FLOPs, and what no scope accounts for is under 1 % of the reported bytes (the law that books balance)."""
    config = PRESETS["tiny"]
    program = StepProgram.on("cpu", config, ((8, 1),), 128, attention=attention)
    made = jax.jit(program, donate_argnums=program.donate).lower(*program.abstract_args()).compile(UNOPTIMISED)
    cost = step_cost(config, batch=8, context=128, dtype="float32")
    compiled = CompiledCost.of(ledger(made, program.trips(128) or None))
    found = reconcile(cost, compiled)
    assert found.unexplained < 1e-9
    assert float(cost.flops) + sum(r.amount for r in found.flop_residuals) == pytest.approx(compiled.reported.flops, rel=1e-9)
    nobody = sum(r.amount for r in found.residuals if r.name == "bytes that no scope accounts for")
    assert nobody < 0.01 * compiled.reported.bytes
    assert not [r for r in found.residuals if "other" in r.name.split()]
