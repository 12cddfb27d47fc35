#!/bin/sh
# Builds the wheel of the Python package, installs it where there is no other perch, and runs the example of regions with
# it: the counts must come from the library in the wheel.
# usage: wheel.sh FOLDER (for the wheel; pip fetches what builds it, so this needs the network)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wheels=$(mkdir -p "$1" && cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH PERCH_LIBRARY LD_LIBRARY_PATH

python3 -m venv "$folder/build"
"$folder/build/bin/pip" wheel --quiet --no-deps -w "$wheels" "$root/python"
python3 -m venv "$folder/use"
"$folder/use/bin/pip" install --quiet --no-index --find-links "$wheels" --force-reinstall perch

cd "$folder"
file=$("$folder/use/bin/python" -c 'import perch; print(perch._library._name)')
case $file in
    "$folder"/use/*) ;;
    *) echo "wheel.sh: the wheel's package has loaded $file, which is not in the wheel" >&2; exit 1 ;;
esac
said=$("$folder/use/bin/python" "$root/examples/regions/region.py")
case $said in
    *"fill: 5 calls, "[1-9]*" page faults"*) ;;
    *) printf 'wheel.sh: the example says\n%s\n' "$said" >&2; exit 1 ;;
esac
echo "wheel: $(ls "$wheels"/perch-*.whl); its example counts page faults"
