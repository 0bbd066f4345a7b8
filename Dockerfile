# Images for machines with and without GPUs, with the versions of requirements.txt:
#
#   docker build --target gpu --tag biovl:gpu .
#   docker build --target cpu --tag biovl:cpu --build-arg PIP_EXTRA_INDEX_URL=… .
#
# docs/install.md says what PIP_EXTRA_INDEX_URL is. The repository is in /opt/biovl.

FROM python:3.12-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# KubeRay checks its pods with wget; triton compiles for the GPU with gcc.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 biovl
WORKDIR /opt/biovl
COPY requirements.txt ./

FROM base AS cpu
# The index of PyTorch's wheels for CPUs: without one, CUDA's libraries are installed and not used.
ARG PIP_EXTRA_INDEX_URL=
RUN if [ -n "$PIP_EXTRA_INDEX_URL" ]; then sed -i -E '/^(cuda|nvidia|triton)/d' requirements.txt; fi \
    && pip install --no-deps --compile -r requirements.txt
COPY . .
RUN pip install --no-deps --no-build-isolation --compile --editable .
USER 1000
CMD ["biovl", "--help"]

FROM base AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN pip install --no-deps --compile -r requirements.txt
COPY . .
RUN pip install --no-deps --no-build-isolation --compile --editable .
USER 1000
CMD ["biovl", "--help"]
