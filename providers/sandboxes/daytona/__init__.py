"""Sandboxes of Daytona, by its documented REST API."""
