#!/usr/bin/env bash
# Runs flaxformer-mt on this machine. Needs only Python 3.11 or newer with pip; see --help.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${FLAXFORMER_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
# Names the installing process. Outside the environment, because it outlives the environment.
installing=$venv.installing
owned=
# One file per installed extra, holding the digest it was installed from.
stamps=$venv/.flaxformer
# Marks an environment that this script made and may remove.
ours=$stamps/.made-here

usage() {
    cat <<'TEXT'
launch/local.sh COMMAND [ARGUMENT ...]       run `flaxformer-mt COMMAND ...` in the current folder
launch/local.sh demo                         translate with a small model that comes with the package
launch/local.sh test [PYTEST ARGUMENT ...]   run the tests
launch/local.sh --help                       this text, and the commands once installed

The first call creates a Python environment with the pinned dependencies (1 GB). Later calls reuse it
until pyproject.toml or constraints.txt changes. Installation messages go to stderr; stdin and stdout
belong to the command.

Variables:
  FLAXFORMER_VENV     where the environment is (default: .venv beside README.md)
  FLAXFORMER_EXTRAS   what to install beyond the CPU version: tpu, cuda, gcs, export, hub,
                      serve, figures, wandb, mlflow, ray, dedup, langid, memories, markdown, docs (or a,b)
  FLAXFORMER_PYTHON   the Python to create it with (default: the first one recent enough)
TEXT
}

say() { printf 'local.sh: %s\n' "$*" >&2; }

release() {
    [ -z "$owned" ] || rm -f "$installing"
    owned=
}

fail() {
    say "$@"
    release
    exit 1
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    if [ -n "${FLAXFORMER_PYTHON:-}" ]; then
        is_recent "$FLAXFORMER_PYTHON" ||
            fail "FLAXFORMER_PYTHON=$FLAXFORMER_PYTHON is not Python 3.11 or newer"
        printf '%s\n' "$FLAXFORMER_PYTHON"
        return
    fi
    for name in python3.13 python3.12 python3.11 python3 python; do
        if is_recent "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "no Python 3.11 or newer found (tried python3.13, python3.12, python3.11, python3, python)." \
        "Install one, or set it: FLAXFORMER_PYTHON=/path/to/python launch/local.sh ..."
}

# Everything that makes an environment stale when it changes, including the checkout's path, since
# the environment holds absolute paths.
digest() {
    { printf '%s\n%s\n' "$root" "$venv" && cat "$root/pyproject.toml" "$root/constraints.txt"; } | cksum
}

# is_current EXTRA ...: whether each is installed from the current files.
is_current() {
    local extra wanted
    wanted=$(digest)
    [ -x "$venv/bin/python" ] || return 1
    for extra in "$@"; do
        [ "$(cat "$stamps/$extra" 2>/dev/null)" = "$wanted" ] || return 1
    done
}

is_running() { kill -0 "$1" 2>/dev/null || [ -d "/proc/$1" ]; }

# Waits for a running installation; cleans up after an interrupted one.
claim() {
    local owner waited=
    mkdir -p "$(dirname "$venv")" 2>/dev/null || true
    [ -w "$(dirname "$venv")" ] ||
        fail "cannot write into $(dirname "$venv"); choose another place with FLAXFORMER_VENV"
    until (set -o noclobber && echo "$$" >"$installing") 2>/dev/null; do
        owner=$(cat "$installing" 2>/dev/null) || continue
        if [ -z "$owner" ]; then # caught between the file's making and its filling, or killed there
            sleep 1
            owner=$(cat "$installing" 2>/dev/null) || continue
        fi
        if [ -n "$owner" ] && is_running "$owner"; then
            [ -n "$waited" ] || say "waiting for process $owner to install into $venv." \
                "(If it is something else, remove $installing.)"
            waited=yes
            sleep 1
        else
            say "an earlier installation into $venv was interrupted: starting over"
            [ ! -e "$ours" ] || rm -rf "$venv"
            rm -f "$installing"
        fi
    done
    owned=yes
}

make_environment() {
    local python
    python=$(find_python)
    if [ -e "$venv" ] && [ ! -e "$ours" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "$venv is neither empty nor a Python environment; choose another FLAXFORMER_VENV"
    fi
    say "creating $venv with $("$python" --version 2>&1)"
    rm -rf "$venv"
    mkdir -p "$stamps"
    touch "$ours" # before all else, so that an unfinished environment is known for what it is
    if "$python" -c 'import ensurepip' >/dev/null 2>&1; then
        "$python" -m venv "$venv" >&2 || fail "$python -m venv $venv failed, for the reason above"
    else
        # Debian without python3-venv: this Python's pip can fill the environment.
        { "$python" -m venv --without-pip "$venv" &&
            "$python" -m pip --python "$venv/bin/python" install --quiet pip; } >&2 ||
            fail "$python cannot make an environment: install its venv module" \
                "(Debian, Ubuntu: apt-get install python3-venv)"
    fi
}

# ensure EXTRA ...: an environment with the package and these extras; `base` means no extras.
ensure() {
    local extra names='' quiet=--quiet
    if [ ! -e "$installing" ] && is_current "$@"; then return; fi
    claim
    if ! is_current "$@"; then # it may be by now, if another process has just installed
        [ -x "$venv/bin/python" ] || make_environment
        mkdir -p "$stamps"
        # An extra, once requested, stays and follows the pins.
        for extra in "$@" $(ls "$stamps"); do
            case ",base,$names," in *",$extra,"*) ;; *) names=${names:+$names,}$extra ;; esac
        done
        say "installing flaxformer-mt${names:+ with $names} into $venv (takes minutes the first time)"
        if [ -t 2 ]; then quiet=--progress-bar=on; fi
        "$venv/bin/python" -m pip install "$quiet" --disable-pip-version-check \
            --constraint "$root/constraints.txt" --editable "$root${names:+[$names]}" >&2 ||
            fail "the installation failed; pip's reason stands above. To install without a network," \
                "set PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER, a folder of wheels"
        for extra in base ${names//,/ }; do digest >"$stamps/$extra"; done
    fi
    release
}

case ${1:-} in
    '')
        usage >&2
        exit 2
        ;;
    -h | --help)
        usage
        if is_current base; then echo && "$venv/bin/flaxformer-mt" --help; fi
        exit 0
        ;;
esac

extras=(base)
IFS=, read -r -a asked <<<"${FLAXFORMER_EXTRAS:-}"
for extra in ${asked[@]+"${asked[@]}"}; do
    case $extra in
        tpu | cuda | gcs | export | hub | serve | figures | wandb | mlflow | ray | dedup | langid | memories | markdown | docs | dev) extras+=("$extra") ;;
        *)
            say "FLAXFORMER_EXTRAS=$FLAXFORMER_EXTRAS: '$extra' is not one of tpu, cuda, gcs, export, hub, serve, figures, wandb, mlflow, ray, dedup, langid, memories, markdown, docs, dev"
            exit 2
            ;;
    esac
done

if [ "$1" = demo ]; then extras+=(serve); fi # which shows the page
if [ "$1" = test ]; then
    shift
    ensure "${extras[@]}" dev </dev/null
    cd "$root"
    # Two processes, because most of a test's time is XLA compiling on one core; `-n 0` undoes it.
    exec "$venv/bin/python" -m pytest -n 2 --dist worksteal "$@"
fi
ensure "${extras[@]}" </dev/null
# The command that messages tell the user to type.
FLAXFORMER_PROGRAM=$0 exec "$venv/bin/flaxformer-mt" "$@"
