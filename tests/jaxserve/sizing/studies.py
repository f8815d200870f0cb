"""Options of studies that several tests run: those of facts.md section 4."""

from __future__ import annotations

from collections.abc import Callable

FACTS = ("--kv-pool", "30GiB", "--context", "1024", "--ttft-p95", "250ms", "--itl-p95", "12ms", "--rate", "20/s")
SHORT = (*FACTS, "--answer", "16", "--requests", "30")  # for what does not depend on how long it runs
Here = Callable[..., str]
