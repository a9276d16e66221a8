# The gateway as a container: a static binary on a small Debian, with what the agent's commands
# need. docs/docker.md says how to run it.
#
#	docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t gateway .
#
# The target "full" adds what skills and MCP servers often run: Python, Node, uv, jq, curl, gh and
# ffmpeg. It is several times as large:
#
#	docker build --target full -t gateway:full .
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

FROM debian:trixie-slim AS plain
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

FROM plain AS full
USER 0:0
# npm of Debian is five hundred packages. uv is not in Debian; an empty UV_VERSION leaves it out,
# where there is no way to PyPI.
ARG UV_VERSION=0.9.5
RUN npm=10.9.4 sum=4bfba8a0c823024d1926ec9d97a37a00eb60fd2adf44b3d34a686fc32e8f51e4 \
    && apt-get update \
    && apt-get install -y --no-install-recommends -o Acquire::Retries=3 curl ffmpeg gh jq nodejs \
        python-is-python3 python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && curl -fsSL --retry 3 -o /tmp/npm.tgz "https://registry.npmjs.org/npm/-/npm-$npm.tgz" \
    && echo "$sum  /tmp/npm.tgz" | sha256sum -c --quiet \
    && mkdir -p /usr/local/lib/node_modules/npm \
    && tar -xzf /tmp/npm.tgz -C /usr/local/lib/node_modules/npm --strip-components=1 --no-same-owner \
    && rm /tmp/npm.tgz \
    && ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && if [ -n "$UV_VERSION" ]; then \
        pip install --break-system-packages --root-user-action=ignore --no-cache-dir \
            --disable-pip-version-check "uv==$UV_VERSION"; \
    fi
USER 10001:10001

# The last stage is what is built without --target.
FROM plain
