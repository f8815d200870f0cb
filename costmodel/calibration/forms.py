"""The forms that there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.calibration.decode_attention import DecodeAttention
from costmodel.calibration.engine_step import EngineStep
from costmodel.calibration.form import Form
from costmodel.calibration.gemm import Gemm
from costmodel.calibration.prefill_attention import PrefillAttention

_ALL: tuple[Form, ...] = (Gemm(), DecodeAttention(), PrefillAttention(), EngineStep())
FORMS: Mapping[str, Form] = {form.name: form for form in _ALL}
