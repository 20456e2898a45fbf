"""Settings of the server: from flags, then the environment, then a TOML file, then the defaults here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from sampler_service.limits import MIB, Limits
from sampler_service.listen import default_address

PREFIX: Final = "SAMPLER_"
"""Of the environment's variables: SAMPLER_BACKEND sets ``backend``."""


_MOST: Final = 1 << 20
"""Of what is counted over all clients: far more than a machine holds, and within what `GetServerInfo` can tell."""


class BadConfig(Exception):
    """Settings that cannot be used, with the name of each, its source and what it may be."""


class Settings(BaseSettings):
    """What the server can be told. The descriptions are the help texts of the command."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    listen: Annotated[list[str], NoDecode] = Field(
        default_factory=lambda: [default_address()],
        min_length=1,
        description="Address to serve on, unix:/path or host:port; several with commas or by repeating it. "
        "Default: a unix socket in the user's runtime directory.",
    )
    allow_remote: bool = Field(
        default=False, description="Allow addresses that other hosts can reach. Nothing checks who calls."
    )
    backend: Literal["auto", "cpu", "triton"] = Field(
        default="auto", description="What runs the steps; auto takes the GPU if there is one."
    )
    threads: int = Field(
        default=0, ge=0, le=1024, description="Threads of the CPU backend; 0 leaves it to torch (one for each core)."
    )
    max_receive_mib: int = Field(
        default=256, ge=1, le=2047, description="Largest message taken, in MiB; a step with its logits is one message."
    )
    max_send_mib: int = Field(default=256, ge=1, le=2047, description="Largest message sent, in MiB.")
    max_streams: int = Field(
        default=256, ge=1, le=_MOST, description="Streams open at the same time, over all clients."
    )
    max_read_ahead: int = Field(
        default=8, ge=1, le=1024, description="Steps of one stream that are read and not yet answered."
    )
    max_queued_steps: int = Field(
        default=1024, ge=1, le=_MOST, description="Steps admitted and not yet finished, over all clients."
    )
    max_queued_mib: int = Field(
        default=4096,
        ge=1,
        le=_MOST,
        description="Messages of the steps admitted and not yet finished, in MiB; a larger step is admitted alone.",
    )
    keepalive_seconds: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Silence after which a client is asked whether it is still there, in seconds; "
        "it has a third of that to answer, else its connection is closed.",
    )
    drain_seconds: float = Field(
        default=30.0, ge=0, le=3600, description="Longest wait for open calls on SIGTERM or SIGINT, in seconds."
    )
    reflection: bool = Field(default=True, description="Serve gRPC reflection, for grpcurl and the like.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What is logged, to standard error."
    )

    @field_validator("listen", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return Limits(
            max_receive_message_bytes=self.max_receive_mib * MIB,
            max_send_message_bytes=self.max_send_mib * MIB,
            max_streams=self.max_streams,
            max_read_ahead=self.max_read_ahead,
            max_queued_steps=self.max_queued_steps,
            max_queued_bytes=self.max_queued_mib * MIB,
        )


class Loaded:
    """Settings, and where each came from.

    Attributes:
        settings: What holds.
        origins: Name of a setting -> ``flag``, ``environment`` or the file; defaults are not named.
    """

    def __init__(self, flags: dict[str, Any], config: Path | None) -> None:
        """Read all sources.

        Args:
            flags: Settings given on the command line, by name.
            config: The TOML file, if any.

        Raises:
            BadConfig: A file that cannot be read, an unknown setting, or a value outside its range.
        """
        sources = {"flag": flags, "environment": _environment(), str(config): _file(config) if config else {}}
        merged: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        for origin, values in sources.items():
            for name, value in values.items():
                if name not in merged:
                    merged[name], self.origins[name] = value, origin
        try:
            self.settings = Settings(**merged)
        except ValidationError as error:
            raise BadConfig("\n".join(self._complaint(one["loc"], one["msg"]) for one in error.errors())) from error

    def toml(self) -> str:
        """All settings as the TOML file that would set them, with their origins as comments."""
        lines = []
        for name, value in self.settings.model_dump().items():
            # JSON's literals for strings, numbers, flags and lists of strings are TOML's too.
            lines.append(f"{name} = {json.dumps(value)}  # {self.origins.get(name, 'default')}")
        return "\n".join(lines)

    def _complaint(self, place: tuple[int | str, ...], text: str) -> str:
        name = str(place[0]) if place else "settings"
        return f"{name} (from {self.origins.get(name, 'default')}): {text}"


def _environment() -> dict[str, Any]:
    found: dict[str, Any] = EnvSettingsSource(Settings)()
    return found


def _file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadConfig(f"{path} is not a file")
    try:
        values: dict[str, Any] = TomlConfigSettingsSource(Settings, path)()
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot read {path}: {error}") from error
    return values
