"""Who runs in the next step, and how much of it: policies as pure functions over frozen values. Plain Python, no JAX.

`request` asks, `state` is what is going on, `plan` is a decision. A policy (`static`, `dynamic`, `continuous`, `chunked`,
`disaggregated`) turns a state into a plan and the state after it; `step_result.update` puts what the step did back into the state. The
engine and the simulator call the same functions, so they decide alike.
"""
