"""What machines at somebody else's have in common: owners, commands over any way to run a process, files, keeping, snapshots."""

from providers.sandboxes.remote.box import RemoteBox
from providers.sandboxes.remote.cloud import Cloud, CloudRefused, Found, Machine
from providers.sandboxes.remote.provider import RemoteProvider

__all__ = ["Cloud", "CloudRefused", "Found", "Machine", "RemoteBox", "RemoteProvider"]
