#!/usr/bin/env bash
# Builds the image of the Dockerfile and tests it:
#
#	deploy/container.sh
#
# With a Docker engine the script uses that. Otherwise it uses buildah without isolation, as root.
# Then debootstrap makes replacements of the base images, the Go of this machine replaces the image
# of golang, and npm downloads itself in place of the image of Node. The script prints which of the
# two it used.
#
# The gateway gets no configuration: it must become ready, run as its own user, answer in the
# chat, prove its sandbox, end at SIGTERM, and know the conversation after a second start. With
# Docker the second start has the restrictions of compose.yml.
#
# Then it builds the target "full" and runs each of its programs as the image's user. Where PyPI
# can't be reached, it says so and leaves out uv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tmp=$(mktemp -d)
name=gateway-try-$$
engine=
npm=10.9.4 # replaces the npm of the image of Node, without a Docker engine
finish() {
	local status=$?
	[ -z "$engine" ] || "${engine}_clean" >/dev/null 2>&1 || true
	rm -rf "$tmp"
	exit "$status"
}
trap finish EXIT

die() {
	printf 'container.sh: %s\n' "$*" >&2
	[ ! -s "$tmp/log" ] || tail -n 40 "$tmp/log" >&2
	exit 1
}

# Docker: build, start [hardened], inside COMMAND..., stop, clean.
docker_build() { docker build --build-arg VERSION=try --tag "$name" .; }
docker_start() {
	local options=()
	[ "${1:-}" != hardened ] || options=(--read-only --cap-drop ALL --init
		--tmpfs "/tmp:size=512m,mode=1777" --security-opt no-new-privileges
		--memory 2g --pids-limit 2048)
	docker run --detach --name "$name" "${options[@]}" --volume "$name:/data" "$name" >/dev/null
}
docker_inside() { docker exec --interactive "$name" "$@"; }
docker_stop() {
	docker stop --time 30 "$name" >/dev/null
	docker logs "$name" >"$tmp/log" 2>&1
	code=$(docker wait "$name")
	docker rm "$name" >/dev/null
}
docker_full() {
	docker build --build-arg VERSION=try --build-arg "UV_VERSION=$1" --target full \
		--tag "$name-full" . >"$tmp/log" 2>&1 || die "the build of the target full failed"
}
docker_run() { docker run --rm --entrypoint "$1" "$name-full" "${@:2}"; }
docker_clean() {
	docker rm --force "$name"
	docker volume rm --force "$name"
	docker rmi --force "$name" "$name-full"
}

# Buildah: the same. Without isolation a container's processes are processes of this machine.
b() { buildah --root "$tmp/storage" --runroot "$tmp/run" --storage-driver vfs "$@"; }
inside_b() {
	b run --isolation chroot --network host --volume "$tmp/data:/data" "$container" -- "$@"
}

# base IMAGE FOLDER [ENV...] makes an image of a root file system.
base() {
	local made variable env=()
	for variable in "${@:3}"; do env+=(--env "$variable"); done
	made=$(b from scratch)
	b add --quiet "$made" "$2" / >/dev/null
	b config --cmd /bin/sh "${env[@]}" "$made"
	b commit --quiet "$made" "$1" >/dev/null
	b rm "$made" >/dev/null
}

# authorities adds the certificate authorities that this machine trusts to a root file system:
# a mirror or a module proxy may need one that only this machine has.
authorities() {
	mkdir -p "$1/etc/ssl/certs"
	cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$tmp/ca-certificates.crt"
	cp "$tmp/ca-certificates.crt" "$1/etc/ssl/certs/ca-certificates.crt"
}

buildah_build() {
	local suite go
	suite=$(sed -n 's/^FROM debian:\([a-z]*\)-slim AS plain$/\1/p' Dockerfile)
	go=$(sed -n 's/^FROM golang:\([0-9.]*\)-.*/\1/p' Dockerfile)
	case $(go env GOVERSION) in
	go"$go"*) ;;
	*) die "the Dockerfile needs Go $go, and this machine has $(go env GOVERSION)" ;;
	esac
	debootstrap --variant=minbase "$suite" "$tmp/base" >"$tmp/log" || die "debootstrap failed"
	authorities "$tmp/base"
	# As in Debian's image: packages need not survive a power cut.
	echo force-unsafe-io >"$tmp/base/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"
	base "docker.io/library/debian:$suite-slim" "$tmp/base"
	mkdir -p "$tmp/base/usr/local"
	cp -a "$(go env GOROOT)" "$tmp/base/usr/local/go"
	base "docker.io/library/golang:$go-$suite" "$tmp/base" \
		"PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
		"GOPROXY=$(go env GOPROXY)" "GONOSUMDB=$(go env GONOSUMDB)" "GOSUMDB=$(go env GOSUMDB)"
	rm -rf "$tmp/base"
	b build --isolation chroot --network host --pull-never --layers=false \
		--format docker --build-arg VERSION=try \
		--volume "$(go env GOMODCACHE):/root/go/pkg/mod" \
		--volume "$(go env GOCACHE):/root/.cache/go-build" --tag "$name" . >"$tmp/log" 2>&1 ||
		die "the build failed"
	b rmi "docker.io/library/debian:$suite-slim" "docker.io/library/golang:$go-$suite" >/dev/null
	container=$(b from --pull-never "localhost/$name")
	mkdir "$tmp/data"
	chown 10001:10001 "$tmp/data"
	chmod 0700 "$tmp/data"
	chmod 0711 "$tmp"
}
buildah_start() {
	inside_b gateway >"$tmp/log" 2>&1 &
	started=$!
}
buildah_inside() { inside_b "$@"; }
buildah_stop() {
	local pid
	pid=$(sed -n 's/.*"gateway ready".*"pid":\([0-9]*\).*/\1/p' "$tmp/log" | tail -n 1)
	kill -TERM "$pid"
	code=0
	wait "$started" || code=$?
	started=
}
# A separate image would be a third copy of a gigabyte. So the function runs the RUN of the stage in
# the container of the plain image.
buildah_full() {
	local run hashes
	npm pack --silent --pack-destination "$tmp" "npm@$npm" >"$tmp/log" 2>&1 ||
		die "npm can't be fetched"
	tar -xzf "$tmp/npm-$npm.tgz" -C "$tmp"
	b copy --quiet --chown 0:0 "$container" "$tmp/package" /usr/local/lib/node_modules/npm >/dev/null
	hashes=$(sed -n '/^ARG UV_HASHES=/,/"$/p' Dockerfile | grep -o -- '--hash=[a-z0-9:]*' | xargs)
	run=$(sed -n '/^FROM plain AS full$/,/^USER 10001/p' Dockerfile | sed -n '/^RUN /,$p' |
		sed -e 's/^RUN //' -e '/^USER/d')
	b run --isolation chroot --network host --user 0:0 --env "UV_VERSION=$1" \
		--env "UV_HASHES=$hashes" --volume "$tmp/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro" "$container" -- \
		/bin/sh -c "$run" >"$tmp/log" 2>&1 || die "the stage full of the Dockerfile failed"
}
buildah_run() { inside_b "$@"; }
buildah_clean() {
	[ -z "${started:-}" ] || kill "$started"
	b rm --all
	b rmi --all --force
}

# ready waits until the gateway says that it is ready: at most a minute.
ready() {
	local i
	for ((i = 0; i < 60; i++)); do
		! "${engine}_inside" gateway health --ready >"$tmp/health" 2>&1 || return 0
		sleep 1
	done
	cat "$tmp/health" >&2
	die "the gateway is not ready after a minute"
}

# expect TEXT COMMAND... runs a command in the container, which must print the text.
expect() {
	local text=$1
	shift
	"${engine}_inside" "$@" >"$tmp/said" 2>&1 || true
	grep -qF -- "$text" "$tmp/said" && return
	cat "$tmp/said" >&2
	die "$*: it does not say \"$text\""
}

stop() {
	"${engine}_stop"
	[ "$code" -eq 0 ] || die "the gateway ended with code $code"
}

if docker info >/dev/null 2>&1; then
	engine=docker
elif [ "$(id -u)" = 0 ] && command -v buildah >/dev/null && command -v debootstrap >/dev/null; then
	engine=buildah
else
	die "install a Docker engine, or run this as root with buildah and debootstrap installed"
fi
echo "Tried with: $engine"
"${engine}_build"
echo "The image is built after $SECONDS s."

"${engine}_start"
ready
expect 10001 id -u
expect "gateway try" gateway version
expect "Sandbox: proven: " gateway doctor
echo "hello" | expect "demo" gateway chat
stop
echo "ok: without a configuration, after $SECONDS s"

"${engine}_start" hardened
ready
expect "terminal" gateway sessions list
expect "Sandbox: proven: " gateway doctor
stop
echo "ok: a second start with the same volume, after $SECONDS s"

programs=("python --version" "pip --version" "python -m venv /tmp/venv" "node --version"
	"npm --version" "npx --version" "jq --version" "curl --version" "gh --version"
	"ffmpeg -version" "gateway version" "uv --version" "uvx --version")
reaches() { curl --silent --fail --max-time 30 --retry 2 --output /dev/null "$1"; }
uv=$(sed -n 's/^ARG UV_VERSION=//p' Dockerfile)
if ! reaches https://pypi.org/simple/uv/; then
	echo "uv is left out: PyPI can't be reached"
	programs=("${programs[@]:0:${#programs[@]}-2}")
	uv=
fi
"${engine}_full" "$uv"
[ "$("${engine}_run" id -u)" = 10001 ] || die "the target full has another user"
for program in "${programs[@]}"; do
	read -ra words <<<"$program"
	"${engine}_run" "${words[@]}" >"$tmp/said" 2>&1 || {
		cat "$tmp/said" >&2
		die "$program fails in the target full"
	}
done
echo "ok: the target full, after $SECONDS s"
