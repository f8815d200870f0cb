"""Time of a step of an engine on a CPU, whose work lies one piece after the other: nothing hides behind anything else.

A program reads its weights once, lays them out for a matmul where there are several rows, multiplies every token that it has room for, and
runs a loop over blocks of the cache in every layer (`models.attention.blockwise`), each turn of which starts a dozen small kernels. The
time is linear in what is run, so a predictor needs one product for each figure.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from costmodel.calibration.device import Device
from costmodel.calibration.form import Features, Spec, Values

TURNS = 300  # of the updates that find where a fit begins


@dataclasses.dataclass(frozen=True)
class EngineStep:
    """Features: programs that run; weights, B that they read, and packed, those of them that several rows are multiplied with; flops of
    matmuls; moved, B of activations; samples, tokens that are drawn; cache, B of K and V fetched; attention, FLOP over them; turns of
    attention loops, over all layers.
    """

    name: ClassVar[str] = "engine step"
    specs: ClassVar[tuple[Spec, ...]] = (
        Spec(
            "program",
            "s",
            2e-3,
            "of every program: call, small kernels, tokens back to the host",
            "models of different depth",
            nothing=True,
        ),
        Spec(
            "turn",
            "s",
            50e-6,
            "of every turn of a layer's attention loop, however few rows it has",
            "contexts of different length at few rows",
            nothing=True,
        ),
        Spec(
            "sample",
            "s",
            0.3e-3,
            "of every token that is drawn from the vocabulary",
            "batches, and prompts beside",
            nothing=True,
        ),
        Spec("bandwidth", "", 0.6, "of the measured read bandwidth that weights are read at", "steps of one row"),
        Spec(
            "packing",
            "",
            0.4,
            "of that time, once more, to lay weights out for several rows",
            "steps of one row and of two",
            nothing=True,
        ),
        Spec("peak", "", 0.4, "of the measured matmul peak that layers and attention reach", "batches of different size"),
        Spec(
            "cache rate",
            "",
            0.3,
            "of the measured read bandwidth that K and V are fetched at",
            "contexts of different length at many rows",
        ),
    )

    def seconds(self, values: Values, features: Features, device: Device, xp: Any) -> Any:
        """s [points]; see the module."""
        programs, weights, packed, flops, moved, samples, cache, attention, turns = (
            xp.asarray(features[name], float)
            for name in ("programs", "weights", "packed", "flops", "moved", "samples", "cache", "attention", "turns")
        )
        reading = (weights + values["packing"] * packed + moved) / (values["bandwidth"] * device.bandwidth)
        fetching = cache / (values["cache rate"] * device.bandwidth)
        products = (flops + attention) / (values["peak"] * device.peak)
        steps = programs * values["program"] + turns * values["turn"] + samples * values["sample"]
        return steps + reading + fetching + products

    def start(self, features: Features, seconds: Any, device: Device) -> dict[str, float]:
        """Where a fit of these times begins, so that it can't end where a rate is infinite because another cost took its place.

        The time is linear in the costs, so they are those of least squares of the relative error, none below 0 (multiplicative updates,
        Lee and Seung 2001), and each but those that no time depends on is at least a hundredth of the time.
        """
        programs, weights, packed, flops, moved, samples, cache, attention, turns = (
            np.asarray(features[name], float)
            for name in ("programs", "weights", "packed", "flops", "moved", "samples", "cache", "attention", "turns")
        )
        bytes_, products = (weights + moved, packed, cache), (flops + attention) / device.peak
        read, again, fetched = (each / device.bandwidth for each in bytes_)
        shares = (
            np.stack([programs, turns, samples, read, again, products, fetched], axis=1) / np.asarray(seconds, float)[:, None]
        )
        there = shares.mean(axis=0) > 0
        shares = shares[:, there]
        least = 0.01 / shares.mean(axis=0)
        costs = 10 * least
        for _ in range(TURNS):
            costs *= shares.sum(axis=0) / (shares.T @ (shares @ costs))
        found = np.zeros(len(there))
        found[there] = np.maximum(costs, least)
        names = ("program", "turn", "sample", "bandwidth", "packing", "peak", "cache rate")
        costs_of = {name: cost for name, cost in zip(names, found.tolist(), strict=True) if cost}
        rates: dict[str, float] = {name: 1 / costs_of[name] for name in ("bandwidth", "peak", "cache rate") if name in costs_of}
        if "packing" in costs_of:
            costs_of["packing"] *= rates["bandwidth"]
        return {**costs_of, **rates}

    def roofline(self, features: Features, device: Device) -> Any:
        weights, flops, moved, cache, attention = (
            np.asarray(features[name], float) for name in ("weights", "flops", "moved", "cache", "attention")
        )
        return np.maximum((weights + moved + cache) / device.bandwidth, (flops + attention) / device.peak)
