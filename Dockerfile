# The gateway as a container: a static binary on a small Debian, with programs for the agent's
# commands. docs/docker.md describes how to run it.
#
#	docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t gateway .
#
# The target "full" adds programs that skills and MCP servers often run: Python, Node, uv, jq, curl, gh and
# ffmpeg. It is several times as large:
#
#	docker build --target full -t gateway:full .
#
# The tags of the base images change with their fixes. To always build from the same image, replace
# a tag by the digest that `docker buildx imagetools inspect debian:trixie-slim` prints:
# debian@sha256:…

FROM golang:1.26-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X gateway/cmd/gateway/internal/app.version=$VERSION" -o /out/gateway ./cmd/gateway

FROM debian:trixie-slim AS plain
LABEL org.opencontainers.image.title="gateway" \
    org.opencontainers.image.description="Talk to an AI agent on chat platforms" \
    org.opencontainers.image.licenses="GPL-3.0-or-later"
# bash, git and bubblewrap are for the agent's commands, the rest is for the gateway. The user's id
# is fixed, so that the next image can use the same volumes.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bash bubblewrap ca-certificates git tzdata \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 gateway \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home \
        --shell /usr/sbin/nologin gateway \
    && install -d -m 0700 -o 10001 -g 10001 /data
COPY --from=build /out/gateway /usr/local/bin/gateway
COPY --from=build /src/LICENSE /src/config.toml.example /usr/share/doc/gateway/
ENV HOME=/data GATEWAY_HOME=/data
WORKDIR /data
VOLUME /data
USER 10001:10001
# A turn has 20 s to reach its next step: give the container at least 30 s to stop (docker stop -t 30).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["gateway", "health"]
ENTRYPOINT ["gateway"]

FROM node:22-trixie-slim AS npm

FROM plain AS full
USER 0:0
# Debian's npm is hundreds of packages. This one also runs with Debian's Node.
COPY --from=npm /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
# Debian has no uv. The hashes are for its wheels for x86-64 and ARM64, in this order. If PyPI can't
# be reached, an empty UV_VERSION leaves uv out.
ARG UV_VERSION=0.9.5
ARG UV_HASHES="--hash=sha256:6507bbbcd788553ec4ad5a96fa19364dc0f58b023e31d79868773559a83ec181 \
--hash=sha256:48a3542835d37882ff57d1ff91b757085525d98756712fa61cf9941d3dda8ebf"
RUN apt-get update \
    && apt-get install -y --no-install-recommends -o Acquire::Retries=3 curl ffmpeg gh jq nodejs \
        python-is-python3 python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && if [ -n "$UV_VERSION" ]; then \
        echo "uv==$UV_VERSION $UV_HASHES" >/tmp/uv.txt \
        && pip install --break-system-packages --root-user-action=ignore --no-cache-dir \
            --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
            --requirement /tmp/uv.txt \
        && rm /tmp/uv.txt; \
    fi
USER 10001:10001

# Without --target, docker builds the last stage.
FROM plain
