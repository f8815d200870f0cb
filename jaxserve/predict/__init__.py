"""What a step will take: by the analytical model, by compiled programs, or by a calibration. One `Predictor` for engine and simulator."""
