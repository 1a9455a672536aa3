#!/usr/bin/env bash
# Runs one flaxformer-mt command on all workers of a Cloud TPU, creating it if needed; see --help.
# shellcheck disable=SC2317  # `attempt` and what it calls: by keep_going
set -euo pipefail

self=tpu_vm.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(dirname "$here")
# shellcheck source=launch/keep_going.bash
. "$here/keep_going.bash"

usage() {
    cat <<'TEXT'
launch/tpu_vm.sh NAME --zone ZONE [OPTION ...] -- COMMAND [ARGUMENT ...]
launch/tpu_vm.sh NAME --zone ZONE --stop       ask the command running there (on any number of
                                               slices) to save and stop

    launch/tpu_vm.sh mt --zone us-west4-a --type v5litepod-8 --spot --queued --delete-on-exit -- \
        train --config wmt14_en_de:base --workdir gs://BUCKET/en-de

Creates the TPU VM or pod slice NAME unless it exists; copies this checkout to every worker and installs
it; runs `flaxformer-mt COMMAND ...` on all workers; streams their output. After a preemption it creates
the TPU again and reruns the command; `train` with a gs:// --workdir resumes. The command survives a
lost connection: call the script again to follow it. What that call changes is reported: --env, --extras
and the checkout apply once the command is started again; --type, --runtime, --spot and --slices once NAME
is created again.

  --zone ZONE         e.g. us-west4-a (default: CLOUDSDK_COMPUTE_ZONE)
  --project PROJECT   default: gcloud's
  --type TYPE         what to create: v5litepod-8, v6e-16, v5p-8, v4-32, ...
  --runtime VERSION   the VM's software (default: the one for JAX on that type)
  --spot              cheaper, but may be preempted at any time
  --queued            queue for a TPU (a queued resource of the same name)
  --valid-until TIME  with --queued: how long each attempt waits for a TPU, e.g. 6h
  --slices N          with --queued: N slices of --type, joined by the data-centre network
  --create-flag FLAG  extra flag for gcloud's create, e.g. --create-flag=--internal-ips; repeatable
  --connect-flag FLAG extra flag for gcloud's ssh and scp, e.g. --connect-flag=--internal-ip; repeatable
  --package SPEC      install this with pip instead of copying the checkout: a name, which gets --extras
                      (flaxformer-mt==0.1.0), or anything else including its extras
  --extras a,b        what to install beyond the CPU version (default: tpu,gcs)
  --env NAME=VALUE    set a variable for the command on every worker, such as LIBTPU_INIT_ARGS=...; repeatable
  --retries N         total restarts, including preemptions (default 10)
  --wait SECONDS      wait before the first restart, doubled after each failure up to 600 (default 10)
  --delete-on-exit    delete the TPU at the end, even after a failure or Ctrl-C
  --dry-run           only print what would run
  --help              this text

Exit status: the command's (0 done; 2 wrong usage, settings or input, not retried; 75 stopped on request
and saved, but not finished) or gcloud's. SIGINT and SIGTERM end the streaming; with --delete-on-exit
they also let the command save and stop.
TEXT
}

name=
zone=${CLOUDSDK_COMPUTE_ZONE:-}
project=
type=
runtime=
spot=
queued=
valid_until=
slices=1
create_flags=()
connect_flags=()
variables=()
package=
extras=
retries=10
wait_s=10
delete_on_exit=
stop_only=
dry_run=
poll=${FLAXFORMER_POLL:-30}

# --- the command line --------------------------------------------------------------------------

while [ "$#" -gt 0 ]; do
    option=$1
    case $option in
        --)
            shift
            break
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        --spot | --queued | --delete-on-exit | --stop | --dry-run)
            case $option in
                --spot) spot=yes ;;
                --queued) queued=yes ;;
                --delete-on-exit) delete_on_exit=yes ;;
                --stop) stop_only=yes ;;
                --dry-run) dry_run=yes ;;
            esac
            shift
            continue
            ;;
        --*=*)
            value=${option#*=}
            option=${option%%=*}
            shift
            ;;
        --*)
            [ "$#" -gt 1 ] || bad_usage "$option needs a value"
            value=$2
            shift 2
            ;;
        *)
            [ -z "$name" ] || bad_usage "'$option': put the command after --"
            name=$option
            shift
            continue
            ;;
    esac
    case $option in
        --zone) zone=$value ;;
        --project) project=$value ;;
        --type) type=$value ;;
        --runtime) runtime=$value ;;
        --valid-until) valid_until=$value ;;
        --slices) slices=$value ;;
        --create-flag) create_flags+=("$value") ;;
        --connect-flag) connect_flags+=("$value") ;;
        --env)
            is_variable "$value" || bad_usage "--env needs NAME=VALUE, not '$value'"
            variables+=("$value")
            ;;
        --package) package=$value ;;
        --extras) extras=$value ;;
        --retries) retries=$value ;;
        --wait) wait_s=$value ;;
        *) bad_usage "unknown option '$option'" ;;
    esac
done
command=("$@")

[ -n "$name" ] || bad_usage "missing NAME, the first argument"
case $name in
    [a-z]*) ;;
    *) bad_usage "'$name': a TPU's name must start with a lower-case letter" ;;
esac
case $name in *[!a-z0-9-]*) bad_usage "'$name': a TPU's name may have only lower-case letters, digits and -" ;; esac
[ -n "$zone" ] || bad_usage "--zone is missing, and CLOUDSDK_COMPUTE_ZONE is not set"
for pair in "--slices=$slices" "--retries=$retries" "--wait=$wait_s"; do
    is_count "${pair#*=}" || bad_usage "${pair%%=*} needs an integer, not '${pair#*=}'"
done
[ "$slices" -ge 1 ] || bad_usage "--slices needs 1 or more"
[ "$slices" = 1 ] || [ -n "$queued" ] || bad_usage "--slices $slices needs --queued: only a queued resource joins slices"
[ -z "$valid_until" ] || [ -n "$queued" ] || bad_usage "--valid-until needs --queued"
if [ -z "$stop_only" ]; then
    [ "${#command[@]}" -gt 0 ] || bad_usage "missing command after --"
fi
asked_runtime=$runtime
if [ -n "$type" ] && [ -z "$runtime" ]; then
    # https://cloud.google.com/tpu/docs/runtimes
    case $type in
        v6e-*) runtime=v2-alpha-tpuv6e ;;
        v5p-*) runtime=v2-alpha-tpuv5 ;;
        v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
        v2-* | v3-* | v4-*) runtime=tpu-ubuntu2204-base ;;
        *) bad_usage "--type $type: unknown software version; set it with --runtime" ;;
    esac
fi

# --- gcloud's words ----------------------------------------------------------------------------

where=("--zone=$zone")
[ -z "$project" ] || where+=("--project=$project")
kind=tpu-vm
facts=state,acceleratorType,runtimeVersion,schedulingConfig.spot
ready=READY
if [ -n "$queued" ]; then
    kind="queued-resources"
    node='tpu.nodeSpec[0]'
    facts="state.state,$node.node.acceleratorType,$node.node.runtimeVersion,$node.multisliceParams.nodeCount"
    ready=ACTIVE
fi
tpus=(gcloud compute tpus)
describe=("${tpus[@]}" "$kind" describe "$name" "${where[@]}" "--format=value[separator=,]($facts)")
delete=("${tpus[@]}" "$kind" delete "$name" "${where[@]}" --quiet)
create=("${tpus[@]}" "$kind" create "$name" "${where[@]}" "--accelerator-type=$type")
workers=(--worker=all)
reach=tpu-vm
if [ -n "$queued" ]; then
    delete+=(--force) # with its TPUs
    create+=("--runtime-version=$runtime")
    if [ "$slices" = 1 ]; then
        create+=("--node-id=$name")
    else
        create+=("--node-count=$slices")
        reach="queued-resources"
        workers+=(--node=all)
    fi
    [ -z "$valid_until" ] || create+=("--valid-until-duration=$valid_until")
else
    create+=("--version=$runtime")
fi
[ -z "$spot" ] || create+=(--spot)
create+=(${create_flags[@]+"${create_flags[@]}"})

on_workers=("${workers[@]}" "${where[@]}" ${connect_flags[@]+"${connect_flags[@]}"})
archive_name=flaxformer_mt.tar.gz
options=(--extras "${extras:-tpu,gcs}")
sources=("$here/tpu_worker.sh")
if [ -n "$package" ]; then
    # NAME or NAME==1.0; a file, an address or a name with brackets states its own extras.
    plain='^([A-Za-z0-9][A-Za-z0-9._-]*)([ ]*[<>=!~;].*)?$'
    if [[ $package =~ $plain ]] && [[ $package != *.whl && $package != *.tar.gz && $package != *.zip ]]; then
        package="${BASH_REMATCH[1]}[${extras:-tpu,gcs}]${BASH_REMATCH[2]}"
    elif [ -n "$extras" ]; then
        bad_usage "--extras can't be used with --package $package: write NAME[$extras] there"
    fi
    options=(--requirement "$package")
fi
[ "${#variables[@]}" = 0 ] || variables=(env "${variables[@]}")
remote=$(quoted ${variables[@]+"${variables[@]}"} bash tpu_worker.sh run "${options[@]}" -- ${command[@]+"${command[@]}"})
ssh=("${tpus[@]}" "$reach" ssh "$name" "${on_workers[@]}")
run_remote=("${ssh[@]}" "--command=$remote")
stop_there="--command=bash tpu_worker.sh stop"
stop_remote=("${ssh[@]}" "$stop_there")
# Several slices are reachable only through their queued resource, which --stop looks for.
on_all=(--worker=all "${where[@]}" ${connect_flags[@]+"${connect_flags[@]}"})
find_queued=("${tpus[@]}" queued-resources describe "$name" "${where[@]}" '--format=value(name)')
stop_queued=("${tpus[@]}" queued-resources ssh "$name" --node=all "${on_all[@]}" "$stop_there")
stop_alone=("${tpus[@]}" tpu-vm ssh "$name" "${on_all[@]}" "$stop_there")

copy=("${tpus[@]}" "$reach" scp)
list_files=(git -C "$root" ls-files -z --cached --others --exclude-standard)

# --- dry run -----------------------------------------------------------------------------------

plan() {
    if [ -n "$stop_only" ]; then
        echo "# Is it a queued resource?"
        quoted "${find_queued[@]}"
        echo "# If so:"
        quoted "${stop_queued[@]}"
        echo "# If not:"
        quoted "${stop_alone[@]}"
        return
    fi
    echo "# Does it exist? $ready: use it. Preempted, suspended or failed: delete and create it again."
    quoted "${describe[@]}"
    if [ -n "$type" ]; then
        echo "# If not:"
        quoted "${create[@]}"
    else
        echo "# If not: an error, because --type is missing."
    fi
    local files=("${sources[@]}")
    if [ -z "$package" ]; then
        echo "# This checkout: tracked files, and new ones that git doesn't ignore."
        printf '%s | %s\n' "$(quoted "${list_files[@]}")" \
            "$(quoted tar -C "$root" -czf "$archive_name" --null --files-from=-)"
        files+=("$archive_name")
    fi
    quoted "${copy[@]}" "${files[@]}" "$name:" "${on_workers[@]}"
    echo "# The command, on every worker; repeated from the first line up to $retries times after a preemption or failure."
    quoted "${run_remote[@]}"
    if [ -n "$delete_on_exit" ]; then
        echo "# At the end, in any case (--delete-on-exit):"
        quoted "${delete[@]}"
    fi
}

# --- one attempt -------------------------------------------------------------------------------

scratch=
state=unknown
compared=

# read_state: sets `state`, `NONE` if there is no such TPU, and what is known of an existing one.
read_state() {
    local status=0 described
    described=$("${describe[@]}" 2>"$scratch/describe") || status=$?
    IFS=, read -r state has_type has_runtime has_more <<<"$described"
    [ "$status" != 0 ] || return 0
    state=NONE
    if ! grep -q NOT_FOUND "$scratch/describe"; then
        cat "$scratch/describe" >&2
        say "gcloud could not say whether $name exists, for the reason above"
        return "$status"
    fi
}

remove() {
    say "deleting $name ($state)"
    run_child group "${delete[@]}" || return $?
    state=NONE
}

# compare: says once what the existing TPU has and this call asks for otherwise.
compare() {
    local differences=() difference spot_there=''
    has_type=${has_type##*/}
    [ -z "$compared" ] && [ -n "$has_type" ] || return 0
    compared=yes
    [ "${type:-$has_type}" = "$has_type" ] || differences+=("--type $has_type, and you ask for $type")
    [ "${asked_runtime:-$has_runtime}" = "$has_runtime" ] ||
        differences+=("--runtime $has_runtime, and you ask for $asked_runtime")
    if [ -n "$queued" ]; then
        [ "${has_more:-1}" = "$slices" ] || differences+=("--slices ${has_more:-1}, and you ask for $slices")
    else
        [ "$has_more" != True ] || spot_there=yes
        if [ -n "$spot_there" ] && [ -z "$spot" ]; then differences+=("--spot, and you don't ask for it"); fi
        if [ -z "$spot_there" ] && [ -n "$spot" ]; then differences+=("no --spot, and you ask for it"); fi
    fi
    for difference in ${differences[@]+"${differences[@]}"}; do say "the existing $name has $difference"; done
    [ "${#differences[@]}" = 0 ] ||
        say "to get what you ask for, stop the command (--stop), delete $name, then repeat the call"
}

# have_tpu: 0 if NAME exists and is ready.
have_tpu() {
    local reported='' created=
    while :; do
        read_state || return $?
        case $state in
            "$ready")
                if [ -z "$created" ]; then
                    say "using the existing $name in $zone"
                    compare
                fi
                return 0
                ;;
            NONE)
                if [ -z "$type" ]; then
                    say "there is no $name in $zone; give --type to create it"
                    return 2
                fi
                say "creating $name in $zone: $type${spot:+, spot}${queued:+, queued}"
                state=unknown
                run_child group "${create[@]}" || return $?
                created=yes
                state=$ready
                [ -n "$queued" ] || return 0
                ;;
            PREEMPTED | TERMINATED | SUSPENDED | FAILED)
                if [ -n "$created" ]; then
                    say "$name: $state before it was ready"
                    remove || true
                    return 1
                fi
                remove || return $?
                ;;
            STOPPED | STOPPING)
                say "$name is $state: start it (gcloud compute tpus tpu-vm start) or delete it"
                return 2
                ;;
            *)
                [ "$state" = "$reported" ] || say "$name is $state: waiting"
                reported=$state
                pause "$poll"
                ;;
        esac
        [ -z "$stopping" ] || return 75
    done
}

pack() {
    # Without git (an unpacked archive): everything but environments and runs.
    { "${list_files[@]}" 2>/dev/null ||
        (cd "$root" && find . -type f ! -path './.*' ! -path './runs/*' ! -path './data/*' -print0); } |
        while IFS= read -r -d '' file; do
            [ ! -e "$root/$file" ] || printf '%s\0' "$file"
        done | tar -C "$root" -czf "$scratch/$archive_name" --null --files-from=-
}

attempt() {
    local status=0 files=("${sources[@]}")
    have_tpu || return $?
    if [ -z "$package" ]; then
        pack || return 1
        files+=("$scratch/$archive_name")
    fi
    run_child group "${copy[@]}" "${files[@]}" "$name:" "${on_workers[@]}" || status=$?
    if [ "$status" = 0 ]; then
        run_child group "${run_remote[@]}" || status=$?
    else
        say "copying to the workers failed with exit status $status"
    fi
    if [ "$status" = 76 ]; then # another call's --stop: what was stopped on purpose stays so
        stopping=--stop
        return 75
    fi
    if [ "$status" = 77 ]; then # its TPU
        delete_on_exit=
        return 2
    fi
    [ "$status" != 0 ] && [ -z "$stopping" ] || return "$status"
    # ssh cannot tell a lost machine from a failed command; the machine's state can.
    read_state || return "$status"
    if [ "$state" != "$ready" ]; then
        say "$name is $state after exit status $status: preempted; creating it again"
        return 75
    fi
    return "$status"
}

finish() {
    local was=$stopping
    stopping= # what follows has to run
    [ "$state" != unknown ] || read_state || state=unknown
    if [ -n "$delete_on_exit" ]; then
        # After a failure, too: the command keeps running if streaming its log failed too often.
        if [ "$status" != 0 ] && read_state && [ "$state" = "$ready" ]; then
            say "letting the command save before $name is deleted"
            run_child group "${stop_remote[@]}" || say "the command could not be stopped cleanly"
        fi
        if read_state && [ "$state" = NONE ]; then
            say "$name is gone already"
        else
            remove || say "$name COULD NOT BE DELETED and still costs money: $(quoted "${delete[@]}")"
        fi
    elif [ -n "$was" ] && [ "$was" != --stop ]; then
        say "the command is still running on $name: call this again to follow it, or with --stop to stop it"
    elif [ "$state" != NONE ]; then
        say "$name still exists; to delete it: $(quoted "${delete[@]}")"
    fi
    rm -rf "$scratch"
}

if [ -n "$dry_run" ]; then
    plan
    exit 0
fi
command -v gcloud >/dev/null ||
    { say "gcloud is not installed: https://cloud.google.com/sdk/docs/install" && exit 1; }
if [ -n "$stop_only" ]; then
    if "${find_queued[@]}" >/dev/null 2>&1; then exec "${stop_queued[@]}"; fi
    exec "${stop_alone[@]}"
fi
scratch=$(mktemp -d)
watch_signals
status=0
keep_going "$retries" "$wait_s" 600 attempt || status=$?
finish
exit "$status"
