"""What a whole process takes at its peak, beside what was said before it began. Oracle: the kernel's own high-water mark (VmHWM)."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import json, sys
    from pathlib import Path
    from jaxserve import LLM, SamplingParams

    given = json.loads(sys.argv[1])
    llm = LLM(**given)
    said = llm.setup.room.need.total
    llm.generate([[1 + i, 2, 3] * 20 for i in range(given["rows"])], SamplingParams(max_tokens=6, temperature=0.5, seed=1))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps([said, int(status["VmHWM"].split()[0]) * 1024]))
""")


def measured(**given: object) -> tuple[int, int]:
    """(B that were said, B at the peak) of a process that serves."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(given)], capture_output=True, text=True, check=True)
    said, peak = json.loads(done.stdout.splitlines()[-1])
    return said, peak


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
@pytest.mark.parametrize(
    "given",
    [
        {"model": "random:tiny", "rows": 4, "context": 96, "dtype": "float32"},  # auto would measure this machine first, once
        {"model": "random:qwen3-0.6b", "rows": 4, "context": 128, "dtype": "bfloat16"},
        {"model": "smollm2", "rows": 2, "context": 128, "dtype": "bfloat16"},
        {"model": "random:smollm2-135m", "rows": 16, "context": 256, "dtype": "float32", "policy": "chunked"},
    ],
)
def test_the_estimate_lies_above_the_peak_and_not_far(given: dict[str, object]):
    """Nothing is kept or found among kept programs: compiling takes more than reading them."""
    said, peak = measured(**given, compile_cache=False)
    assert peak < said < 2 * peak, f"{said / 1e6:.0f} MB said, {peak / 1e6:.0f} MB taken"
