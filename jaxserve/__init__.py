"""How a model is served: compiled programs, pages, scheduling and the main job."""
