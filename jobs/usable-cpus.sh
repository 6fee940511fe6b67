#!/usr/bin/env bash
# Prints how many CPUs this process may keep busy: nproc knows CPU masks, but not the quota that containers set by
# control groups (version 2, or 1).
set -euo pipefail

cpus=$(nproc)
quota=max period=100000
if [ -r /sys/fs/cgroup/cpu.max ]; then
  read -r quota period </sys/fs/cgroup/cpu.max
elif [ -r /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
  quota=$(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)
  period=$(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)
fi
if [[ $quota =~ ^[0-9]+$ ]]; then
  granted=$((quota / period))
  if ((granted < 1)); then granted=1; fi
  if ((granted < cpus)); then cpus=$granted; fi
fi
echo "$cpus"
