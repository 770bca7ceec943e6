# SPDX-License-Identifier: Apache-2.0
"""Makes what a release consists of, in dist/: the wheel, its bill of materials, and the result of the dependency audit.

Usage: python -m tools.release [--no-audit]

1. The wheel is built twice, and has to be the same, byte by byte.
2. It is installed with its extras into an empty environment, and everything in that is listed (CycloneDX).
3. The versions in it are looked up among published advisories; that needs the network, and --no-audit leaves it out.

The tools for 2 and 3 are pinned, with hashes, in requirements/release.lock, and have an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from tools.check_wheel import ROOT, WheelError, build_twice

DIST: Final = ROOT / "dist"
TOOLS: Final = ROOT / ".venv-release"
LOCK: Final = ROOT / "requirements" / "release.lock"
EXTRAS: Final = "[cli,plots,progress,rocksdb,spark,speed]"
BILL: Final = "sbom.cdx.json"


def make_environment(directory: Path, *packages: str | Path) -> Path:
    """Make an environment with packages, and return its Python."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def list_materials(installed: Path, bill: Path) -> int:
    """Write the bill of materials of an environment, without pip itself; return how many components it has."""
    command: list[str | Path] = [
        TOOLS / "bin" / "cyclonedx-py",
        "environment",
        installed,
        "--output-reproducible",
        "-o",
        bill,
    ]
    subprocess.run(command, check=True)
    content = json.loads(bill.read_text(encoding="utf-8"))
    content["components"] = [each for each in content["components"] if each["name"] not in {"pip", "setuptools"}]
    bill.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return len(content["components"])


def audit(bill: Path) -> None:
    """Look the versions of a bill of materials up among the published advisories; raise if there is one."""
    components = json.loads(bill.read_text(encoding="utf-8"))["components"]
    lines = [f"{each['name']}=={each['version']}" for each in components if each["name"] != "pyspark-commitlog"]
    with tempfile.TemporaryDirectory(prefix="audit-") as name:
        requirements = Path(name, "requirements.txt")
        requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command: list[str | Path] = [
            TOOLS / "bin" / "pip-audit",
            "-r",
            requirements,
            "--no-deps",
            "--disable-pip",
            "--progress-spinner=off",
        ]
        subprocess.run(command, check=True)


def main() -> int:
    """Run the program, and return the exit code."""
    parser = argparse.ArgumentParser(description="Makes what a release consists of.")
    parser.add_argument("--no-audit", action="store_true", help="leave out the audit, which needs the network")
    asked = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    try:
        if not TOOLS.exists():
            make_environment(TOOLS, "--require-hashes", "-r", LOCK)
        wheel = build_twice(DIST)
        with tempfile.TemporaryDirectory(prefix="release-") as name:
            python = make_environment(Path(name), f"{wheel}{EXTRAS}")
            count = list_materials(python, DIST / BILL)
        print(f"{wheel.name}: built twice, the same bytes; {BILL} has {count} components")
        if asked.no_audit:
            print("not audited")
        else:
            audit(DIST / BILL)
    except (WheelError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
