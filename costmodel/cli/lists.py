"""`python -m costmodel chips`, `models` and `params`."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.arch.catalog import ARCHITECTURES, find_architecture
from costmodel.arch.deployment import Deployment, Storage
from costmodel.cli.choices import choose_model
from costmodel.cli.output import Output, giga, table
from costmodel.compile.target_table import TARGETS
from costmodel.hardware.chips import ALIASES, CHIPS
from models.config.presets import PRESETS


def chips(as_json: bool) -> Output:
    """The chip table. Peaks are dense; sparse ones are listed apart and never used."""
    rows, data = [], []
    for name, chip in CHIPS.items():
        short = [alias for alias, of in ALIASES.items() if of == name]
        peaks = {dtype: float(value) for dtype, value in chip.peaks.items()}
        data.append(
            {
                "name": name,
                "aliases": short,
                "memory": float(chip.memory),
                "bandwidth": float(chip.bandwidth),
                "dense_peaks": peaks,
                "sparse_peaks_never_used": {dtype: float(value) for dtype, value in chip.sparse_peaks.items()},
                "link_bandwidth": None if chip.link_bandwidth is None else float(chip.link_bandwidth),
                "on_chip": None if chip.on_chip is None else float(chip.on_chip),
                "ridge": float(chip.ridge),
                "compiles": name in TARGETS,
                "source": chip.source,
            }
        )
        others = ", ".join(
            f"{dtype} {value / 1e12:g}" for dtype, value in peaks.items() if dtype not in ("bfloat16", "float16")
        )
        rows.append(
            (
                name,
                " ".join(short),
                f"{float(chip.memory) / 1e9:.4g}",
                f"{float(chip.bandwidth) / 1e9:,.0f}",
                f"{float(chip.peak(2)) / 1e12:.5g}",
                f"{float(chip.ridge):.1f}",
                "-" if chip.link_bandwidth is None else f"{float(chip.link_bandwidth) / 1e9:g}",
                "-" if chip.on_chip is None else f"{float(chip.on_chip) / 2**20:g}",
                "yes" if name in TARGETS else "",
                others,
                chip.source,
            )
        )
    columns = (
        "chip", "also", "GB", "GB/s", "TFLOP/s", "ridge", "links", "on chip", "compiles", "other dense TFLOP/s", "source",
    )  # fmt: skip
    notes = (
        "TFLOP/s: dense, 16 bits; ridge in FLOP/B; links in GB/s one way; on chip in MiB. From data sheets.\n"
        "host is this machine, measured once and kept: python -m costmodel decode --chip host"
    )
    return Output(data, [table("chips", columns, rows, left=2, words=2), notes], form="json" if as_json else "text")


def models(as_json: bool) -> Output:
    """The catalogue."""
    rows, data = [], []
    for name in ARCHITECTURES:
        a = find_architecture(name)
        vectors, width = a.kv_vectors()
        kv = a.layers * vectors * width * 2
        runs = name in PRESETS
        data.append(
            {
                "name": name,
                "parameters": a.parameter_count,
                "source": a.source,
                "layers": a.layers,
                "hidden": a.hidden,
                "heads": a.heads,
                "kv_heads": a.kv_heads,
                "max_positions": a.max_positions,
                "kv_bytes_per_token_16bit": kv,
                "engine": runs,
            }
        )
        rows.append(
            (
                name,
                giga(a.parameter_count),
                *map(str, (a.layers, a.hidden, a.heads, a.kv_heads, a.max_positions)),
                f"{kv:,.0f}",
                "yes" if runs else "",
                a.source,
            )
        )
    columns = (
        "model",
        "1e9 parameters",
        "layers",
        "hidden",
        "heads",
        "KV heads",
        "context",
        "KV B/token, 16-bit",
        "engine",
        "counts from",
    )
    return Output(data, [table("models", columns, rows, words=1)], form="json" if as_json else "text")


def params(model: str, dtype: str, as_json: bool) -> Output:
    """Parameters and bytes by component."""
    chosen = choose_model(model)
    a, storage = chosen.architecture, Storage.of(dtype)
    held = Deployment(a, storage, 1)
    counts: dict[str, int] = {}
    sizes: dict[str, float] = {}
    for weight in a.weights:
        counts[weight.component] = counts.get(weight.component, 0) + weight.elements
        sizes[weight.component] = sizes.get(weight.component, 0.0) + weight.count * held.weight_bytes(weight)
    data = {
        "model": chosen.name,
        "source": a.source,
        "dtype": dtype,
        "parameters": a.parameter_count,
        "bytes": sum(sizes.values()),
        "components": [{"component": name, "parameters": counts[name], "bytes": sizes[name]} for name in counts],
    }
    rows = [(name, f"{counts[name]:,}", giga(sizes[name]), _share(counts, name)) for name in counts]
    rows.append(("total", f"{a.parameter_count:,}", giga(sum(sizes.values())), "100.0 %"))
    title = f"{chosen.name}: parameters by component, counted from the {a.source}"
    view = table(title, ("component", "parameters", f"GB in {dtype}", "share"), rows, rules=(len(rows) - 1,))
    return Output(data, [view], form="json" if as_json else "text")


def _share(counts: Mapping[str, int], name: str) -> str:
    return f"{100 * counts[name] / sum(counts.values()):.1f} %"
