"""Dialects: laws, real bodies, errors that name their field, streams."""
