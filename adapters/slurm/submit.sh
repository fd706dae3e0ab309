#!/bin/bash
# Submits the shards, and the joining for when all of them have ended well. Run it in the folder that is to hold them, on a shared disk.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shards=$(sbatch --parsable "$here/shards.sbatch")
# A cluster's name may stand behind the number.
sbatch --parsable --dependency="afterok:${shards%%;*}" --kill-on-invalid-dep=yes "$here/merge.sbatch"
