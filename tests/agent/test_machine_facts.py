"""What the machine is and how full its battery, from files that stand for the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.machine_facts import battery, machine


def supply(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir(parents=True)
    for key, text in files.items():
        (folder / name / key).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("percent", "category"), [("100", "good"), ("51", "good"), ("50", "warn"), ("20", "bad"), ("10", "critical")]
)
def test_a_battery_has_a_level_and_what_it_means(percent: str, category: str, tmp_path: Path) -> None:
    supply(tmp_path, "AC", type="Mains", online="0")
    supply(tmp_path, "BAT0", type="Battery", capacity=percent, status="Discharging")
    assert battery(tmp_path) == {"available": True, "percent": int(percent), "plugged": False, "category": category}


def test_a_machine_on_its_charger_is_plugged_and_one_without_a_battery_says_so(tmp_path: Path) -> None:
    supply(tmp_path / "one", "AC", type="Mains", online="1")
    supply(tmp_path / "one", "BAT0", type="Battery", capacity="80", status="Not charging")
    assert battery(tmp_path / "one")["plugged"] is True
    supply(tmp_path / "two", "AC", type="Mains", online="1")
    assert battery(tmp_path / "two") == {"available": False}
    assert battery(tmp_path / "none") == {"available": False}


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor\n")
    (tmp_path / "meminfo").write_text("MemTotal:       16384000 kB\n")
    told = machine(tmp_path)
    assert (told["machine"]["cpu_model"], told["machine"]["ram_gb"]) == ("A Processor", 16)
    assert told["has_nvidia_gpu"] is False
    silent = machine(tmp_path / "nothing")["machine"]
    assert "cpu_model" not in silent and "ram_gb" not in silent
