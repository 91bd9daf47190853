"""Sandboxes of an OpenSandbox server, through OpenSandbox's own client."""
