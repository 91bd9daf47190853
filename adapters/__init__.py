"""What gym-bus speaks to: benchmarks, harnesses, trainers, file formats."""
