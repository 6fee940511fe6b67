#!/usr/bin/env bash
# Everything that Caravan is built with, on a bare Debian 12: packages and LibTorch. Takes under a second when all is
# there, continues where an interrupted run stopped, and asks nothing.
#
#   bash jobs/install-dependencies.sh [--with-tests]
set -euo pipefail

jobs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bash "$jobs/install-packages.sh" "$@"
bash "$jobs/install-libtorch.sh"
