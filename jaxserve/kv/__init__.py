"""Where KV lives, in plain Python: the page allocator, the prefix cache, and the paged and slot layouts behind one interface (`memory`).

Knows tokens and pages; nothing of requests, policies or JAX."""
