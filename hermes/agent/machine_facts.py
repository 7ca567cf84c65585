"""What hosts ask about the machine that the server runs on: its kind, its battery (gateway §10.1, ``machine.facts``).

Read from the system's files, which are small; nothing is started for it. What the system does not tell is left out.
"""

from __future__ import annotations

import locale
import platform
from pathlib import Path
from typing import Any, Final

POWER: Final = Path("/sys/class/power_supply")
PROC: Final = Path("/proc")
CONTAINER_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
CRITICAL, LOW, MIDDLE = 10, 20, 50
"""Percent, up to which a battery is critical, bad, and no more than fair."""


def battery(folder: Path = POWER) -> dict[str, Any]:
    """``{available, percent, plugged, category}``; a machine without one says so."""
    supplies = [item for item in sorted(folder.glob("*")) if item.is_dir()]
    level = next((_number(item / "capacity") for item in supplies if _word(item / "type") == "Battery"), None)
    if level is None:
        return {"available": False}
    states = {_word(item / "status") for item in supplies if _word(item / "type") == "Battery"}
    plugged = any(_word(item / "online") == "1" for item in supplies) or bool(states & {"Charging", "Full"})
    return {"available": True, "percent": level, "plugged": plugged, "category": _category(level)}


def _category(percent: int) -> str:
    if percent <= CRITICAL:
        return "critical"
    if percent <= LOW:
        return "bad"
    return "warn" if percent <= MIDDLE else "good"


def machine(proc: Path = PROC) -> dict[str, Any]:
    """The ``machine.facts`` of this machine."""
    found: dict[str, Any] = {
        "os_family": platform.system().lower(),
        "os_release": platform.release(),
        "native_arch": platform.machine(),
        "wsl": "microsoft" in platform.release().lower(),
        "container": any(mark.exists() for mark in CONTAINER_MARKS),
    }
    for name, value in (
        ("cpu_model", _after_colon(proc / "cpuinfo", "model name")),
        ("ram_gb", _gigabytes(_after_colon(proc / "meminfo", "MemTotal"))),
        ("vendor", _word(Path("/sys/class/dmi/id/sys_vendor"))),
    ):
        if value:
            found[name] = value
    has_nvidia = (proc / "driver" / "nvidia" / "version").exists()
    kind = "container" if found["container"] else "wsl" if found["wsl"] else "machine"
    result: dict[str, Any] = {"machine": found, "machine_kind": kind, "has_nvidia_gpu": has_nvidia}
    language = locale.getlocale()[0]
    if language:
        result["locale"] = language
    return result


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    word = _word(path)
    return min(int(word), 100) if word.isdecimal() else None


def _after_colon(path: Path, name: str) -> str:
    for line in _word(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _gigabytes(text: str) -> int | None:
    number = text.partition(" ")[0]
    return round(int(number) / 1024 / 1024) if number.isdecimal() else None
