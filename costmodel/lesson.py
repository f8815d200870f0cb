"""Why batch 1 wastes an accelerator, figure by figure: each as a formula, the numbers put in, and the result (witness: analytical).

Every result comes from the functions that the rest of the cost model uses; the text of a figure only says which numbers went in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from costmodel.analytical.rows import check_quantity
from costmodel.analytical.step import step_cost
from costmodel.analytical.terms import StepCost
from costmodel.arch.architecture import Architecture
from costmodel.capacity import Pool, fit, kv_pool
from costmodel.concurrency.forming import Forming, deterministic_waits
from costmodel.concurrency.static_batch import StaticBatch
from costmodel.hardware.chip import Chip
from costmodel.sizing import ROUND

GIB = 2**30
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PAIRED, MANY = 32, 64  # rows of the projection, and of the large model's batch
CANDIDATES = (64, 128, 256)  # batches of the sizing study
WAITS = ((50.0, 8), (25.0, 4))  # arrivals a second, and the batch that they wait for
DELAY = 0.1  # s: the max queue delay of the example
ANSWERS = ((20, 50, 80, 200), (30, 60, 90, 120))  # tokens of the answers of a static batch
PROMPT = 512  # tokens of each of their prompts
ITEMSIZE = 2  # bytes of a weight and of a number of the cache


@dataclasses.dataclass(frozen=True)
class Figure:
    """One result.

    Attributes:
      key: for machines.
      name: what it is.
      formula: in symbols.
      numbers: the same with numbers put in.
      value, unit: the result.
      shown: the result, for people.
    """

    key: str
    name: str
    formula: str
    numbers: str
    value: Any
    unit: str
    shown: str

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Section:
    """Figures that belong together; `table` has the steps of section 2, one at each batch."""

    number: int
    title: str
    figures: Sequence[Figure]
    says: str
    table: Sequence[dict[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        figures = [figure.to_json() for figure in self.figures]
        return {"section": self.number, "title": self.title, "figures": figures, "batches": list(self.table), "says": self.says}


# A figure is a row of a table: it takes as few lines as it needs.
# fmt: off
@dataclasses.dataclass(frozen=True)
class Lesson:
    """The figures for a model, a large model that does not fit one chip, and a chip.

    Attributes:
      context: tokens that each row holds.
      pool: B of the KV pool of the sizing study.
      long: tokens that each row of the large model holds.

    Raises:
      UserError: a number that is not above 0.
    """

    model: Architecture
    large: Architecture
    chip: Chip
    context: int = 1024
    pool: float = 30 * GIB
    long: int = 8192

    def __post_init__(self) -> None:
        for name, value in (("--context", self.context), ("--kv-pool", self.pool), ("--long-context", self.long)):
            check_quantity(name, value)

    def sections(self) -> list[Section]:
        """All of them, in order."""
        return [self.ridge(), self.step(), self.large_model(), self.sizing(), self.forming(), self.static()]

    def ridge(self) -> Section:
        """Section 1: the chip."""
        chip, peak, bandwidth = self.chip, float(self.chip.peak("bfloat16")), float(self.chip.bandwidth)
        figures = [
            Figure("ridge", "ridge point: FLOP a byte at which memory and arithmetic take as long", "peak / bandwidth",
                   f"{peak / 1e12:g} TFLOP/s / {bandwidth / 1e12:g} TB/s", float(chip.ridge), "FLOP/B",
                   f"{float(chip.ridge):.1f} FLOP/B")
        ]
        if (sparse := chip.sparse_peaks.get("bfloat16")) is not None:
            figures.append(
                Figure("sparse_ridge", "what it would be with the peak of 2:4 sparsity, which decode never reaches",
                       "sparse peak / bandwidth", f"{sparse / 1e12:g} TFLOP/s / {bandwidth / 1e12:g} TB/s",
                       sparse / bandwidth, "FLOP/B", f"{sparse / bandwidth:.0f} FLOP/B")
            )
        return Section(1, f"The chip: {chip.name}", figures, "Below the ridge point memory decides, above it arithmetic.")

    def _nominal(self, model: Architecture, batch: float, context: float) -> StepCost:
        count = self._parameters(model)
        return step_cost(model, batch=batch, context=context, chip=self.chip, detail="nominal", parameters=count)

    @staticmethod
    def _parameters(model: Architecture) -> float:
        return ROUND.get(model.name, float(model.parameter_count))

    def step(self) -> Section:
        """Section 2: one decode step, from one row to many."""
        model, chip, s = self.model, self.chip, self.context
        count, one = self._parameters(model), self._nominal(model, 1, s)
        bandwidth, peak = float(chip.bandwidth), float(chip.peak("bfloat16"))
        weights, kv = float(one.weight_bytes), float(one.kv_bytes)
        read = weights / bandwidth
        reached = float(one.flops) / read
        token = kv_pool(model, self.pool).token
        compute, more = float(one.compute_seconds()), kv / bandwidth
        figures = [
            _bytes("weight_bytes", "weights, read once in a step whatever the batch", "P s", f"{_power(count)} x {ITEMSIZE} B", weights),
            _flops("flops_per_token", "arithmetic for one token", "2 P", f"2 x {_power(count)}", float(one.flops)),
            _ratio("intensity", "intensity of the weights alone at B = 1; at B it is B times this", "2 P / (P s)",
                   f"{_power(float(one.flops))} FLOP / {_power(weights)} B", float(one.flops) / weights),
            Figure("reached", "most arithmetic at B = 1: the weights come no faster", "2 P / (P s / bandwidth)",
                   f"{_power(float(one.flops))} FLOP / {read * 1e3:.4f} ms", reached, "FLOP/s",
                   f"{reached / 1e12:.2f} TFLOP/s"),
            _share("share_of_peak", "of the chip's dense peak", "reached / peak",
                   f"{reached / 1e12:.2f} / {peak / 1e12:g} TFLOP/s", reached / peak),
            _bytes("kv_bytes_per_token", "KV of one token", "2 L kv_heads head_dim s",
                   f"2 x {model.layers} x {model.kv_heads} x {model.head_dim} x {ITEMSIZE} B", token, whole=True),
            _bytes("kv_bytes_per_sequence", "KV of one sequence", "S x KV of a token", f"{s:,} x {token:,.0f} B", kv, whole=True),
            *self._projection(),
            _ms("compute_ms_per_row", "t_comp of each row", "2 P / peak",
                f"{_power(float(one.flops))} / {peak / 1e12:g} TFLOP/s", compute, 6),
            _ms("memory_ms_of_weights", "t_mem of the weights", "P s / bandwidth",
                f"{_power(weights)} B / {bandwidth / 1e12:g} TB/s", read, 4),
            _ms("memory_ms_per_row", "t_mem of each row's KV", "S x KV of a token / bandwidth",
                f"{kv:,.0f} B / {bandwidth / 1e12:g} TB/s", more, 6),
            _ratio("intensity_limit", "intensity as B grows without end", "2 P / (S x KV of a token)",
                   f"{_power(float(one.flops))} FLOP / {kv:,.0f} B", float(one.intensity_limit), 3),
        ]
        limit, ridge = float(one.intensity_limit), float(chip.ridge)
        side = "below" if limit < ridge else "above"
        bound = "every batch is bound by memory" if limit < ridge else "a batch that is large enough is bound by arithmetic"
        says = f"The limit, {limit:.1f} FLOP/B, lies {side} the ridge point, {ridge:.1f}: {bound}."
        title = f"One decode step of {model.name}: {_power(count)} parameters, context {s:,}"
        return Section(2, title, figures, says, [self._row(batch) for batch in BATCHES])

    def _row(self, batch: int) -> dict[str, Any]:
        cost = self._nominal(self.model, batch, self.context)
        return {
            "batch": batch,
            "memory_ms": float(cost.memory_seconds()) * 1e3,
            "compute_ms": float(cost.compute_seconds()) * 1e3,
            "flop_per_byte": float(cost.intensity),
            "tokens_per_second": float(cost.tokens_per_second()),
            "bound": cost.bound(),
        }

    def _projection(self) -> Iterator[Figure]:
        """The output projection of one layer at 32 rows: what activations add to the weights."""
        model, rows = self.model, PAIRED
        terms = {term.name: term for term in step_cost(model, batch=rows, context=1, chip=self.chip).terms}
        layers = model.layers
        weights, both = float(terms["out"].bytes) / layers, float(terms["out"].bytes + terms["out activations"].bytes) / layers
        flops = float(terms["out"].flops) / layers
        d, e = model.heads * model.head_dim, model.hidden
        name = f"one projection, {d} x {e}, at B = {rows}"
        yield _bytes("projection_bytes", f"{name}: weights, inputs and outputs", "s (d d' + B d + B d')",
                     f"{ITEMSIZE} x ({d} x {e} + {rows} x {d} + {rows} x {e}) B", both, whole=True)
        yield _flops("projection_flops", f"{name}: arithmetic", "2 B d d'", f"2 x {rows} x {d} x {e}", flops)
        yield _ratio("projection_intensity", f"{name}: intensity with activations", "2 B d d' / (s (d d' + B d + B d'))",
                     f"{flops:,.0f} FLOP / {both:,.0f} B", flops / both)
        yield _ratio("projection_intensity_of_weights", f"{name}: intensity of the weights alone", "2 B / s",
                     f"{flops:,.0f} FLOP / {weights:,.0f} B", flops / weights)

    def large_model(self) -> Section:
        """Section 3: a model whose weights don't fit one chip."""
        model, chip, s = self.large, self.chip, self.long
        count, one, many = self._parameters(model), self._nominal(model, 1, 1), self._nominal(model, MANY, s)
        weights, bandwidth = float(one.weight_bytes), float(chip.bandwidth)
        read = weights / bandwidth
        share = float(many.weight_bytes_per_row)
        each = float(many.kv_bytes) / MANY
        held = fit(model, chip, parameters=count)
        degree = "no number of chips up to 1024" if held.least is None else f"{held.least} chips"
        memory = float(chip.memory)
        figures = [
            _bytes("weight_bytes", "weights", "P s", f"{_power(count)} x {ITEMSIZE} B", weights),
            Figure("least_degree", "smallest number of chips that hold them (tensor parallel)",
                   "least n with P s / n <= memory", f"{weights / 1e9:.1f} GB / n <= {memory / 1e9:g} GB", held.least,
                   "chips", degree),
            _ms("memory_ms", "time to read them at one chip's bandwidth", "P s / bandwidth",
                f"{_power(weights)} B / {bandwidth / 1e12:g} TB/s", read, 1),
            _rate("tokens_per_second", "most tokens a second at B = 1", "1 / time", f"1 / {read * 1e3:.1f} ms", 1 / read, 1),
            _flops("flops_per_token", "arithmetic for one token", "2 P", f"2 x {_power(count)}", float(one.flops)),
            _flops("flops", f"arithmetic of a step at B = {MANY}", "2 P B", f"2 x {_power(count)} x {MANY}", float(many.flops)),
            _ratio("intensity", f"intensity of the weights alone at B = {MANY}", "2 B / s", f"2 x {MANY} / {ITEMSIZE}",
                   float(many.flops) / float(many.weight_bytes)),
            _bytes("weight_bytes_per_token", f"weights read for each token at B = {MANY}", "P s / B",
                   f"{weights / 1e9:.4g} GB / {MANY}", share),
            _rate("most_tokens_per_second", f"most tokens a second at B = {MANY}, KV not counted", "B bandwidth / (P s)",
                  f"{MANY} / {read * 1e3:.1f} ms", MANY / read, 0),
            _bytes("kv_bytes_per_layer", "KV that each token reads a layer, a token of context", "2 kv_heads head_dim s",
                   f"2 x {model.kv_heads} x {model.head_dim} x {ITEMSIZE} B", float(one.kv_bytes) / model.layers,
                   whole=True),
            _bytes("kv_bytes", f"KV that each token reads at context {s:,}", "L S 2 kv_heads head_dim s",
                   f"{model.layers} x {s:,} x {float(one.kv_bytes) / model.layers:,.0f} B", each),
        ]
        more = "more" if each > share else "less"
        says = f"At context {s:,} a token reads {each / 1e9:.2f} GB of KV, {more} than its {share / 1e9:.2f} GB of the weights."
        return Section(3, f"A large model: {model.name}, {_power(count)} parameters", figures, says)

    def sizing(self) -> Section:
        """Section 4: how many sequences a KV pool holds."""
        pool: Pool = kv_pool(self.model, self.pool)
        each, s = pool.sequence(self.context), self.context
        size = f"{self.pool / GIB:g} GiB"
        figures = [
            _gib("sequence", f"KV of one full sequence of {s:,} tokens", "S x KV of a token", f"{s:,} x {pool.token:,.0f} B", each),
            Figure("sequences", f"full sequences in a pool of {size}", "pool / KV of a sequence",
                   f"{size} / {each / GIB:g} GiB", pool.sequences(s), "sequences", f"{pool.sequences(s):,}"),
        ]
        for batch in CANDIDATES:
            over = pool.over(batch, s)
            verdict = f"over by {over / GIB:g} GiB" if over else "fits"
            needs = batch * each
            figures.append(
                Figure(f"needs_{batch}", f"batch {batch} needs", "B x KV of a sequence", f"{batch} x {each / GIB:g} GiB",
                       needs, "B", f"{needs / GIB:g} GiB: {verdict}")
            )
        for batch in (batch for batch in CANDIDATES if not pool.over(batch, s)):
            seconds = float(self._nominal(self.model, batch, s).seconds())
            figures.append(
                _ms(f"step_ms_{batch}", f"model step at batch {batch}, an estimate and no bound", "max(t_mem, t_comp)",
                    "section 2", seconds, 2)
            )
        says = "A cap on active sequences reserves no memory: admission follows the pages that are free."
        return Section(4, f"Sizing: {self.model.name} with a KV pool of {size}", figures, says)

    def forming(self) -> Section:
        """Section 5: how long a batch takes to form."""
        rate, target = WAITS[0]
        gap = 1 / rate
        waits = deterministic_waits(gap, target)
        clock = f"one request every {gap * 1e3:g} ms, batch of {target}"
        figures = [
            _ms("deterministic_mean", f"{clock}: mean wait", "(target - 1) gap / 2", f"{target - 1} x {gap * 1e3:g} ms / 2",
                float(waits.mean()), 0),
            _ms("deterministic_most", f"{clock}: longest wait", "(target - 1) gap", f"{target - 1} x {gap * 1e3:g} ms",
                float(waits.max()), 0),
        ]
        for rate, target in WAITS:
            batch, name = Forming(rate, target), f"Poisson arrivals, {rate:g}/s, batch of {target}"
            figures.append(
                _ms(f"poisson_mean_{target}", f"{name}: mean wait of the first request, unbounded above",
                    "(target - 1) / rate", f"{target - 1} / ({rate:g}/s)", batch.mean_first, 0)
            )
            figures.append(
                _ms(f"poisson_p95_{target}", f"{name}: P95 of that wait", "Erlang(target - 1, rate), 95 %",
                    f"Erlang({target - 1}, {rate:g}/s)", batch.quantile_first(0.95), 0)
            )
        rate, target = WAITS[0]
        timed = Forming(rate, target, DELAY)
        name = f"Poisson arrivals, {rate:g}/s, batch of {target}, max queue delay {DELAY * 1e3:g} ms"
        figures += [
            _ms("timed_mean", f"{name}: mean wait of the first request",
                "sum over i < target of P(Erlang(i) <= delay) / rate", f"i = 1 to {target - 1}, {rate:g}/s",
                timed.mean_first, 1),
            _share("timed_full", f"{name}: share of batches that leave full", "P(Erlang(target - 1) <= delay)",
                   f"Erlang({target - 1}, {rate:g}/s) <= {DELAY * 1e3:g} ms", timed.full),
        ]
        return Section(5, "Waiting for a batch to form", figures, "The timer bounds the wait and sends the batch as it is.")

    def static(self) -> Section:
        """Section 6: what a static batch locks, and what it reads."""
        figures: list[Figure] = []
        one = self._nominal(self.model, 1, self.context)
        token = kv_pool(self.model, self.pool).token
        for number, lengths in enumerate(ANSWERS, start=1):
            batch = StaticBatch(lengths)
            slots, name = batch.slots, f"answers of {', '.join(map(str, lengths))} tokens"
            reads = batch.reads(float(one.weight_bytes), token, [PROMPT] * len(lengths))
            figures += [
                Figure(f"slots_{number}", f"{name}: slots", "rows x longest", f"{len(lengths)} x {batch.steps}", slots.all,
                       "slots", f"{slots.all} slots, {slots.useful} useful, {slots.padded} padded"),
                _share(f"padded_{number}", f"{name}: padded share of the slots", "padded / slots",
                       f"{slots.padded} / {slots.all}", slots.padded_share),
                _bytes(f"read_{number}", f"{name}: bytes read, to which padded slots add nothing",
                       "steps x P s + KV of rows that run",
                       f"{batch.steps} x {float(one.weight_bytes) / 1e9:.4g} GB + {reads.kv / 1e9:.4g} GB",
                       reads.weights + reads.kv),
                _bytes(f"held_{number}", f"{name}: KV memory that ended rows hold, mean",
                       "KV of ended rows, over the steps", f"prompts of {PROMPT} tokens", reads.held),
            ]
        says = "Slots are locked until the longest answer ends; bytes are not: two figures, not one."
        return Section(6, "Static batches: slots and bytes", figures, says)


def _power(value: float) -> str:
    """8030261248 -> 8.03e9, 8e9 -> 8.0e9."""
    digits, exponent = f"{value:.3e}".split("e")
    short = digits.rstrip("0")
    return f"{short}{'0' if short.endswith('.') else ''}e{int(exponent)}"


def _bytes(key: str, name: str, formula: str, numbers: str, value: float, *, whole: bool = False) -> Figure:
    return Figure(key, name, formula, numbers, value, "B", f"{value:,.0f} B" if whole else f"{value / 1e9:,.4g} GB")


def _gib(key: str, name: str, formula: str, numbers: str, value: float) -> Figure:
    return Figure(key, name, formula, numbers, value, "B", f"{value / GIB:g} GiB")


def _flops(key: str, name: str, formula: str, numbers: str, value: float) -> Figure:
    unit, scale = ("TFLOP", 1e12) if value >= 1e12 else ("GFLOP", 1e9)
    return Figure(key, name, formula, numbers, value, "FLOP", f"{value / scale:,.4g} {unit}")


def _ratio(key: str, name: str, formula: str, numbers: str, value: float, digits: int = 2) -> Figure:
    return Figure(key, name, formula, numbers, value, "FLOP/B", f"{value:.{digits}f} FLOP/B")


def _share(key: str, name: str, formula: str, numbers: str, value: float) -> Figure:
    return Figure(key, name, formula, numbers, value, "", f"{100 * value:.2f} %")


def _ms(key: str, name: str, formula: str, numbers: str, seconds: float, digits: int) -> Figure:
    return Figure(key, name, formula, numbers, seconds, "s", f"{seconds * 1e3:.{digits}f} ms")


def _rate(key: str, name: str, formula: str, numbers: str, value: float, digits: int) -> Figure:
    return Figure(key, name, formula, numbers, value, "tok/s", f"{value:,.{digits}f} tok/s")
