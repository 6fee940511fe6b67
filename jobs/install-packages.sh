#!/usr/bin/env bash
# Installs the Debian 12 packages that Caravan is built with. Needs nothing but a bare Debian 12; asks nothing.
#
#   bash jobs/install-packages.sh                what the program needs
#   bash jobs/install-packages.sh --with-tests   and what its tests need
#
# As root, or as a user whose sudo asks for no password. Otherwise it names the missing packages and stops.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config   # build
  git                                # commit id in `caravan --version`
  openmpi-bin libopenmpi-dev         # MPI: any MPI-3 will do
  libhdf5-dev                        # checkpoint files
  libboost-program-options-dev       # command line and configuration files
  libfmt-dev libspdlog-dev           # messages and log
  nlohmann-json3-dev libyaml-cpp-dev # request files
  libpcre2-dev                       # split patterns of the tokenizers
  libssl-dev                         # SHA-256
  libvips-dev                        # images of the vision models
  python3 python3-pip                # pip fetches LibTorch; the program itself needs no Python
  ca-certificates unzip              # to fetch and unpack the model of the quick start
)
test_packages=(
  libgtest-dev librapidcheck-dev libbenchmark-dev # test frameworks
  hdf5-tools python3-h5py                         # checkpoints must be readable by others
  clang-format clang-tidy shellcheck              # style checks
  ccache                                          # two builds (release, sanitizers) in reasonable time
)

usage="usage: install-packages.sh [--with-tests]"
case "${1-}" in
  '') ;;
  --with-tests) packages+=("${test_packages[@]}") ;;
  *) echo "$usage" >&2; exit 64 ;;
esac

if ! command -v apt-get >/dev/null; then
  cat >&2 <<'TEXT'
install-packages.sh: this is not a Debian system (no apt-get). Load or install, by the means of this machine:
  g++ 12 or newer, CMake 3.25 or newer, Ninja, pkg-config, an MPI-3 library, HDF5 1.10 or newer, Boost.ProgramOptions,
  fmt, spdlog, nlohmann-json 3.11 or newer, yaml-cpp, PCRE2, OpenSSL, libvips 8.13 or newer
TEXT
  exit 69
fi

# Those of the wanted packages that are not completely installed.
missing=()
installed=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package} ' "${packages[@]}" 2>/dev/null || true)"
for package in "${packages[@]}"; do
  [[ "$installed" == *" ii $package "* ]] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all ${#packages[@]} are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "install-packages.sh: these packages are missing, and only an administrator can install them:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 77
  fi
  as_root=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Runs one command; its output is shown only if it fails.
quietly() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    echo "install-packages.sh: failed: $*" >&2
    exit 69
  fi
}

echo "packages: installing ${missing[*]}"
# An interrupted run may have left packages half installed: finish those first. What dpkg cannot finish alone, for want
# of a package that was not unpacked yet, apt can.
"${as_root[@]}" dpkg --configure -a >/dev/null 2>&1 </dev/null || true
quietly apt-get -q update
quietly apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 --fix-broken install
quietly apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 install "${missing[@]}"
