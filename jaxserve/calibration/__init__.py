"""What this machine's engine was measured to take: the work behind `python -m jaxserve.calibrate`, and the predictors it gives."""
