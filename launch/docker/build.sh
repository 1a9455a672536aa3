#!/usr/bin/env bash
# Builds a container image for CPUs, a server, TPU hosts or NVIDIA GPUs; see --help.
set -euo pipefail

self=build.sh
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# shellcheck source=launch/keep_going.bash
. "$root/launch/keep_going.bash"

usage() {
    cat <<'TEXT'
launch/docker/build.sh cpu|serve|tpu|cuda --image IMAGE [OPTION ...]

    launch/docker/build.sh tpu --image us-docker.pkg.dev/PROJECT/mt/flaxformer-mt:tpu --push

  --image IMAGE   the image's name, with its registry where it is pushed
  --cuda 12|13    the CUDA of the wheels (default 13; 12 for drivers older than 580)
  --push          push it afterwards
  --dry-run       print what would run, and run nothing
  --help          this text
TEXT
}

target=
image=
cuda=
push=
dry_run=
while [ "$#" -gt 0 ]; do
    case $1 in
        cpu | serve | tpu | cuda) target=$1 ;;
        --push) push=yes ;;
        --dry-run) dry_run=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        --image | --cuda)
            [ "$#" -gt 1 ] || bad_usage "$1 needs a value"
            if [ "$1" = --image ]; then image=$2; else cuda=$2; fi
            shift
            ;;
        *) bad_usage "'$1': cpu, serve, tpu, cuda or an option" ;;
    esac
    shift
done
[ -n "$target" ] || bad_usage "which image? cpu, serve, tpu or cuda"
[ -n "$image" ] || bad_usage "--image is missing"
build=(docker build --file "$root/launch/docker/Dockerfile" --target "$target" --tag "$image")
if [ "$target" = cuda ]; then
    case ${cuda:=13} in
        12 | 13) build+=(--build-arg "CUDA=$cuda") ;;
        *) bad_usage "--cuda $cuda: 12 or 13" ;;
    esac
elif [ -n "$cuda" ]; then
    bad_usage "--cuda goes with cuda, not with $target"
fi
build+=("$root")

run() {
    if [ -n "$dry_run" ]; then quoted "$@"; else "$@"; fi
}

run "${build[@]}"
[ -z "$push" ] || run docker push "$image"
