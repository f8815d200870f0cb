"""What a compiled step costs, summed up from its ledger in a form that can be compared, and extrapolated to more layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from costmodel.hlo.cost import Cost
from costmodel.ledger.ledger import Ledger
from models.errors import UserError

Key = tuple[str, str, str, str]  # kind, role, component, direction: see `costmodel.ledger.traffic.Item`


@dataclasses.dataclass(frozen=True)
class CompiledCost:
    """A program's totals, per device.

    Attributes:
      reported: as XLA counts, loop bodies once. with_trips: each loop body as often as it runs.
      traffic: FLOPs as `with_trips` with custom calls priced; bytes as memory traffic: the sum of `items`.
      items: B of traffic by kind, role, component and direction.
      corrections: B by reason; with_trips.bytes + their sum = traffic.bytes.
      flops: FLOPs by component; their sum is that of `traffic`.
      link_bytes: B that a device sends to others, by mesh axis.
      trips: the count used for each loop; loops that the caller's counts were for are in `given`.
      unpriced: custom calls without a price: with one, every total is "at least".
      basis: "compiled whole", or how it was extrapolated.
    """

    reported: Cost
    with_trips: Cost
    traffic: Cost
    items: Mapping[Key, float]
    corrections: Mapping[str, float]
    flops: Mapping[str, float]
    link_bytes: Mapping[str, float]
    trips: Mapping[str, float]
    unpriced: tuple[str, ...]
    basis: str = "compiled whole"

    @classmethod
    def of(cls, ledger: Ledger) -> CompiledCost:
        """Sum up a ledger.

        Raises:
          UserError: it has loops that data bound and was not told their counts.
        """
        with_trips, items, corrections, flops = ledger.with_trips, dict[Key, float](), dict[str, float](), dict[str, float]()
        for line in ledger.lines:
            runs = line.runs or 0
            for item in line.traffic.items:
                _add(items, (item.kind, item.role, item.component, item.direction), runs * item.bytes)
            for reason, amount in line.traffic.corrections:
                _add(corrections, reason, runs * amount)
            for component, work in line.traffic.work:
                _add(flops, component, runs * work.flops)
        return cls(
            ledger.reported,
            with_trips,
            ledger.traffic,
            items,
            corrections,
            flops,
            dict(ledger.link_bytes),
            dict(ledger.trips),
            tuple(dict.fromkeys(ledger.unpriced)),
        )

    @property
    def unattributed(self) -> float:
        """The share of the traffic's bytes that no scope accounts for, 0 to 1."""
        nobody = sum(amount for (_, _, component, _), amount in self.items.items() if component == "unattributed")
        return nobody / self.traffic.bytes if self.traffic.bytes else 0.0

    @property
    def confidence(self) -> dict[str, str]:
        """A word for each figure: exact (XLA's own rules), corrected, bound (at least this), unknown; see docs/cost.md."""
        if self.unpriced:
            return {"reported": "bound", "with_trips": "bound", "traffic": "bound"}
        whole = self.basis == "compiled whole"
        return {
            "reported": "exact" if whole else "corrected",
            "with_trips": "exact" if whole and self.with_trips == self.reported else "corrected",
            "traffic": "corrected" if self.corrections or not whole else "exact",
        }

    def bytes_of(self, wanted: Callable[[Key], bool]) -> float:
        """B of the items whose key is wanted."""
        return sum(amount for key, amount in self.items.items() if wanted(key))


def extrapolate(small: CompiledCost, large: CompiledCost, layers: tuple[int, int, int]) -> CompiledCost:
    """The cost of a program of many layers from those of two with fewer: every figure is a line in the number of layers.

    Args:
      small, large: the same step with the first `layers[0]` and `layers[1]` layers.
      layers: of small, of large, and of the step that is asked for.

    Raises:
      UserError: the numbers of layers do not ascend.
    """
    first, second, wanted = layers
    if not 0 < first < second <= wanted:
        raise UserError(f"extrapolate: layers are {first}, {second} and {wanted}; they must ascend")
    times = (wanted - first) / (second - first)

    def line(a: float, b: float) -> float:
        return a + (b - a) * times

    def cost(a: Cost, b: Cost) -> Cost:
        return a + (b - a) * times

    def each(a: Mapping, b: Mapping) -> dict:
        return {key: line(a.get(key, 0.0), b.get(key, 0.0)) for key in (*a, *(key for key in b if key not in a))}

    return CompiledCost(
        cost(small.reported, large.reported),
        cost(small.with_trips, large.with_trips),
        cost(small.traffic, large.traffic),
        each(small.items, large.items),
        each(small.corrections, large.corrections),
        each(small.flops, large.flops),
        each(small.link_bytes, large.link_bytes),
        large.trips,
        tuple(dict.fromkeys((*small.unpriced, *large.unpriced))),
        f"extrapolated from {first} and {second} layers to {wanted}",
    )


def _add(sums: dict, key: object, amount: float) -> None:
    sums[key] = sums.get(key, 0.0) + amount
