"""Architectures as the cost model sees them: sizes and weights, from a config, from the Flax module's abstract state, or by name;
number formats; and how a model is held (`deployment`)."""
