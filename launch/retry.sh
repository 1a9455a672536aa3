#!/usr/bin/env bash
# Keeps a job going that may be interrupted: runs a command again until it is done; see --help.
set -euo pipefail

self=retry.sh
# shellcheck source=launch/keep_going.bash
. "$(dirname "${BASH_SOURCE[0]}")/keep_going.bash"

usage() {
    cat <<'TEXT'
launch/retry.sh [OPTION ...] [--] COMMAND [ARGUMENT ...]

    launch/retry.sh --retries 50 launch/local.sh train --config CONFIG --workdir DIR

Runs COMMAND, and again when it failed or was stopped: `train` goes on from its last checkpoint.
It ends with COMMAND's exit status at
    0          done
    2          wrong usage, settings or input, which would only repeat itself (and 126, 127: no
               such command)
and at any other (75: stopped on request and saved; 1, 134, 137, ...: failed, aborted, killed) when
no retry is left. SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on to COMMAND as one SIGTERM, and
nothing is restarted after it has ended.

  --retries N       restarts in all (default 10)
  --wait SECONDS    before the first restart; twice as long after each further failure (default 10)
  --max-wait SECONDS
                    at most (default 600); an attempt that lasted longer than this starts again
                    from --wait
  --dry-run         print what would run, and run nothing
  --help            this text
TEXT
}

retries=10
wait_s=10
max_wait=600
dry_run=

count_of() { # count_of OPTION VALUE
    is_count "${2:-}" || bad_usage "$1 needs a whole number, not '${2:-}'"
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
[ "$#" -gt 0 ] || bad_usage "which command is to be kept going?"
[ "$wait_s" -le "$max_wait" ] || bad_usage "--wait $wait_s is more than --max-wait $max_wait"

if [ -n "$dry_run" ]; then
    printf '# up to %s times, until its exit status is 0 or 2; %s s to %s s between two\n' \
        "$((retries + 1))" "$wait_s" "$max_wait"
    quoted "$@"
    exit 0
fi

watch_signals
status=0
keep_going "$retries" "$wait_s" "$max_wait" run_child one "$@" || status=$?
exit "$status"
