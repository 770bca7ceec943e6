# SPDX-License-Identifier: Apache-2.0
"""Downloads a RocketMQ release with Maven and compiles the harness against it, once; both stay in `.cache/interop`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.format.release import RELEASE_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


RELEASES: Final[dict[str, str]] = {name: rules.judge for name, rules in RELEASE_RULES.items()}
"""The RocketMQ version for each value of option `release`."""

_SOURCES: Final = {
    "4.3.0": ("common", "4", "4.3.0"),
    "4.9.7": ("common", "4", "4.9.7"),
    "5.3.3": ("common", "5", "5.3.3"),
    "5.3.4": ("common", "5"),
    "5.4.0": ("common", "5"),
    "5.5.0": ("common", "5"),
    "5.5.1": ("common", "5"),
}
"""Folders of the harness for a version."""

_BEHIND: Final = {"5.3.4": "5.3.3"}
"""The version whose jars come after those of another: 5.3.4 needs one class that 5.4.0, of its other parts, dropped."""

_HERE: Final = Path(__file__).parent
_JAVA: Final = _HERE / "java"
_CACHE: Final = _HERE.parents[1] / ".cache" / "interop"
_JAVA_RELEASE: Final = "17"

# RocketMQ 4.x unmaps files and accesses buffers by reflection, which Java 17 allows only with these options.
_OPENED_PACKAGES: Final = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
_JVM_OPTIONS: Final = (
    "-Xms256m",
    "-Xmx1g",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",  # otherwise a store on a fuller disk refuses messages
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
)


class MissingToolError(RuntimeError):
    """A program that the tests need is not installed."""


class ToolFailedError(RuntimeError):
    """A program ended with an error; its output is the message."""


def missing_tools() -> tuple[str, ...]:
    """Return the programs that the tests need and that are not on the PATH."""
    return tuple(name for name in ("mvn", "javac", "java") if shutil.which(name) is None)


def harness_command(version: str, *jvm_options: str) -> list[str]:
    """Return the command that starts the harness on a version of `RELEASES`; first fetch and compile what is missing.

    Maven or the compiler may fail with a `ToolFailedError`, for example without a network.
    """
    if missing := missing_tools():
        raise MissingToolError(
            f"{', '.join(missing)} not found: the tests against a real RocketMQ fetch it with Maven and compile a "
            f"harness with a JDK of release {_JAVA_RELEASE} or later. Install both, or leave these tests out: "
            "pytest --ignore=tests/interop"
        )
    jars = _jars(version)
    classes = _classes(version, jars)
    behind = [f"{jars.with_name(f'rocketmq-{_BEHIND[version]}')}/*"] if version in _BEHIND else []
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES]
    settings = [f"-D{name}.configurationFile={_JAVA / 'logback.xml'}" for name in ("logback", "rmq.logback")]
    own = [f"-Duser.home={_CACHE / 'home'}", f"-Dinterop.version={version}"]
    return [
        _program("java"),
        *(*_JVM_OPTIONS, *jvm_options, *opened, *settings, *own),
        *("-cp", ":".join([str(classes), f"{jars}/*", *behind]), "interop.Main"),
    ]


def _jars(version: str) -> Path:
    """Let Maven copy the jars of all versions, in one run, which downloads them in parallel."""
    digest = _digest(sorted(_JAVA.glob("**/pom.xml")))

    def fetch(directory: Path) -> None:
        output = f"-DoutputDirectory={directory}/${{project.artifactId}}"
        goal = "dependency:copy-dependencies"
        _run([_program("mvn"), "-q", "-B", f"-T{len(RELEASES)}", "-f", str(_JAVA / "pom.xml"), goal, output])

    return _make_once(_CACHE / f"jars-{digest}", fetch) / f"rocketmq-{version}"


def _classes(version: str, jars: Path) -> Path:
    folders = _SOURCES[version]
    sources = sorted(path for folder in folders for path in _JAVA.glob(f"{folder}/**/*.java"))

    def compile_into(directory: Path) -> None:
        options = ["--release", _JAVA_RELEASE, "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(directory)]
        _run([_program("javac"), *options, *map(str, sources)])

    return _make_once(_CACHE / f"classes-{version}-{_digest([*sources, jars])}", compile_into)


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of the contents of files and the names of directories."""
    parts = (path.read_bytes() if path.is_file() else str(path).encode() for path in paths)
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Fill a directory, unless it exists: it appears complete or not at all, even if another process does the same."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            make(made)
            made.rename(target)
        except OSError:
            if not target.exists():
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target


def _program(name: str) -> str:
    return shutil.which(name) or name


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- the commands above
    if done.returncode != 0:
        raise ToolFailedError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
