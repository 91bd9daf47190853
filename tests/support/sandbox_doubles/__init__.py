"""Makers of machines, for tests: servers that speak what the real ones speak, and really run what they are asked to."""
