#!/usr/bin/env bash
# Prints the Kubernetes manifest (a JobSet) that runs one flaxformer-mt command on GKE; see --help.
set -euo pipefail

self=make.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=launch/keep_going.bash
. "$here/../keep_going.bash"

usage() {
    cat <<'TEXT'
launch/gke/make.sh NAME --image IMAGE --tpu TYPE:TOPOLOGY [OPTION ...] -- COMMAND [ARGUMENT ...]
launch/gke/make.sh NAME --image IMAGE --gpu TYPE [OPTION ...] -- COMMAND [ARGUMENT ...]

    launch/gke/make.sh mt --image IMAGE --tpu v6e:4x4 --spot -- \
        train --config wmt14_en_de:base --workdir gs://BUCKET/en-de | kubectl apply -f -

Prints the manifest of a JobSet that runs `flaxformer-mt COMMAND ...` on every host, and restarts all
of them if one fails or is preempted, except after exit status 2 (wrong usage, settings or input).

  --image IMAGE           the image that launch/docker/build.sh pushed
  --tpu TYPE:TOPOLOGY     v4:2x2x2, v5e:4x4, v5p:2x2x4, v6e:4x4, tpu7x:2x2x2, per slice
  --slices N              slices, joined by the data-centre network (default 1)
  --chips-per-host N      if not 4 (8 for v5e:2x4 and v6e:2x4, 1 for 1x1)
  --gpu TYPE              nvidia-l4, nvidia-a100-80gb, nvidia-h100-80gb, ...
  --gpus-per-node N       default 8
  --nodes N               default 1
  --spot                  nodes that may be preempted
  --retries N             total restarts (default 10)
  --env NAME=VALUE        set a variable on every host, such as LIBTPU_INIT_ARGS=...; repeatable
  --host-network          several slices: faster, but not with Workload Identity: pods then use the
                          nodes' own service account
  --service-account NAME  a Kubernetes account with access to the bucket (default: default)
  --namespace NAME        default: default
  --apply                 pass the manifest to `kubectl apply` instead of printing it
  --dry-run               with --apply: only print that command and the manifest
  --help                  this text
TEXT
}

# Words as JSON, which is YAML too; several are divided by commas.
as_json() {
    local word out=
    for word in "$@"; do
        word=${word//\\/\\\\}
        word=${word//\"/\\\"}
        word=${word//$'\n'/\\n}
        word=${word//$'\t'/\\t}
        out="$out, \"$word\""
    done
    printf '%s' "${out#, }"
}

name=
image=
tpu=
gpu=
slices=1
chips=
gpus=
nodes=1
spot=
host_network=
retries=10
variables=()
account=default
namespace=default
apply=
dry_run=

while [ "$#" -gt 0 ]; do
    case $1 in
        --)
            shift
            break
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        --spot) spot=yes ;;
        --host-network) host_network=yes ;;
        --apply) apply=yes ;;
        --dry-run) dry_run=yes ;;
        --image | --tpu | --gpu | --env | --slices | --chips-per-host | --gpus-per-node | --nodes | --retries | --service-account | --namespace)
            [ "$#" -gt 1 ] || bad_usage "$1 needs a value"
            case $1 in
                --slices | --chips-per-host | --gpus-per-node | --nodes | --retries)
                    is_count "$2" || bad_usage "$1 needs an integer, not '$2'"
                    [ "$1" = --retries ] || [ "$2" -ge 1 ] || bad_usage "$1 needs 1 or more"
                    ;;
            esac
            case $1 in
                --image) image=$2 ;;
                --tpu) tpu=$2 ;;
                --gpu) gpu=$2 ;;
                --env)
                    is_variable "$2" || bad_usage "--env needs NAME=VALUE, not '$2'"
                    variables+=("{\"name\": $(as_json "${2%%=*}"), \"value\": $(as_json "${2#*=}")}")
                    ;;
                --slices) slices=$2 ;;
                --chips-per-host) chips=$2 ;;
                --gpus-per-node) gpus=$2 ;;
                --nodes) nodes=$2 ;;
                --retries) retries=$2 ;;
                --service-account) account=$2 ;;
                --namespace) namespace=$2 ;;
            esac
            shift
            ;;
        -*) bad_usage "unknown option '$1'" ;;
        *)
            [ -z "$name" ] || bad_usage "'$1': put the command after --"
            name=$1
            ;;
    esac
    shift
done

[ -n "$name" ] || bad_usage "missing NAME, the first argument"
case $name in
    *[!a-z0-9-]* | [!a-z]* | *-) bad_usage "'$name': use lower-case letters, digits and -, starting with a letter" ;;
esac
[ -n "$image" ] || bad_usage "--image is missing"
[ "$#" -gt 0 ] || bad_usage "missing command after --"
[ -z "$tpu" ] || [ -z "$gpu" ] || bad_usage "give --tpu or --gpu, not both"

topology=
if [ -n "$tpu" ]; then
    template=$here/jobset.tpu.yaml
    [ "$nodes" = 1 ] || bad_usage "--nodes needs --gpu: a TPU's topology says how many hosts it has"
    [ -z "$gpus" ] || bad_usage "--gpus-per-node needs --gpu; for TPUs use --chips-per-host"
    topology=${tpu#*:}
    case $tpu in
        v4:*) accelerator="tpu-v4-podslice" ;;
        v5e:*) accelerator="tpu-v5-lite-podslice" ;;
        v5p:*) accelerator="tpu-v5p-slice" ;;
        v6e:*) accelerator="tpu-v6e-slice" ;;
        tpu7x:*) accelerator="tpu7x" ;;
        *) bad_usage "--tpu $tpu: v4, v5e, v5p, v6e or tpu7x, then : and the topology, e.g. v6e:4x4" ;;
    esac
    total=1
    IFS=x read -r -a sides <<<"$topology"
    for side in ${sides[@]+"${sides[@]}"}; do
        if ! is_count "$side" || [ "$side" -lt 1 ]; then
            bad_usage "--tpu $tpu: the topology is like 4x4 or 2x2x4"
        fi
        total=$((total * side))
    done
    wanted=2
    case $tpu in v4:* | v5p:* | tpu7x:*) wanted=3 ;; esac
    [ "${#sides[@]}" = "$wanted" ] || bad_usage "--tpu $tpu: the topology has $wanted sides"
    if [ -z "$chips" ]; then
        case $tpu in
            v5e:2x4 | v6e:2x4) chips=8 ;;
            *) chips=$((total < 4 ? total : 4)) ;;
        esac
    fi
    [ $((total % chips)) = 0 ] || bad_usage "--tpu $tpu: $total chips don't make whole hosts of $chips"
    hosts=$((total / chips))
    [ "$slices" = 1 ] || [ "$hosts" -gt 1 ] || bad_usage "--slices $slices: GKE joins only slices with several hosts"
elif [ -n "$gpu" ]; then
    template=$here/jobset.gpu.yaml
    accelerator=$gpu
    [ -z "$chips" ] || bad_usage "--chips-per-host needs --tpu; for GPUs use --gpus-per-node"
    chips=${gpus:-8}
    hosts=$nodes
    [ "$slices" = 1 ] || bad_usage "--slices needs --tpu; for GPUs use --nodes"
    [ -z "$host_network" ] || bad_usage "--host-network needs --tpu"
else
    bad_usage "give --tpu or --gpu"
fi

manifest() {
    local text spot_line='' network_lines='' settings=''
    text=$(cat "$template")
    printf -v settings '%s, ' ${variables[@]+"${variables[@]}"}
    settings=${settings%, }
    [ -z "$spot" ] || spot_line=$'\n                cloud.google.com/gke-spot: "true"'
    if [ -n "$host_network" ]; then
        network_lines=$'\n              hostNetwork: true\n              dnsPolicy: ClusterFirstWithHostNet'
    fi
    # The command last: it may hold anything. Quoted, so that no & in it means something.
    text=${text//@NAME@/"$name"}
    text=${text//@NAMESPACE@/"$namespace"}
    text=${text//@SERVICE_ACCOUNT@/"$account"}
    text=${text//@SLICES@/"$slices"}
    text=${text//@HOSTS@/"$hosts"}
    text=${text//@CHIPS@/"$chips"}
    text=${text//@RETRIES@/"$retries"}
    text=${text//@ACCELERATOR@/"$accelerator"}
    text=${text//@TOPOLOGY@/"$topology"}
    text=${text//@SPOT@/"$spot_line"}
    text=${text//@HOST_NETWORK@/"$network_lines"}
    text=${text//@IMAGE@/"$image"}
    text=${text//@ENV@/"$settings"}
    text=${text//@ARGUMENTS@/"[$(as_json "$@")]"}
    printf '%s\n' "$text"
}

if [ -n "$apply" ] && [ -z "$dry_run" ]; then
    manifest "$@" | kubectl apply -f -
    exit
fi
[ -z "$apply" ] || echo "# kubectl apply -f - < the following"
manifest "$@"
