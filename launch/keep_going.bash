# Sourced by retry.sh, tpu_vm.sh and slurm.sbatch: restarts a command until it is done, and forwards
# requests to stop.
# shellcheck shell=bash
#
# What an exit status means (flaxformer-mt's own, `flaxformer-mt --help`):
#   0 done   75 stopped on request, saved, resumable
#   76 the same, from tpu_worker.sh only: a person requested it with tpu_vm.sh --stop
#   77 from tpu_worker.sh only: another command is running there
#   2 wrong usage, settings or input: running again won't help
#   anything else: a failure that the next attempt may not meet, such as a preempted machine

child=
stopping=

# The caller sets its name for messages. Nobody may be left to read them, but what follows has to run.
say() { printf '%s: %s\n' "${self:?}" "$*" >&2 || true; }

bad_usage() {
    say "$@"
    say "see $self --help"
    exit 2
}

# quoted WORD ...: the words as a shell would have to read them. Letters, digits and the characters of
# paths and flags stay bare; the rest stands in single quotes.
quoted() {
    local word out=
    for word in "$@"; do
        case $word in
            '' | *[!A-Za-z0-9_./:=,@%+-]*) word="'${word//\'/\'\\\'\'}'" ;;
        esac
        out="$out $word"
    done
    printf '%s\n' "${out# }"
}

# is_final STATUS: whether another attempt would end alike. Says so.
is_final() {
    case $1 in
        2) say "exit status 2, wrong usage, settings or input: not tried again; the reason stands above" ;;
        126 | 127) say "exit status $1, the command cannot be run: not tried again" ;;
        *) return 1 ;;
    esac
}

is_count() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
}

is_variable() { [[ $1 =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; }

request_stop() {
    # Once only: flaxformer-mt saves at the first signal and dies of the second.
    [ -z "$stopping" ] || return 0
    stopping=$1
    [ -z "$child" ] || kill -TERM -- "$child" 2>/dev/null || true
}

watch_signals() {
    local name
    for name in INT TERM HUP USR1; do
        # shellcheck disable=SC2064  # the name is meant to be filled in now
        trap "request_stop SIG$name" "$name"
    done
    trap : PIPE
}

# run_child SCOPE COMMAND ...: its exit status; a request to stop goes to it as one SIGTERM.
# SCOPE is `one` for the process alone, which knows what to do about its own children, or `group` for
# all that it started.
run_child() {
    local scope=$1 status=0 pid input=/dev/stdin
    shift
    # Outside the terminal's foreground group, a child that read from it would be suspended.
    if [ "$scope" = group ] || [ -t 0 ]; then input=/dev/null; fi
    [ -z "$stopping" ] || return 75
    # Job control gives the child a process group of its own: a Ctrl-C reaches this script alone, and
    # the child gets one signal and not two.
    set -m
    "$@" <"$input" &
    pid=$!
    set +m
    child=$pid
    [ "$scope" = one ] || child=-$pid
    # Asked to stop between the two lines above.
    [ -z "$stopping" ] || kill -TERM -- "$child" 2>/dev/null || true
    wait "$pid" || status=$?
    while kill -0 "$pid" 2>/dev/null; do # a signal ended the wait, not the child
        status=0
        wait "$pid" || status=$?
    done
    if [ -n "$stopping" ] && [ "$status" -gt 128 ]; then
        # The wait's own status, if the child ended while the signal was handled: ask again.
        local again=0
        wait "$pid" 2>/dev/null || again=$?
        [ "$again" = 127 ] || status=$again
    fi
    child=
    return "$status"
}

# pause SECONDS: ends at once when a stop is requested.
pause() { run_child one sleep "$1" || true; }

# keep_going RETRIES WAIT MAX_WAIT COMMAND ...: the exit status to end with.
# WAIT seconds before the first restart, doubled at each failure up to MAX_WAIT, and from the start
# again after an attempt that lasted longer than MAX_WAIT.
keep_going() {
    local retries=$1 first=$2 most=$3 attempt=1 status began lasted
    local wait_s=$first
    shift 3
    while :; do
        say "attempt $attempt of $((retries + 1))"
        began=$SECONDS
        status=0
        "$@" || status=$?
        lasted=$((SECONDS - began))
        if [ "$status" = 0 ]; then
            say "done at attempt $attempt, exit status 0"
            return 0
        fi
        if [ -n "$stopping" ]; then
            say "asked to stop ($stopping): the command ended with exit status $status"
            return "$status"
        fi
        if is_final "$status"; then return "$status"; fi
        if [ "$attempt" -gt "$retries" ]; then
            say "exit status $status after $lasted s: giving up after $attempt attempt(s);" \
                "the same command resumes from the last checkpoint"
            return "$status"
        fi
        if [ "$status" = 75 ] || [ "$lasted" -gt "$most" ]; then wait_s=$first; fi
        case $status in
            75) say "exit status 75, stopped and saved: resuming in $wait_s s" ;;
            *) say "exit status $status after $lasted s: trying again in $wait_s s" ;;
        esac
        pause "$wait_s"
        if [ -n "$stopping" ]; then
            say "asked to stop ($stopping) while waiting"
            return 75
        fi
        [ "$status" = 75 ] || wait_s=$((wait_s * 2 < most ? wait_s * 2 : most))
        attempt=$((attempt + 1))
    done
}
