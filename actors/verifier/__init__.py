"""The verifier: grades what a closed session left behind."""
