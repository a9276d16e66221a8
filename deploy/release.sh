#!/usr/bin/env bash
# Builds the archives of a release, a bill of materials for each, and their checksums:
#
#	deploy/release.sh [--snapshot] [-o DIR] [OS/ARCH...]
#
# It requires a clean tree, and takes the version from the last tag; --snapshot uses the tree as it
# is. The same commit and the same Go always give the same bytes: compare sha256sums.txt. It needs Go, git, GNU tar and, for Windows, zip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
	printf 'release.sh: %s\n' "$*" >&2
	exit 1
}

snapshot=
out=dist
targets=()
while [ $# -gt 0 ]; do
	case $1 in
	--snapshot) snapshot=yes ;;
	-o)
		[ $# -gt 1 ] || die "-o needs a folder"
		out=$2
		shift
		;;
	*/*) targets+=("$1") ;;
	*) die "there is no option $1; see the top of this file" ;;
	esac
	shift
done
[ "${#targets[@]}" -gt 0 ] || targets=(linux/amd64 linux/arm64 darwin/arm64 windows/amd64)

if [ -n "$(git status --porcelain)" ] && [ -z "$snapshot" ]; then
	die "there are changes that are not committed: commit them, or say --snapshot"
fi
version=$(git describe --tags --always --dirty)
version=${version#v}

# Everything that could differ from one build to the next.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local
unset GOEXPERIMENT GOAMD64 GOARM64
umask 022

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/gateway_* "$out/sha256sums.txt"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# licences prints the licences of everything that is in the binary of GOOS and GOARCH.
licences() {
	printf 'The Go programming language\n\n'
	cat "$(go env GOROOT)/LICENSE"
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' \
		./cmd/gateway | sort -u | while read -r path module dir; do
		printf '\n\n%s %s\n' "$path" "$module"
		find "$dir" -maxdepth 1 -type f \
			\( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) |
			sort | while read -r file; do
			echo
			cat "$file"
		done
	done
}

go build -trimpath -buildvcs=false -o "$tmp/sbom" ./deploy/sbom

for target in "${targets[@]}"; do
	export GOOS=${target%/*} GOARCH=${target#*/}
	name=gateway_${version}_${GOOS}_$GOARCH
	folder=$tmp/$name
	mkdir "$folder"
	program=gateway
	[ "$GOOS" = windows ] && program=gateway.exe
	go build -trimpath -buildvcs=false -ldflags "-s -w -X gateway/cmd/gateway/internal/app.version=$version" \
		-o "$folder/$program" ./cmd/gateway
	cp LICENSE README.md CHANGELOG.md config.toml.example deploy/NOTICE "$folder"
	"$tmp/sbom" -version "$version" -date "$(date --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)" \
		"$folder/$program" >"$out/$name.cdx.json"
	echo "$name.cdx.json"
	[ "$GOOS" = linux ] && cp deploy/gateway.service "$folder"
	licences >"$folder/THIRD_PARTY_LICENCES.txt"
	find "$folder" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
	if [ "$GOOS" = windows ]; then
		command -v zip >/dev/null || die "zip is not installed, which Windows' archive needs"
		(cd "$tmp" && find "$name" -type f | sort | zip -X -q -9 "$out/$name.zip" -@)
		echo "$name.zip"
	else
		tar -C "$tmp" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
			--mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n -9 >"$out/$name.tar.gz"
		echo "$name.tar.gz"
	fi
	rm -r "$folder"
done
(cd "$out" && sha256sum gateway_* >sha256sums.txt)
