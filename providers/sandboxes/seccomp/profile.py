"""The same table as a profile for container engines, in place of their own, which lets AF_VSOCK, io_uring or namespaces through."""

from __future__ import annotations

import errno
import json
from functools import cache
from typing import Any, Final

from providers.sandboxes.seccomp.policy import ALL_BITS, SPECIAL, allowed

ALLOW: Final = "SCMP_ACT_ALLOW"
REFUSE: Final = "SCMP_ACT_ERRNO"


@cache
def container_profile() -> str:
    """Return the profile as JSON; engines resolve the names for the machine they run on, and know calls of no other mode of it."""
    rules: list[dict[str, Any]] = [{"names": sorted(allowed()), "action": ALLOW}]
    for name, special in SPECIAL.items():
        if not special.values:
            rules.append({"names": [name], "action": REFUSE, "errnoRet": special.otherwise})
        rules += [
            {"names": [name], "action": ALLOW, "args": [_argument(special.mask, value)]} for value in special.values
        ]
    return json.dumps({"defaultAction": REFUSE, "defaultErrnoRet": errno.EPERM, "syscalls": rules})


def _argument(mask: int, value: int) -> dict[str, Any]:
    if mask == ALL_BITS:
        return {"index": 0, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
    return {"index": 0, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
