"""What the options --model and --chip mean."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax

from costmodel.arch.architecture import Architecture
from costmodel.arch.catalog import as_architecture, find_architecture
from costmodel.arch.hf_config import from_config
from costmodel.compile.program import Platform
from costmodel.compile.target_table import TARGETS
from costmodel.hardware.ceilings import ceilings
from costmodel.hardware.chip import Chip
from costmodel.hardware.chips import find_chip
from models.config.architectures import ARCHITECTURES
from models.config.hf_config import from_hf
from models.config.model_config import ModelConfig
from models.config.presets import PRESETS
from models.errors import UserError
from models.files.json_text import read_object
from models.files.reading import shown


@dataclasses.dataclass(frozen=True)
class ModelChoice:
    """A model by name. `config` is what the engine runs; None where the cost model alone knows the architecture."""

    name: str
    architecture: Architecture
    config: ModelConfig | None

    @property
    def best(self) -> ModelConfig | Architecture:
        """The config where there is one."""
        return self.config or self.architecture


def choose_model(text: str) -> ModelChoice:
    """A name in the catalogue, or a Hugging Face config.json or the folder that holds it.

    Raises:
      UserError: no such model, no such file, or a config that nobody here understands.
    """
    path = Path(text)
    if os.path.exists(path):  # which, unlike Path.exists, takes any name
        return _of_file(path / "config.json" if os.path.isdir(path) else path)
    if path.suffix == ".json" or "/" in text:
        raise UserError(
            f"--model {shown(text)} does not exist; give a config.json, a folder with one, or a name (python -m costmodel models)"
        )
    architecture = find_architecture(text)
    return ModelChoice(architecture.name, architecture, PRESETS.get(architecture.name))


def _of_file(path: Path) -> ModelChoice:
    fix = "give a Hugging Face config.json or a folder with one"
    given = read_object(path, name=f"--model {path}", fix=fix, strict=False)
    names, stem = given.get("architectures"), path.resolve().parent.name
    if isinstance(names, list) and names and isinstance(names[0], str) and names[0] in ARCHITECTURES:
        config = from_hf(given, origin=str(path))
        return ModelChoice(stem, as_architecture(config), config)
    return ModelChoice(stem, from_config(given, name=stem, origin=str(path)), None)


@dataclasses.dataclass(frozen=True)
class ChipChoice:
    """A chip, what to compile for (None: nobody here can), and the platform of its programs."""

    chip: Chip
    target: str | None
    platform: Platform


def choose_chip(text: str) -> ChipChoice:
    """A name in the chip table, or host: this machine, whose ceilings are measured once and kept.

    Raises:
      UserError: no such chip.
    """
    if text.strip().lower() == "host":
        backend = jax.default_backend()
        platform: Platform = "gpu" if backend == "gpu" else "tpu" if backend == "tpu" else "cpu"
        return ChipChoice(ceilings().chip(), "host", platform)
    chip = find_chip(text)
    target = TARGETS.get(chip.name)
    tpu = chip.name.startswith("tpu-")
    return ChipChoice(chip, chip.name if target else None, "tpu" if tpu else "gpu")
