"""Which system calls a box may make: one table, as a BPF program for bubblewrap and as a profile for container engines."""

from providers.sandboxes.seccomp.loading import filter_to_read
from providers.sandboxes.seccomp.profile import container_profile
from providers.sandboxes.seccomp.program import program_for

__all__ = ["container_profile", "filter_to_read", "program_for"]
