"""Files of others, read with limits: bytes, JSON and its keys, and which file gave what (`provenance`). Nothing here knows a model."""
