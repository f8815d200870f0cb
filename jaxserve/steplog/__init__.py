"""The step log: events, their writer, their summary, and a replay that must decide again what was decided then."""
