#!/bin/sh
# Checks the parts of the kit against SHA256SUMS, and unpacks them: `sh unpack.sh FOLDER-OF-PARTS TARGET`. A part that is missing or
# damaged is named, and then nothing is unpacked.
set -eu
sums=$(cd "$(dirname "$0")" && pwd)/SHA256SUMS
mkdir -p "$2"
target=$(cd "$2" && pwd)
cd "$1"
sha256sum -c "$sums"
# The list has the parts in their order: part-10 comes after part-9.
while read -r _ part; do cat "$part"; done <"$sums" | tar -xz -C "$target"
