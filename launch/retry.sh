#!/usr/bin/env bash
# Restarts a command that may be interrupted, until it is done; see --help.
set -euo pipefail

self=retry.sh
# shellcheck source=launch/keep_going.bash
. "$(dirname "${BASH_SOURCE[0]}")/keep_going.bash"

usage() {
    cat <<'TEXT'
launch/retry.sh [OPTION ...] [--] COMMAND [ARGUMENT ...]

    launch/retry.sh --retries 50 launch/local.sh train --config CONFIG --workdir DIR

Runs COMMAND, and restarts it if it fails or is stopped: `train` resumes from its last checkpoint.
Exits with COMMAND's status if that is
    0          done
    2          wrong usage, settings or input: a restart won't help (also 126, 127: no such
               command)
or any other (75: stopped on request and saved; 1, 134, 137, ...: failed, aborted, killed) once no
retry is left. SIGTERM, SIGINT, SIGHUP and SIGUSR1 reach COMMAND as one SIGTERM; there is no
restart after that.

  --retries N       total restarts (default 10)
  --wait SECONDS    wait before the first restart, doubled after each failure (default 10)
  --max-wait SECONDS
                    longest wait (default 600); an attempt that ran longer than this resets the
                    wait to --wait
  --dry-run         only print what would run
  --help            this text
TEXT
}

retries=10
wait_s=10
max_wait=600
dry_run=

count_of() { # count_of OPTION VALUE
    is_count "${2:-}" || bad_usage "$1 needs an integer, not '${2:-}'"
    printf '%s\n' "$2"
}

while [ "$#" -gt 0 ]; do
    case $1 in
        --retries) retries=$(count_of "$1" "${2:-}") || exit 2 ;;
        --wait) wait_s=$(count_of "$1" "${2:-}") || exit 2 ;;
        --max-wait) max_wait=$(count_of "$1" "${2:-}") || exit 2 ;;
        --dry-run)
            dry_run=yes
            shift
            continue
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        --)
            shift
            break
            ;;
        -*) bad_usage "unknown option '$1'" ;;
        *) break ;;
    esac
    shift 2
done
[ "$#" -gt 0 ] || bad_usage "missing COMMAND"
[ "$wait_s" -le "$max_wait" ] || bad_usage "--wait $wait_s is more than --max-wait $max_wait"

if [ -n "$dry_run" ]; then
    printf '# up to %s times, until its exit status is 0 or 2; %s s to %s s between attempts\n' \
        "$((retries + 1))" "$wait_s" "$max_wait"
    quoted "$@"
    exit 0
fi

watch_signals
status=0
keep_going "$retries" "$wait_s" "$max_wait" run_child one "$@" || status=$?
exit "$status"
