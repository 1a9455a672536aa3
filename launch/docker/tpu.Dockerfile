# flaxformer-mt for TPU hosts; launch/docker/build.sh tpu builds it.
FROM python:3.12-slim

WORKDIR /opt/flaxformer-mt
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY flaxformer_mt flaxformer_mt
COPY configs configs
RUN pip install --no-cache-dir --constraint constraints.txt '.[tpu,gcs]'

WORKDIR /work
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["flaxformer-mt"]
CMD ["--help"]
