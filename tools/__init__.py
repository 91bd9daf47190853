"""Tools an agent may call, and how calls are read."""

from tools.shell import SHELL, BadArguments, parse_call

__all__ = ["SHELL", "BadArguments", "parse_call"]
