"""Write the golden file of every event type that has none: `python -m tests.support.write_golden`. What is there is never rewritten."""

from __future__ import annotations

from gym_bus.blobs import MemoryBlobs
from gym_bus.codec import Codec
from tests.support.examples import EXAMPLES, HEAD, golden_of


def main() -> None:
    """Write what is missing."""
    codec = Codec(MemoryBlobs())
    for type_, data in EXAMPLES.items():
        path = golden_of(type_)
        if not path.exists():
            path.write_bytes(codec.encode(HEAD, data) + b"\n")
            print(path.name)


if __name__ == "__main__":
    main()
