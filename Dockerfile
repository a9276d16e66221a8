# The gateway as a container: a static binary on a small Debian, with what the agent's commands
# need. docs/docker.md says how to run it.
#
#	docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t gateway .
#
# The tags of the base images move with their fixes. For a build that is the same for ever, write
# what `docker buildx imagetools inspect debian:trixie-slim` prints after them: debian@sha256:…

FROM golang:1.26-trixie AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X gateway/cmd/gateway/internal/app.version=$VERSION" -o /out/gateway ./cmd/gateway

FROM debian:trixie-slim
LABEL org.opencontainers.image.title="gateway" \
    org.opencontainers.image.description="Talk to an AI agent on chat platforms" \
    org.opencontainers.image.licenses="GPL-3.0-or-later"
# bash, git and bubblewrap are for the agent's commands, the rest is for the gateway. The user's
# number is fixed, so that volumes fit the next image, too.
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
# A turn has 20 s to reach its next step: stop with at least 30 s of patience (docker stop -t 30).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["gateway", "health"]
ENTRYPOINT ["gateway"]
