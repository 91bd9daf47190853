"""Sandboxes in E2B's microVMs, through E2B's own client."""
