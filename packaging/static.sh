#!/bin/sh
# static.sh ARCHIVE OUTPUT: makes a libperch.a of what rustc put into ARCHIVE: only what the functions of perch.h need, in
# one object whose other symbols are local, so that a program may contain other libraries in Rust. Needs binutils.
set -eu
archive=$(realpath "$1") output=$2
header=$(dirname "$0")/../crates/libperch/include/perch.h
functions=$(sed -n '/PERCH_DISABLE \*\//q; s/^[a-z].*[ *]\(perch_[a-z_]*\)(.*;$/\1/p' "$header")
[ -n "$functions" ] || { echo "static.sh: $header declares no function" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck disable=SC2046
ld -r --gc-sections $(for name in $functions; do echo "-u $name"; done) -o "$scratch/libperch.o" "$archive"
# The standard library's objects carry bitcode, at which plugins of ar for another LLVM fail.
objcopy --wildcard --strip-debug --keep-global-symbol='perch_*' --remove-section=.llvmbc --remove-section=.llvmcmd \
  "$scratch/libperch.o"
rm -f "$output"
ar rcs "$output" "$scratch/libperch.o"
