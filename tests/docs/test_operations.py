"""``docs/operations.md`` lists every setting as it is, and its files are files that the server takes."""

from __future__ import annotations

import re
from pathlib import Path

from sampler_service.config import PREFIX, Loaded, Settings
from tests.docs import looked_at, tools
from tests.docs.blocks import ROOT, fenced

PAGE = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text(encoding="utf-8")


def block(language: str) -> str:
    ((_, text),) = [(mark, text) for mark, text in fenced(PAGE) if mark == [language]]
    return text


def test_settings() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `--([\w-]+)` \| `(\w+)` \| ([^|]+) \|", TEXT, re.MULTILINE)
    fields = Settings.model_fields
    assert [name for name, *_ in rows] == list(fields)
    for name, option, variable, default in rows:
        assert option == name.replace("_", "-")
        assert variable == PREFIX + name.upper()
        if fields[name].default_factory is None:
            assert default == (str(fields[name].default).lower() or "none"), name


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(block("toml"), encoding="utf-8")
    loaded = Loaded({}, file)
    assert set(loaded.origins.values()) == {str(file)}
    assert loaded.settings.max_streams == 16


def test_unit(tmp_path: Path) -> None:
    unit = dict(line.split("=", 1) for line in block("ini").splitlines() if "=" in line)
    assert looked_at.fault(unit["ExecStart"], tools.environment(tmp_path)) is None
    assert float(unit["TimeoutStopSec"]) > Settings.model_fields["drain_seconds"].default


def test_sizes_of_messages() -> None:
    row = 128_256 * 2
    most = (256 << 20) // (9 * row)
    for shown in (f"{row:,} bytes", f"{9 * 8 * row / 1e6:.1f} MB for a batch of 8", f"{most} requests fill"):
        assert shown in TEXT
