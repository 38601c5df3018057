#!/bin/bash
# environment.sh FOLDER REQUIREMENTS PYTHON: install an environment of that Python version in FOLDER, unless a whole one is there.
# Nothing is installed for the machine: apt is locked by its own upgrades for minutes after it starts.
set -o pipefail
place=$1 requirements=$2 version=$3
uv_url=https://files.pythonhosted.org/packages/3d/aa/26d64642d808de4a652579ef950d7cd2d37f080a8babf9c67c6b75fc4c3f/uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
uv_sha256=d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19
fail() { echo "podwright: no environment: $1" >&2; exit 1; }
[ ! -e "$place/complete" ] || exit 0
mkdir -p "$(dirname "$place")" || fail "$(dirname "$place") cannot be written"
exec 9> "$place.lock" || fail "$place.lock cannot be written"
flock 9
[ ! -e "$place/complete" ] || exit 0
tools=$(mktemp -d "$place.tools.XXXXXX") || fail "no folder for uv"
trap 'rm -rf "$tools"' EXIT
curl -sSfL --retry 5 --retry-all-errors "$uv_url" -o "$tools/uv.whl" || fail "uv could not be downloaded"
echo "$uv_sha256  $tools/uv.whl" | sha256sum -c --quiet - || fail "the download of uv is damaged"
python3 -m zipfile -e "$tools/uv.whl" "$tools" || fail "uv could not be unpacked"
uv=$(ls "$tools"/uv-*.data/scripts/uv) && chmod +x "$uv" || fail "the package of uv holds no program"
rm -rf "$place"
"$uv" venv -q --python "$version" "$place" || fail "there is no Python $version"
"$uv" pip install -q --python "$place/bin/python" -r "$requirements" || fail "the packages could not be installed"
touch "$place/complete"
