#!/bin/sh
# deb.sh PERCH PLUGIN LIBRARIES OUTPUT: packs a built perch, its plugin for qemu, and the libperch in the folder LIBRARIES
# into OUTPUT/perch_VERSION_ARCHITECTURE.deb, and prints that path. Needs dpkg-dev and binutils. SOURCE_DATE_EPOCH makes the package reproducible.
set -eu
umask 022
perch=$(realpath "$1") plugin=$(realpath "$2") libraries=$(realpath "$3")
mkdir -p "$4"
output=$(realpath "$4")
cd "$(dirname "$0")/.."
version=$("$perch" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
root=$output/root
rm -rf "$root"
mkdir -p "$root/DEBIAN"

make -s install-files PERCH="$perch" PLUGIN="$plugin" LIBRARIES="$libraries" DESTDIR="$root" PREFIX=/usr \
  ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions
library=$(realpath "$root/usr/lib/libperch.so")
strip --strip-unneeded "$root/usr/bin/perch" "$root/usr/lib/perch/libperch_trace_plugin.so" "$library"
gzip -9n "$root"/usr/share/man/man1/*.1

doc=$root/usr/share/doc/perch
install -Dm644 packaging/debian/copyright "$doc/copyright"
install -m644 README.md ARCHITECTURE.md SECURITY.md CITATION.cff "$doc/"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
mkdir -p "$doc/docs" "$doc/examples"
cp -r --no-preserve=mode,ownership docs/. "$doc/docs/"
# The command has them embedded; these are to copy from.
cp -r --no-preserve=mode,ownership profiles machines workloads experiments examples/regions "$doc/examples/"
cp -r --no-preserve=ownership examples/modules "$doc/examples/"

# dpkg-shlibdeps finds the libraries' packages; it reads a control file that it needs for nothing else.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/debian"
printf 'Source: perch\n\nPackage: perch\nArchitecture: any\n' > "$scratch/debian/control"
depends=$(cd "$scratch" && dpkg-shlibdeps -O -e"$root/usr/bin/perch" -e"$root/usr/lib/perch/libperch_trace_plugin.so" -e"$library" |
  sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "deb.sh: dpkg-shlibdeps found no package that perch depends on" >&2; exit 1; }
{
  cat <<END
Package: perch
Version: $version
Architecture: $architecture
Maintainer: The perch authors
Section: utils
Priority: optional
Depends: $depends
Recommends: libpfm4
Suggests: qemu-user
Installed-Size: $(du -k --apparent-size -s "$root/usr" | cut -f1)
END
  echo "Description: place the threads of programs where they interfere least"
  # Paragraphs of the description: indented by one, empty lines as a point (deb-control(5)).
  sed -e 's/^$/./' -e 's/^/ /' packaging/debian/long-description
} > "$root/DEBIAN/control"
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) > "$root/DEBIAN/md5sums"

package=$output/perch_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >&2
echo "$package"
