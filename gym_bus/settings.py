"""Settings of this machine's processes: everything that is not part of a run's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from gym_bus.errors import BadConfig
from gym_bus.plain_words import plainly
from schemas.addresses import has_name
from schemas.base import Frozen

PREFIX = "GYM_BUS_"
NOT_SETTINGS = frozenset({"GYM_BUS_FAULT", "GYM_BUS_FAULT_COVERAGE", "GYM_BUS_FAULT_ONCE"})


class Settings(Frozen):
    """Bounds and places; each can be set as `GYM_BUS_<NAME>`. Times in seconds."""

    data_dir: Path = Path(".gym-bus")
    bus_url: str | None = None
    bus_password: str | None = None
    hosts: int = Field(default=0, ge=0, le=64)
    ack_wait_s: float = Field(default=10.0, gt=0.1)
    lease_s: float = Field(default=5.0, gt=0.1)
    reread_s: float = Field(default=4.0, gt=0.05)
    append_patience_s: float = Field(default=7 * 24 * 3600.0, gt=1)
    drain_s: float = Field(default=20.0, gt=0)
    grade_timeout_s: float = Field(default=30.0, gt=0)
    load_timeout_s: float = Field(default=600.0, gt=0)
    warm: str = ""
    max_takeovers: int = Field(default=8, ge=1)
    snapshot_every: int = Field(default=64, ge=8)
    run_slots: int = Field(default=16, ge=1)
    session_slots: int = Field(default=4096, ge=1)
    box_slots: int = Field(default=512, ge=1)
    box_memory_mib: int | None = Field(default=None, ge=16)
    box_cpus: float | None = Field(default=None, gt=0)
    verdict_slots: int = Field(default=256, ge=1)
    store_max_bytes: int | None = Field(default=None, ge=1024 * 1024)
    store_min_free_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    idle_exit_s: float = Field(default=1800.0, gt=1)
    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=0, ge=0, le=65535)
    default_host: str | None = None
    programs_dir: Path | None = None
    agent_python: Path | None = None

    @field_validator("bus_url")
    @classmethod
    def _names_nobody(cls, url: str | None) -> str | None:
        """Refuse a password in the bus's address, which is written into the status file and shown."""
        if url and any(map(has_name, url.split(","))):
            msg = "an address with a name or a password in it is shown to others: give GYM_BUS_BUS_PASSWORD"
            raise ValueError(msg)
        return url

    @model_validator(mode="after")
    def _lease_within_ack_wait(self) -> Self:
        """Refuse a lease longer than `ack_wait_s`: work would be handed to others before its owner may be replaced."""
        if self.lease_s > self.ack_wait_s:
            msg = f"lease_s ({self.lease_s:g}) must not be longer than ack_wait_s ({self.ack_wait_s:g})"
            raise ValueError(msg)
        return self

    @property
    def programs(self) -> Path:
        """Return the directory below which hosts install agents' own programs."""
        return self.programs_dir or self.data_dir

    @property
    def heartbeat_s(self) -> float:
        """Return how often a host shows that it lives: three times per lease."""
        return self.lease_s / 3


def load_settings(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Read settings from `GYM_BUS_*` variables; an unknown one or a bad value is an error that names it."""
    given = {
        k.removeprefix(PREFIX).lower(): v for k, v in environ.items() if k.startswith(PREFIX) and k not in NOT_SETTINGS
    }
    if not given.get("data_dir", "x"):  # set to nothing is not set
        del given["data_dir"]
    unknown = sorted(set(given) - set(Settings.model_fields))
    if unknown:
        msg = f"unknown setting {PREFIX}{unknown[0].upper()}: known are {', '.join(PREFIX + f.upper() for f in Settings.model_fields)}"
        raise BadConfig(msg)
    try:
        settings = Settings.model_validate({**given, **{k: v for k, v in overrides.items() if v is not None}})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).upper() if first["loc"] else "LEASE_S"
        msg = f"setting {PREFIX}{name}: {plainly(first['msg'])}"
        raise BadConfig(msg) from error
    return settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
