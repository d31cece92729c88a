#!/usr/bin/env bash
# Prepares a Debian or Ubuntu machine. `setup.sh runtime|dev|client VENV` makes the virtual environment from its lock file;
# `setup.sh services` finds redis-server, the PostgreSQL server and the tools that the tests start, and installs what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

apt_install() {
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        say "missing: $*. This machine has no apt-get: install these (or their like) by hand, then run the command again."
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null || { ! sudo -n true 2>/dev/null && [ ! -t 0 ]; }; then
            say "missing: $*. Neither root nor password-less sudo here. Run as root: apt-get install $*"
            exit 1
        fi
        as_root=(sudo)
    fi
    say "installing $* with apt"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

make_venv() {
    local venv=$1 lock=$2 project=$3 python
    python=$(find_python) || { apt_install python3 python3-venv; python=$(find_python); } || {
        say "Python 3.11 or newer is needed; set PYTHON=/path/to/python and run the command again."
        exit 1
    }
    # One that was cut short, or whose Python was upgraded away, has no working pip: it is made again from nothing.
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        # Debian keeps what makes environments apart from each Python: python3.11-venv and so on.
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            apt_install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        say "making $venv with $("$python" --version)"
        "$python" -m venv --clear "$venv"
    fi
    say "installing the pinned packages of $lock (the first time takes a minute or two)"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$lock"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps -e "$project"
}

postgres_server() {
    command -v initdb >/dev/null && return 0
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

services() {
    local wanted=()
    command -v redis-server >/dev/null || wanted+=(redis-server)
    postgres_server || wanted+=(postgresql)
    command -v git >/dev/null || wanted+=(git)
    command -v curl >/dev/null || wanted+=(curl)
    if [ "${#wanted[@]}" -gt 0 ]; then
        apt_install "${wanted[@]}"
        say "the tests start servers of their own; where systemd runs, apt has started redis-server and postgresql as well"
    fi
}

case "${1:-}" in
    runtime) make_venv "$2" requirements.lock . ;;
    dev) make_venv "$2" requirements-dev.lock . ;;
    client) make_venv "$2" plugins/python/requirements-test.lock plugins/python ;;
    services) services ;;
    *) say "usage: setup.sh runtime|dev|client VENV  or  setup.sh services"; exit 2 ;;
esac
