"""A machine that was calibrated, as a file: what its engine's steps take, and of which model and programs that is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from costmodel.calibration.calibration import Calibration
from costmodel.calibration.form import Parameter
from costmodel.json_file import read_out
from jaxserve.predict.calibrated import Calibrated, Model
from jaxserve.programs.buckets import Buckets
from models.errors import UserError


class Machine(NamedTuple):
    """What `python -m jaxserve.calibrate` writes.

    Attributes:
      calibration: of engine steps.
      gap: s that the host keeps the device waiting between steps: the median over an engine's run.
      model: as the user wrote it.
      dtype, kv_dtype: of the weights and the cache.
      ladder: the programs.
    """

    calibration: Calibration
    gap: Parameter
    model: str
    dtype: str
    kv_dtype: str
    ladder: Buckets

    def predictor(self, config: Model, ladder: Buckets | None = None) -> Calibrated:
        """What plans take here.

        Args:
          config: of the model; another one than was measured is priced from its own bytes and FLOPs.
          ladder: of the engine; None for the one that was measured.
        """
        return Calibrated(
            config, self.calibration, ladder or self.ladder, dtype=self.dtype, kv_dtype=self.kv_dtype, gap=self.gap.value
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for `from_json`."""
        return {
            **self._asdict(),
            "calibration": self.calibration.to_json(),
            "gap": self.gap.to_json(),
            "ladder": self.ladder.to_json(),
        }

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """Raises UserError for what `to_json` didn't give."""
        if not isinstance(given, Mapping) or set(given) != set(cls._fields):
            raise UserError("it holds no calibrated machine; give a file that python -m jaxserve.calibrate --out wrote")
        try:
            gap = Parameter(**given["gap"])
        except TypeError:
            raise UserError("its gap is none; give the file as python -m jaxserve.calibrate --out wrote it") from None
        calibration, ladder = Calibration.from_json(given["calibration"]), Buckets.from_json(given["ladder"])
        return cls(calibration, gap, str(given["model"]), str(given["dtype"]), str(given["kv_dtype"]), ladder)

    @classmethod
    def read(cls, file: Path) -> Self:
        """That of a file.

        Raises:
          UserError: it can't be read, or holds something else.
        """
        return read_out(file, "jaxserve.calibrate", cls.from_json)
