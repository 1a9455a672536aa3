# flaxformer-mt for NVIDIA GPUs; launch/docker/build.sh cuda builds it.
# CUDA comes with the wheels; the host brings the driver: 580 or newer for CUDA 13, 525 for CUDA 12.
FROM python:3.12-slim

# 13 or 12
ARG CUDA=13

WORKDIR /opt/flaxformer-mt
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY flaxformer_mt flaxformer_mt
COPY configs configs
# `kubernetes`: JAX asks the cluster for the other hosts of a job (launch/gke).
RUN case "$CUDA" in \
        13) jax='' extra=cuda,gcs ;; \
        12) jax='jax[cuda12]' extra=gcs ;; \
        *) echo "CUDA=$CUDA: 12 or 13" >&2; exit 2 ;; \
    esac \
    && pip install --no-cache-dir --constraint constraints.txt ".[$extra]" $jax kubernetes

WORKDIR /work
# What the NVIDIA container runtime reads; and where GKE puts the driver's libraries.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 PYTHONUNBUFFERED=1
ENTRYPOINT ["flaxformer-mt"]
CMD ["--help"]
