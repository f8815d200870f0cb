"""The engine: from requests to tokens. `core` schedules, prepares inputs, runs the model and processes its output, step after step."""
