"""The actors: collector, harness, sandbox, verifier, and the projector at the edge; `host.py` starts any mix of them."""
