"""The collector: runs, and the course of each rollout."""
