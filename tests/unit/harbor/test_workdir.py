"""Where a Dockerfile ends up: its last `WORKDIR`, as an engine would read it."""

from __future__ import annotations

import pytest

from adapters.benchmarks.harbor.workdir import workdir_of


@pytest.mark.parametrize(
    ("dockerfile", "place"),
    [
        ("FROM a\nWORKDIR /x\n", "/x"),
        ("FROM a\nworkdir /x\nRUN y\nWORKDIR z/..\nWORKDIR w\n", "/x/w"),
        ("FROM a\nRUN echo WORKDIR /x\n", None),
        ("FROM a AS b\nWORKDIR /x\nFROM --platform=linux/amd64 b\n", "/x"),
        ("FROM a AS b\nWORKDIR /x\nFROM c\n", None),
        ('FROM a\nWORKDIR "/with quotes"\n', "/with quotes"),
        ("FROM a\r\nWORKDIR /x\r\n", "/x"),
        ("FROM a\nWORKDIR /x\nRUN echo \\\nWORKDIR /y\n", "/x"),
        ("FROM a\nWORKDIR /x/\\  \n# WORKDIR /z\ny\n", "/x/y"),
        ("# escape=`\nFROM a\nRUN c`\nWORKDIR /x\nWORKDIR /y\\\n", "/y\\"),
        ("FROM a\nWORKDIR /x\nRUN <<EOF bash\nWORKDIR /y\nEOF\n", "/x"),
        ("FROM a\nCOPY <<-\"ONE\" <<'TWO' /y/\nFROM b\n\tONE\nWORKDIR /y\nTWO\nWORKDIR /x\n", "/x"),
        ("FROM a\nRUN cat <<< EOF; echo $((1<<2))\nWORKDIR /x\n", "/x"),
        ("FROM a\nWORKDIR //x\nWORKDIR ../../y\n", "/y"),
    ],
)
def test_where_a_dockerfile_ends_up(dockerfile: str, place: str | None) -> None:
    assert workdir_of(dockerfile) == place
