#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment VENV from the pinned and hashed packages of LOCK, with this project installed editable.
# Usage: tools/make_venv.sh VENV LOCK     (PYTHON=/path/to/python3 chooses the interpreter)
set -eu
venv=$1
lock=$2
say() { echo "==> $*"; }
missing() {
    echo "make venv: $1" >&2
    exit 1
}

# Succeeds, without output, for a Python that is new enough and can make environments.
usable() { "$1" -c 'import sys; assert sys.version_info >= (3, 11); import ensurepip, venv' 2>/dev/null; }
new_enough() { "$1" -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null; }

python= bare=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if usable "$candidate"; then
        python=$candidate
        break
    fi
    if new_enough "$candidate"; then bare=$candidate; fi
done
if [ -z "$python" ] && [ -n "$bare" ]; then
    missing "$bare cannot make virtual environments (module venv or ensurepip): install the package python3-venv of your system."
fi
if [ -z "$python" ]; then
    missing "no Python 3.11 or newer among: ${PYTHON:-python3 python3.13 python3.12 python3.11}. Install one, or run: PYTHON=/path/to/python3 make venv"
fi

java=java
if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; fi
# The first number of 'version "17.0.15"'; Java 8 calls itself "1.8".
java_release=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || true
if [ "${java_release:-0}" -lt 17 ]; then
    missing "Spark needs Java 17 or newer, and '$java' is ${java_release:+Java }${java_release:-not there}. Install a JDK or JRE 17 (openjdk-17-jre-headless), or set JAVA_HOME."
fi

unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1

say "$venv: $("$python" --version), Java $java_release"
"$python" -m venv "$venv"
# pip shows its progress on a terminal; elsewhere there is a line for each package, so that nobody waits in silence.
# Python compiles the modules that are used, when they are.
pip() { "$venv/bin/python" -m pip install --no-compile "$@"; }
install() {
    if [ -t 1 ]; then
        pip "$@"
        return
    fi
    { pip --progress-bar off "$@" || echo "pip failed"; } | {
        failed=0
        while read -r line; do
            case $line in
                Collecting* | Building* | Installing*) echo "    ${line%% (from*}" ;;
                "pip failed") failed=1 ;;
            esac
        done
        exit $failed
    }
}
# The build tools come first, so that no build fetches anything that is not pinned.
say "installing the build tools of requirements/build.lock"
install --require-hashes -r requirements/build.lock
say "installing the pinned packages of $lock (PySpark alone is a download of about 450 MB)"
install --require-hashes --no-build-isolation -r "$lock"
say "installing pyspark-commitlog, editable"
install --no-deps --no-build-isolation --editable .
# Spark's Python processes would compile PySpark anew from this archive, each kind of them: see spark-conf/README.md.
rm -f "$venv"/lib/python3*/site-packages/pyspark/python/lib/pyspark.zip
say "$venv is ready"
