#!/usr/bin/env bash
# Runs one flaxformer-mt command on one worker of a TPU; tpu_vm.sh copies it there. See --help.
#
# The command is detached from the connection that started it: a laptop that sleeps ends the stream of
# its log, not the training, and the next call follows the running command.
set -euo pipefail

usage() {
    cat <<'TEXT'
tpu_worker.sh run [OPTION ...] -- COMMAND [ARGUMENT ...]   start `flaxformer-mt COMMAND ...`, or follow
                                   it if it is running; exits with its status, or with 76 if
                                   `stop` ended it and it saved
tpu_worker.sh stop                 ask the running command to save and stop, and wait
tpu_worker.sh --help               this text

  --archive FILE       the checkout to run, a .tar.gz (default: ~/flaxformer_mt.tar.gz)
  --requirement SPEC   install this with pip instead, e.g. gs://-downloaded wheels or git+https://...
  --extras a,b         what to install beyond the CPU version (default: tpu,gcs)

Its state is in ~/.flaxformer_job: command, extras, archive and environment (what it was started with), log,
pid, status, stop_requested.
TEXT
}

job=$HOME/.flaxformer_job
checkout=$HOME/flaxformer_mt

say() { printf 'tpu_worker.sh on %s: %s\n' "$(hostname 2>/dev/null || echo worker)" "$*" >&2; }

fail() {
    local status=$1
    shift
    say "$@"
    exit "$status"
}

# The command and all its children hold the lock, so that no other process is mistaken for it after
# the machine restarts.
is_running() { [ -e "$job/lock" ] && ! flock --nonblock "$job/lock" true; }

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# TPU VM images are Ubuntu 22.04, with Python 3.10. A standalone build from uv needs neither root nor
# apt, which a new machine's own upgrades lock for minutes.
find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3; do
        if is_recent "$name"; then
            command -v "$name"
            return
        fi
    done
    say "no Python 3.11 or newer here: installing 3.12 with uv"
    { python3 -m pip install --quiet --user uv &&
        python3 -m uv python install --quiet 3.12; } >&2 ||
        fail 1 "could not install Python 3.12, for the reason above"
    python3 -m uv python find 3.12
}

# prepare: sets `program`, the words that run flaxformer-mt.
prepare() {
    local python
    python=$(find_python)
    if [ -n "$requirement" ]; then
        local venv=$HOME/flaxformer_venv
        [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" >&2 || fail 1 "$python can't create an environment"
        "$venv/bin/python" -m pip install --quiet "$requirement" >&2 ||
            fail 1 "pip could not install $requirement, for the reason above"
        program=("$venv/bin/flaxformer-mt")
        return
    fi
    [ -e "$archive" ] || fail 1 "$archive is missing"
    mkdir -p "$checkout"
    # Remove files that only an earlier version had, but keep the environment.
    find "$checkout" -mindepth 1 -maxdepth 1 ! -name '.venv*' -exec rm -rf {} +
    tar -xzf "$archive" -C "$checkout" || fail 1 "$archive cannot be unpacked"
    export FLAXFORMER_EXTRAS=$extras FLAXFORMER_PYTHON=$python
    # Install first, so that the command's log starts with the command.
    "$checkout/launch/local.sh" --version >&2 || fail 1 "the installation failed, for the reason above"
    program=("$checkout/launch/local.sh")
}

# variables: this script's environment, a line each, without what differs from one connection to the next.
variables() {
    local name
    compgen -e | LC_ALL=C sort | while IFS= read -r name; do
        case $name in
            SSH_* | XDG_* | DBUS_* | LC_* | LANG | LANGUAGE | TERM | COLUMNS | LINES | PWD | OLDPWD | SHLVL | _) ;;
            FLAXFORMER_POLL) ;;
            *) printf '%s=%q\n' "$name" "${!name}" ;;
        esac
    done
}

# contents: a digest of the checkout's file names and contents; packing it again changes only times.
contents() {
    [ -z "$requirement" ] && [ -e "$archive" ] || return 0
    { tar -tzf "$archive" && tar -xOzf "$archive"; } 2>/dev/null | sha256sum
}

# note: writes what this call asks for into the folder `asked`. The environment may hold keys.
note() {
    printf '%s\n' "$wanted" >"$asked/command"
    if [ -z "$requirement" ]; then printf '%s\n' "$extras" >"$asked/extras"; fi
    contents >"$asked/archive"
    (umask 077 && variables >"$asked/environment")
}

# differs NAME: whether this call asks for another NAME than the running command's. Jobs of earlier
# versions of this script have noted less.
differs() { [ -s "$job/$1" ] && [ -s "$asked/$1" ] && ! cmp -s "$job/$1" "$asked/$1"; }

# differences: a line for each thing that this call asks for and the running command has otherwise.
differences() {
    local names
    if differs extras; then
        echo "--extras $(cat "$job/extras"), and you ask for $(cat "$asked/extras")"
    fi
    if differs environment; then
        names=$(LC_ALL=C comm -3 "$job/environment" "$asked/environment" |
            tr -d '\t' | sed 's/=.*//' | sort -u | tr '\n' ' ')
        echo "other values of the environment (--env): ${names% }"
    fi
    if differs archive; then
        echo "another checkout: files have changed since"
    fi
}

start() {
    rm -rf "$job"
    mkdir -p "$job"
    mv "$asked"/* "$job"
    : >"$job/log"
    # shellcheck disable=SC2016  # expanded by the inner shell
    setsid flock "$job/lock" bash -c '
        job=$1
        shift
        "$@" </dev/null >>"$job/log" 2>&1 &
        echo "$!" >"$job/pid"
        status=0
        wait "$!" || status=$?
        echo "$status" >"$job/status.new"
        mv "$job/status.new" "$job/status"
    ' tpu_worker "$job" "$@" </dev/null >/dev/null 2>&1 &
    local tries=0
    until [ -e "$job/pid" ] || [ "$tries" -ge 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ -e "$job/pid" ] || fail 1 "the command did not start"
}

# follow LINES: streams the log, from the start (`+1`) or the last LINES, until the command ends.
follow() {
    local lines=$1 streamer
    tail -n "$lines" -f "$job/log" &
    streamer=$!
    trap 'kill "$streamer" 2>/dev/null || true; rm -rf "$asked"' EXIT
    while is_running; do sleep "${FLAXFORMER_POLL:-2}"; done
    sleep 1.2 # tail looks once a second
    [ -e "$job/status" ] || fail 1 "the command was killed, or the machine restarted: no exit status"
    local status
    status=$(cat "$job/status")
    # A machine that ends on its own is a reason to restart; a requested stop is not.
    if [ "$status" = 75 ] && [ -e "$job/stop_requested" ]; then status=76; fi
    exit "$status"
}

run() {
    wanted="$requirement $*"
    asked=$(mktemp -d)
    trap 'rm -rf "$asked"' EXIT
    note # before `prepare`, which sets variables
    if is_running; then
        [ "$(cat "$job/command" 2>/dev/null)" = "$wanted" ] ||
            fail 77 "another command is running here:$(cat "$job/command"); stop it first (--stop)"
        differences >"$asked/differences"
        local line
        while IFS= read -r line; do say "the running command has $line"; done <"$asked/differences"
        [ ! -s "$asked/differences" ] ||
            say "to run what you ask for now, stop that command first (--stop), then repeat the call"
        say "the command is still running: following its log"
        follow 20
    fi
    program=()
    prepare
    start "${program[@]}" "$@"
    follow +1
}

stop() {
    if ! is_running; then
        say "nothing is running"
        return
    fi
    touch "$job/stop_requested"
    kill -TERM "$(cat "$job/pid")" 2>/dev/null || true
    say "asked the command to save and stop"
    local waited=0
    while is_running; do
        [ "$waited" -lt 600 ] || fail 1 "it is still running after 10 minutes; its log is $job/log"
        sleep 1
        waited=$((waited + 1))
    done
    say "stopped with exit status $(cat "$job/status" 2>/dev/null || echo unknown)"
}

# A function is read completely before it runs: a later call may overwrite this script.
main() {
    archive=$HOME/flaxformer_mt.tar.gz
    requirement=
    extras=tpu,gcs
    local verb=${1:-}
    [ "$#" -eq 0 ] || shift
    case $verb in
        -h | --help)
            usage
            return
            ;;
        stop)
            stop
            return
            ;;
        run) ;;
        *) fail 2 "run, stop or --help, not '$verb'" ;;
    esac
    while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
        [ "$#" -gt 1 ] || fail 2 "$1 needs a value"
        case $1 in
            --archive) archive=$2 ;;
            --requirement) requirement=$2 ;;
            --extras) extras=$2 ;;
            *) fail 2 "unknown option '$1'" ;;
        esac
        shift 2
    done
    [ "$#" -gt 1 ] || fail 2 "missing command after --"
    shift
    run "$@"
}

main "$@"
exit
